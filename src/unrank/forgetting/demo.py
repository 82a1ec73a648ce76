"""The demo: forget a part of the documentation that every Python has, and show examples.

The collection is a part of the standard library's documentation; the ranker is all-MiniLM-L6-v2. All of `optparse` and
`calendar` is forgotten, and some of `zipfile`, whose other paragraphs are then entangled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.collection.texts import hashed_order
from unrank.engine.scoring import scores_of
from unrank.forgetting.forget import Forgotten
from unrank.forgetting.workspace import Workspace
from unrank.methods.cocol import Cocol
from unrank.rankers.base import Ranker

WHOLE = ("optparse", "calendar")
PARTLY = "zipfile"
SHARE = 0.06
CANDIDATES = 15
TARGET = "60%"
METHOD = Cocol(phases="joint", batch=32, learning_rate=4e-4, warm_up=1)
TRAIN_LAYERS = 1
"""One phase and one layer, so that it takes minutes on two slow cores."""


def demo_removal(collection: Collection) -> Removal:
    """Return all documents of two articles, and some of a third until a share of all documents is removed."""
    headings = collection.queries.texts(np.arange(len(collection.queries)))
    trained = set(collection.documents.ids(np.unique(collection.pairs[:, 1])))
    whole, partly = (
        sorted({id for heading in some for id in _documents(collection, headings.index(heading)) if id in trained})
        for some in (WHOLE, [PARTLY])
    )
    drawn = [partly[place] for place in hashed_order(partly, "demo") if partly[place] not in whole]
    return Removal(documents=[*whole, *drawn[: round(SHARE * len(collection.documents)) - len(whole)]])


def _documents(collection: Collection, query: int) -> list[str]:
    return collection.documents.ids(collection.judged[collection.judged[:, 0] == query, 1])


QUERIES = 2
SHOWN = 3


@dataclass(frozen=True)
class Line:
    """A document of a list, and whether it was to be forgotten."""

    text: str
    forgotten: bool


@dataclass(frozen=True)
class Example:
    """A query with its first documents, and the rank of its first forgotten document, before and after."""

    query: str
    before: list[Line]
    after: list[Line]
    rank_before: int
    rank_after: int


def examples(workspace: Workspace, original: Ranker, result: Forgotten) -> list[Example]:
    """Return the queries whose forgotten documents fell the furthest from the top."""
    assert result.before.forget is not None and result.after.forget is not None
    fall = result.before.forget.reciprocal - result.after.forget.reciprocal
    chosen = result.before.forget.queries[np.argsort(-fall, kind="stable")[:QUERIES]]
    return [_example(int(query), original, result.ranker, workspace) for query in chosen]


def _example(query: int, original: Ranker, student: Ranker, workspace: Workspace) -> Example:
    """Rank a query's list with both rankers. Removed documents that did not answer this query are left out."""
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
    (before, rank_before), (after, rank_after) = sides
    return Example(workspace.collection.queries.text(query), before, after, rank_before, rank_after)
