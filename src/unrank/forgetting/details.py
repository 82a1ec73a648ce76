"""Details: every query's list before and after, for a person who looks.

They hold what was removed, texts and ids, and so they lie in a folder of their own, apart from the ranker and its
record, to be deleted when they have been looked at. A removed document stands only in the lists of queries that it
answered; where scores tie, a forgotten document comes first and a kept one last, so that a tie counts against us.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition, make_partition
from unrank.collection.removal import Removal
from unrank.collection.texts import Rows, Texts, hashed_order
from unrank.disk import new_folder, write_json
from unrank.engine.runtime import Device, Progress
from unrank.forgetting.forget import Forgotten
from unrank.forgetting.hashes import recognised
from unrank.forgetting.workspace import Workspace
from unrank.rankers.base import Ranker
from unrank.record import DETAILS, DETAILS_VERSION

MOST_QUERIES = 10_000
SHOWN = 10
TEXT_CUT = 400
BINS = 40
NOTE = "This folder still holds what was removed, ids and texts. Delete it when you have looked at it.\n"


@dataclass(frozen=True)
class Lists:
    """The lists of some queries laid end to end, with each document's place and score before and after."""

    pairs: Pairs
    forgotten: NDArray[np.bool_]
    relevant: NDArray[np.bool_]
    scores: tuple[NDArray[np.float32], NDArray[np.float32]]
    places: tuple[Rows, Rows]


def save_details(
    original: Ranker,
    result: Forgotten,
    collection: Collection,
    removal: Removal,
    out: Path,
    device: Device = "auto",
    progress: Progress | None = None,
) -> None:
    """Score the lists of the measured queries with both rankers and write them as a folder, whole or not at all."""
    partition = make_partition(collection, removal, earlier=recognised(collection, result.record.removed_before))
    workspace = Workspace.open(original, collection, partition, device, progress)
    result.ranker.to(workspace.runtime.device)
    members = sets_of(collection, partition)
    queries = choose(members, collection)
    lists = score_lists(queries, workspace, original, result.ranker)
    assert result.record.removed is not None
    header = {
        "details_version": DETAILS_VERSION,
        "run": result.record.removed.salt,
        "queries": {name: len(np.intersect1d(rows, queries)) for name, rows in members.items()},
        "measured": {name: len(rows) for name, rows in members.items()},
        "scores": histograms(lists),
    }
    with new_folder(out) as folder:
        write_json(folder / DETAILS, header)
        (folder / "README.txt").write_text(NOTE, encoding="utf-8")
        gone = removed_texts(collection, partition)
        _write_lines(folder / "queries.jsonl", query_lines(lists, members, collection, partition, gone))
        shown = np.unique(lists.pairs[np.minimum(*lists.places) <= SHOWN, 1])
        _write_lines(folder / "documents.jsonl", text_lines(collection.documents, shown, partition.documents, gone))


def removed_texts(collection: Collection, partition: Partition) -> set[str]:
    """What the removed queries and documents say, those of earlier requests too: others that say the same must be known
    as well, to whoever may not show it."""
    return {*collection.queries.texts(partition.queries), *collection.documents.texts(partition.documents)}


def sets_of(collection: Collection, partition: Partition) -> dict[str, Rows]:
    """The queries that each of the four sets is measured on, those that are looked at first at the head."""
    kept_tests = collection.test_pairs[~np.isin(collection.test_pairs[:, 1], partition.documents)]
    sets = {
        "forget": partition.forget,
        "entangled": partition.entangled,
        "test": kept_tests,
        "disjoint": partition.disjoint,
    }
    return {name: np.unique(pairs[:, 0]) for name, pairs in sets.items()}


def choose(members: Mapping[str, Rows], collection: Collection) -> Rows:
    """All of them, or as many as there is room for: set by set, in an order that is the same on every machine."""
    chosen = np.empty(0, np.int64)
    for rows in members.values():
        new = np.setdiff1d(rows, chosen)
        order = hashed_order(collection.queries.ids(new), "details")
        chosen = np.union1d(chosen, new[order[: MOST_QUERIES - len(chosen)]])
    return chosen


