"""Rankings: every query's list before and after, as a folder of details for a person to read.

It holds what was removed, texts and ids. So it is a folder of its own, apart from the ranker and its record, to be
deleted after it was read. A removed document is only in the lists of queries that it answered. If scores tie, a
forgotten document comes first and a kept one last, so that a tie never makes the result look better.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition
from unrank.collection.texts import Rows, Texts, hashed_order
from unrank.disk import new_folder, write_json
from unrank.forgetting.forget import Forgotten
from unrank.forgetting.places import Places
from unrank.forgetting.workspace import Workspace
from unrank.rankers.base import Ranker
from unrank.record import DETAILS, DETAILS_VERSION

MOST_QUERIES = 10_000
SHOWN = 10
TEXT_CUT = 400
BINS = 40
NOTE = "This folder still holds what was removed, ids and texts. Delete it when you have looked at it.\n"


@dataclass(frozen=True)
class Rankings:
    """The lists of some queries, one after the other, with each document's rank and score before and after."""

    pairs: Pairs
    forgotten: NDArray[np.bool_]
    relevant: NDArray[np.bool_]
    scores: tuple[NDArray[np.float32], NDArray[np.float32]]
    ranks: tuple[Rows, Rows]
    place_ranks: Rows | None = None
    """The ranks before if every forgotten document were at its place; `None` if the target is another one."""


def save_details(workspace: Workspace, original: Ranker, result: Forgotten, out: Path) -> None:
    """Score the lists of the measured queries with both rankers, and write them as one folder, whole or not at all."""
    workspace = replace(workspace, teachers=(*workspace.teachers, *result.teachers))  # most is scored already
    collection, partition = workspace.collection, workspace.partition
    for ranker in (original, result.ranker):
        ranker.to(workspace.runtime.device)
    members = sets_of(collection, partition)
    queries = choose(members, collection)
    rankings = score_rankings(queries, workspace, original, result.ranker, result.places)
    assert result.record.removed is not None
    header = {
        "details_version": DETAILS_VERSION,
        "run": result.record.removed.salt,
        "queries": {name: len(np.intersect1d(rows, queries)) for name, rows in members.items()},
        "measured": {name: len(rows) for name, rows in members.items()},
        "scores": histograms(rankings),
    }
    with new_folder(out) as folder:
        write_json(folder / DETAILS, header)
        (folder / "README.txt").write_text(NOTE, encoding="utf-8")
        gone = removed_texts(collection, partition)
        _write_lines(folder / "queries.jsonl", query_lines(rankings, members, collection, partition, gone))
        shown = np.unique(rankings.pairs[np.minimum(*rankings.ranks) <= SHOWN, 1])
        _write_lines(folder / "documents.jsonl", text_lines(collection.documents, shown, partition.documents, gone))


def removed_texts(collection: Collection, partition: Partition) -> set[str]:
    """Return the texts of removed queries and documents, earlier requests included.

    A reader that must not show them has to hide equal texts under other ids too.
    """
    return {*collection.queries.texts(partition.queries), *collection.documents.texts(partition.documents)}


def sets_of(collection: Collection, partition: Partition) -> dict[str, Rows]:
    """Return the queries of each of the four sets, the most interesting set first."""
    kept_tests = collection.test_pairs[~np.isin(collection.test_pairs[:, 1], partition.documents)]
    sets = {
        "forget": partition.forget,
        "entangled": partition.entangled,
        "test": kept_tests,
        "disjoint": partition.disjoint,
    }
    return {name: np.unique(pairs[:, 0]) for name, pairs in sets.items()}


def choose(members: Mapping[str, Rows], collection: Collection) -> Rows:
    """Return all queries or the first 10,000: set by set, in an order that is the same on every machine."""
    chosen = np.empty(0, np.int64)
    for rows in members.values():
        new = np.setdiff1d(rows, chosen)
        order = hashed_order(collection.queries.ids(new), "details")
        chosen = np.union1d(chosen, new[order[: MOST_QUERIES - len(chosen)]])
    return chosen


def score_rankings(
    queries: Rows, workspace: Workspace, original: Ranker, student: Ranker, places: Places | None = None
) -> Rankings:
    """Score the lists with both rankers, and rank them; with places, also where each forgotten document belongs."""
    collection, partition = workspace.collection, workspace.partition
    pairs = collection.list_pairs(queries)
    forgotten = np.isin(collection.pair_keys(pairs), collection.pair_keys(partition.forget))
    gone_before = np.isin(collection.pair_keys(pairs), collection.pair_keys(partition.previous))
    shown = forgotten | ~(gone_before | np.isin(pairs[:, 1], partition.documents))
    pairs, forgotten = pairs[shown], forgotten[shown]
    relevant = np.isin(collection.pair_keys(pairs), collection.pair_keys(collection.relevant.pairs(queries)))
    before, after = (workspace.scorer(ranker)(pairs) for ranker in (original, student))
    tie = np.where(forgotten, 0, np.where(relevant, 2, 1))
    ranks = _ranks(pairs, before, tie), _ranks(pairs, after, tie)
    moved = None if places is None else _at_places(before, collection.pair_keys(pairs), collection, places)
    return Rankings(
        pairs,
        forgotten,
        relevant,
        (before, after),
        ranks,
        place_ranks=None if moved is None else _ranks(pairs, moved, tie),
    )


