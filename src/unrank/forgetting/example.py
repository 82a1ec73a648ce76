"""Examples: the first documents of a query's list before and after, so that a person sees what was forgotten."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.partition import Partition
from unrank.engine.runtime import Device
from unrank.engine.scoring import scores_of
from unrank.forgetting.forget import Forgotten
from unrank.forgetting.workspace import Workspace
from unrank.rankers.base import Ranker

QUERIES = 2
SHOWN = 3


@dataclass(frozen=True)
class Line:
    """A document of a list, and whether it was to be forgotten."""

    text: str
    forgotten: bool


@dataclass(frozen=True)
class Example:
    """A query with its first documents, and the place of its first forgotten one, before and after."""

    query: str
    before: list[Line]
    after: list[Line]
    place_before: int
    place_after: int


def examples(
    original: Ranker,
    result: Forgotten,
    collection: Collection,
    partition: Partition,
    device: Device = "auto",
) -> list[Example]:
    """The queries whose forgotten documents fell the furthest from the top."""
    assert result.before.forget is not None and result.after.forget is not None
    fall = result.before.forget.reciprocal - result.after.forget.reciprocal
    chosen = result.before.forget.queries[np.argsort(-fall, kind="stable")[:QUERIES]]
    workspace = Workspace.open(original, collection, partition, device)
    return [_example(int(query), original, result.ranker, workspace) for query in chosen]


def _example(query: int, original: Ranker, student: Ranker, workspace: Workspace) -> Example:
    """Of the removed documents the list shows those that answered this query; the others have left it."""
    pairs, partition = workspace.collection.list_pairs(np.array([query])), workspace.partition
    gone = np.isin(workspace.collection.pair_keys(pairs), workspace.collection.pair_keys(partition.forget))
    shown = gone | ~np.isin(pairs[:, 1], partition.documents)
    pairs, gone = pairs[shown], gone[shown]
    texts = workspace.collection.documents.texts(pairs[:, 1])
    sides = []
    for ranker in (original, student):
        order = np.argsort(-scores_of(ranker, workspace.store, pairs, workspace.runtime), kind="stable")
        lines = [Line(texts[place], bool(gone[place])) for place in order[:SHOWN].tolist()]
        sides.append((lines, int(np.flatnonzero(gone[order])[0]) + 1))
    (before, place_before), (after, place_after) = sides
    return Example(workspace.collection.queries.text(query), before, after, place_before, place_after)