def score_lists(queries: Rows, workspace: Workspace, original: Ranker, student: Ranker) -> Lists:
    collection, partition = workspace.collection, workspace.partition
    pairs = collection.list_pairs(queries)
    forgotten = np.isin(collection.pair_keys(pairs), collection.pair_keys(partition.forget))
    gone_before = np.isin(collection.pair_keys(pairs), collection.pair_keys(partition.earlier))
    shown = forgotten | ~(gone_before | np.isin(pairs[:, 1], partition.documents))
    pairs, forgotten = pairs[shown], forgotten[shown]
    relevant = np.isin(collection.pair_keys(pairs), collection.pair_keys(collection.relevant.pairs(queries)))
    before, after = (workspace.scorer(ranker)(pairs) for ranker in (original, student))
    tie = np.where(forgotten, 0, np.where(relevant, 2, 1))
    return Lists(pairs, forgotten, relevant, (before, after), (_places(pairs, before, tie), _places(pairs, after, tie)))


def _places(pairs: Pairs, scores: NDArray[np.float32], tie: Rows) -> Rows:
    """The place of each pair in its query's list, from 1."""
    order = np.lexsort((tie, -scores, pairs[:, 0]))
    queries = pairs[order, 0]
    places = np.empty(len(pairs), np.int64)
    places[order] = np.arange(len(pairs)) - np.searchsorted(queries, queries) + 1
    return places


def histograms(lists: Lists) -> dict[str, Any]:
    """How the scores of forgotten, kept and other documents lie, before and after, in the same bins."""
    ends = [float(find(scores)) for find in (np.min, np.max) for scores in lists.scores]
    edges = np.linspace(min(ends), max(ends) if max(ends) > min(ends) else min(ends) + 1, BINS + 1)
    kinds = {
        "forgotten": lists.forgotten,
        "kept": lists.relevant & ~lists.forgotten,
        "other": ~lists.relevant & ~lists.forgotten,
    }

    def counts(of: NDArray[np.bool_], scores: NDArray[np.float32]) -> list[int]:
        found: list[int] = np.histogram(scores[of], edges)[0].tolist()
        return found

    return {
        "edges": edges.tolist(),
        **{
            kind: {"before": counts(of, lists.scores[0]), "after": counts(of, lists.scores[1])}
            for kind, of in kinds.items()
        },
    }


def query_lines(
    lists: Lists, members: Mapping[str, Rows], collection: Collection, partition: Partition, gone: Container[str]
) -> Iterator[dict[str, Any]]:
    """One query a line: its sets, the top of its list before and after, and where its documents stood and stand."""
    order = np.argsort(lists.pairs[:, 0], kind="stable")
    queries, starts = np.unique(lists.pairs[order, 0], return_index=True)
    documents = collection.documents.ids(lists.pairs[:, 1])
    memberships = {name: set(rows.tolist()) for name, rows in members.items()}
    for query, here in zip(queries.tolist(), np.split(order, starts[1:]), strict=True):
        text = collection.queries.text(query)
        yield {
            "id": collection.queries.id(query),
            "text": text[:TEXT_CUT],
            "removed": bool(np.isin(query, partition.queries)),
            "says_removed": text in gone,
            "sets": [name for name, rows in memberships.items() if query in rows],
            "before": _top(lists, documents, here, 0),
            "after": _top(lists, documents, here, 1),
            "forgotten": _moves(lists, here[lists.forgotten[here]]),
            "kept": _moves(lists, here[lists.relevant[here] & ~lists.forgotten[here]]),
        }


def _top(lists: Lists, documents: list[str], here: Rows, side: int) -> list[dict[str, Any]]:
    top = here[np.argsort(lists.places[side][here])][:SHOWN]
    return [
        {
            "document": documents[pair],
            "score": round(float(lists.scores[side][pair]), 4),
            "relevant": bool(lists.relevant[pair]),
            "forgotten": bool(lists.forgotten[pair]),
        }
        for pair in top.tolist()
    ]


def _moves(lists: Lists, these: Rows) -> list[list[int]]:
    """The place before and the place after of each."""
    moves: list[list[int]] = np.stack([places[these] for places in lists.places], axis=1).tolist()
    return moves


def text_lines(texts: Texts, rows: Rows, removed: Rows, gone: Container[str]) -> Iterator[dict[str, Any]]:
    is_removed = np.isin(rows, removed).tolist()
    for id, text, here in zip(texts.ids(rows), texts.texts(rows), is_removed, strict=True):
        yield {"id": id, "text": text[:TEXT_CUT], "removed": here, "says_removed": text in gone}


def _write_lines(path: Path, lines: Iterator[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
