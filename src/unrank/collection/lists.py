"""The list of each query: some of its relevant documents, and negatives.

A query lists at most 25 relevant documents, sampled by seed; its other relevant documents are in no list, neither as
positives nor as negatives. Negatives are the best documents of the source's run that are not relevant. BM25 makes the
list of a query that the run does not name; if too few documents share a word with the query, sampled ones fill it up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unrank.collection.bm25 import Bm25
from unrank.collection.collection import Ragged
from unrank.collection.sources.source import PAIRS_A_BATCH, Candidate, batched
from unrank.collection.texts import Rows, Texts, hashed_order
from unrank.errors import UnknownIds


def lay_end_to_end(rows: Iterable[NDArray[np.integer]]) -> Ragged:
    """Store arrays of rows end to end."""
    arrays = [np.asarray(row, np.int32) for row in rows]
    offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
    return Ragged(offsets, np.concatenate([np.empty(0, np.int32), *arrays]))


def group(keys: Rows, values: NDArray[np.integer], size: int) -> Ragged:
    """Group values by key; the values of one key keep their order."""
    order = np.argsort(keys, kind="stable")
    offsets = np.searchsorted(keys[order], np.arange(size + 1))
    return Ragged(offsets.astype(np.int64), values[order].astype(np.int32))


def listed_relevant(relevant: Ragged, most: NDArray[np.int64], documents: Texts, queries: Texts, seed: int) -> Ragged:
    """Return at most `most` relevant documents of each query, sampled by seed."""
    if (relevant.counts <= most).all():
        return relevant
    kept = []
    for row, limit in enumerate(most):
        rows = relevant[row]
        if len(rows) > limit:
            order = hashed_order(documents.ids(rows), f"{seed}:relevant:{queries.id(row)}")
            rows = np.sort(rows[order[:limit]])
        kept.append(rows)
    return lay_end_to_end(kept)


def make_negatives(
    run: Iterable[Candidate] | None, relevant: Ragged, queries: Texts, documents: Texts, most: int, seed: int
) -> Ragged:
    """Return the negatives of each query: from the run if it names any, else from BM25."""
    given = _from_run(run, relevant, queries, documents, most) if run is not None else {}
    bare = np.array([row for row in range(len(queries)) if not len(given.get(row, ()))], np.int64)
    if len(bare):
        given |= _from_bm25(bare, relevant, queries, documents, most, seed)
    return lay_end_to_end(given[row] for row in range(len(queries)))


def _from_run(
    run: Iterable[Candidate], relevant: Ragged, queries: Texts, documents: Texts, most: int
) -> dict[int, NDArray[np.integer]]:
    """Return the first documents of each query's run that are not relevant to it."""
    keys, values = [], []
    for batch in batched(run, PAIRS_A_BATCH):
        query = queries.find(pa.array([candidate.query for candidate in batch], pa.string()))
        known = query >= 0  # queries that are not used have no list
        document = documents.find(pa.array([candidate.document for candidate in batch], pa.string()))
        if missing := [batch[i].document for i in np.flatnonzero(known & (document < 0)).tolist()]:
            raise UnknownIds("document", sorted(set(missing)), "the run")
        keys.append(query[known])
        values.append(document[known])
    none = np.empty(0, np.int64)
    given = group(np.concatenate([none, *keys]), np.concatenate([none, *values]), len(queries))
    return {row: _without(given[row], relevant[row])[:most] for row in range(len(queries))}


def _from_bm25(
    rows: Rows, relevant: Ragged, queries: Texts, documents: Texts, most: int, seed: int
) -> dict[int, NDArray[np.integer]]:
    """Return the best documents by BM25 that are not relevant, filled up with sampled ones."""
    width = most + int(relevant.counts[rows].max())
    best = Bm25.over(documents).best(queries.texts(rows), width)
    return {
        row: _filled(_without(found, relevant[row])[:most], relevant[row], most, len(documents), f"{seed}:{id}")
        for row, id, (found, _) in zip(rows.tolist(), queries.ids(rows), best, strict=True)
    }


def _without(rows: NDArray[np.integer], relevant: NDArray[np.integer]) -> NDArray[np.integer]:
    """Drop repeated rows and relevant rows, and keep the order."""
    _, first = np.unique(rows, return_index=True)
    rows = rows[np.sort(first)]
    return rows[~np.isin(rows, relevant)]


def _filled(
    found: NDArray[np.integer], relevant: NDArray[np.integer], most: int, size: int, salt: str
) -> NDArray[np.integer]:
    """Add sampled rows until there are `most`, or no other row is left."""
    missing = min(most, size - len(relevant)) - len(found)
    if missing <= 0:
        return found
    generator = np.random.default_rng(list(hashlib.sha256(salt.encode()).digest()))
    taken = set(found.tolist()) | set(relevant.tolist())
    sampled: list[int] = []
    while len(sampled) < missing:
        if size < 4 * (len(taken) + missing):  # dense: sample from the other rows
            left = np.setdiff1d(np.arange(size), np.fromiter(taken, np.int64))
            sampled += generator.permutation(left)[: missing - len(sampled)].tolist()
        elif (candidate := int(generator.integers(size))) not in taken:
            taken.add(candidate)
            sampled.append(candidate)
    return np.concatenate([found, np.array(sampled, np.int64)])