def _at_places(before: NDArray[np.float32], keys: Rows, collection: Collection, places: Places) -> NDArray[np.float32]:
    """Return the scores of a list with each forgotten pair at its place."""
    wanted = dict(zip(collection.pair_keys(places.pairs).tolist(), places.wanted.tolist(), strict=True))
    return np.array([wanted.get(key, score) for key, score in zip(keys.tolist(), before.tolist(), strict=True)], "f4")


def _ranks(pairs: Pairs, scores: NDArray[np.float32], tie: Rows) -> Rows:
    """Return the rank of each pair in its query's list, from 1."""
    order = np.lexsort((tie, -scores, pairs[:, 0]))
    queries = pairs[order, 0]
    ranks = np.empty(len(pairs), np.int64)
    ranks[order] = np.arange(len(pairs)) - np.searchsorted(queries, queries) + 1
    return ranks


def histograms(rankings: Rankings) -> dict[str, object]:
    """Count the scores of forgotten, kept and other documents, before and after, in the same bins."""
    ends = [float(find(scores)) for find in (np.min, np.max) for scores in rankings.scores]
    edges = np.linspace(min(ends), max(ends) if max(ends) > min(ends) else min(ends) + 1, BINS + 1)
    kinds = {
        "forgotten": rankings.forgotten,
        "kept": rankings.relevant & ~rankings.forgotten,
        "other": ~rankings.relevant & ~rankings.forgotten,
    }

    def counts(of: NDArray[np.bool_], scores: NDArray[np.float32]) -> list[int]:
        found: list[int] = np.histogram(scores[of], edges)[0].tolist()
        return found

    return {
        "edges": edges.tolist(),
        **{
            kind: {"before": counts(of, rankings.scores[0]), "after": counts(of, rankings.scores[1])}
            for kind, of in kinds.items()
        },
    }


def query_lines(
    rankings: Rankings, members: Mapping[str, Rows], collection: Collection, partition: Partition, gone: Container[str]
) -> Iterator[dict[str, object]]:
    """Yield a line for each query: its sets, the top of its list before and after, and its documents' rank changes."""
    order = np.argsort(rankings.pairs[:, 0], kind="stable")
    queries, starts = np.unique(rankings.pairs[order, 0], return_index=True)
    documents = collection.documents.ids(rankings.pairs[:, 1])
    memberships = {name: set(rows.tolist()) for name, rows in members.items()}
    for query, here in zip(queries.tolist(), np.split(order, starts[1:]), strict=True):
        text = collection.queries.text(query)
        yield {
            "id": collection.queries.id(query),
            "text": text[:TEXT_CUT],
            "removed": bool(np.isin(query, partition.queries)),
            "says_removed": text in gone,
            "sets": [name for name, rows in memberships.items() if query in rows],
            "before": _top(rankings, documents, here, 0),
            "after": _top(rankings, documents, here, 1),
            "forgotten": _rank_changes(rankings, here[rankings.forgotten[here]]),
            "kept": _rank_changes(rankings, here[rankings.relevant[here] & ~rankings.forgotten[here]]),
            **_places(rankings, here[rankings.forgotten[here]]),
        }


def _top(rankings: Rankings, documents: list[str], here: Rows, side: int) -> list[dict[str, object]]:
    top = here[np.argsort(rankings.ranks[side][here])][:SHOWN]
    return [
        {
            "document": documents[pair],
            "score": round(float(rankings.scores[side][pair]), 4),
            "relevant": bool(rankings.relevant[pair]),
            "forgotten": bool(rankings.forgotten[pair]),
        }
        for pair in top.tolist()
    ]


def _rank_changes(rankings: Rankings, these: Rows) -> list[list[int]]:
    """Return the rank before and the rank after of each pair."""
    changes: list[list[int]] = np.stack([ranks[these] for ranks in rankings.ranks], axis=1).tolist()
    return changes


def _places(rankings: Rankings, these: Rows) -> dict[str, list[int]]:
    """Return the rank of the place of each pair, in the order of the rank changes; nothing if there are no places."""
    return {} if rankings.place_ranks is None else {"places": rankings.place_ranks[these].tolist()}


def text_lines(texts: Texts, rows: Rows, removed: Rows, gone: Container[str]) -> Iterator[dict[str, object]]:
    is_removed = np.isin(rows, removed).tolist()
    for id, text, here in zip(texts.ids(rows), texts.texts(rows), is_removed, strict=True):
        yield {"id": id, "text": text[:TEXT_CUT], "removed": here, "says_removed": text in gone}


def _write_lines(path: Path, lines: Iterator[dict[str, object]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
