"""The list of each query: some of its relevant documents, and negatives.

A training or test query lists at most 25 relevant documents (drawn by seed); those beyond it are in no list,
neither positive nor negative. Negatives are the best documents of the source's run, or of BM25, that are not
relevant. A query that the run does not name has its list from BM25; where too few documents share a word with it,
documents drawn by seed fill it up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unrank.collection.candidates import Bm25
from unrank.collection.collection import Ragged
from unrank.collection.order import hashed_order
from unrank.collection.sources.source import PAIRS_A_BATCH, Candidate, batched
from unrank.collection.texts import Rows, Texts
from unrank.errors import UnknownIds


def lay_end_to_end(rows: Iterable[NDArray[np.integer]]) -> Ragged:
    arrays = [np.asarray(row, np.int32) for row in rows]
    offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
    return Ragged(offsets, np.concatenate([np.empty(0, np.int32), *arrays]))


def group(keys: Rows, values: NDArray[np.integer], size: int) -> Ragged:
    """The values of each key, in the order in which they stand."""
    order = np.argsort(keys, kind="stable")
    offsets = np.searchsorted(keys[order], np.arange(size + 1))
    return Ragged(offsets.astype(np.int64), values[order].astype(np.int32))


def listed_relevant(relevant: Ragged, most: NDArray[np.int64], documents: Texts, queries: Texts, seed: int) -> Ragged:
    """At most so many relevant documents a query, the same ones on every machine."""
    if (relevant.counts <= most).all():
        return relevant
    kept = []
    for row, limit in enumerate(most):
        all_of_it = relevant[row]
        if len(all_of_it) > limit:
            order = hashed_order(documents.ids(all_of_it), f"{seed}:relevant:{queries.id(row)}")
            all_of_it = np.sort(all_of_it[order[:limit]])
        kept.append(all_of_it)
    return lay_end_to_end(kept)


def make_negatives(
    run: Iterable[Candidate] | None, relevant: Ragged, queries: Texts, documents: Texts, most: int, seed: int
) -> Ragged:
    """The negatives of each query: from the run where it names any, else from BM25."""
    given = _from_run(run, relevant, queries, documents, most) if run is not None else {}
    bare = np.array([row for row in range(len(queries)) if not len(given.get(row, ()))], np.int64)
    if len(bare):
        given |= _from_bm25(bare, relevant, queries, documents, most, seed)
    return lay_end_to_end(given[row] for row in range(len(queries)))


def _from_run(
    run: Iterable[Candidate], relevant: Ragged, queries: Texts, documents: Texts, most: int
) -> dict[int, NDArray[np.integer]]:
    """The first documents of each query's run that are not relevant to it."""
    keys, values = [], []
    for batch in batched(run, PAIRS_A_BATCH):
        query = queries.find(pa.array([candidate.query for candidate in batch], pa.string()))
        known = query >= 0  # queries that are not in use have no list
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
    """The best documents by BM25 that are not relevant; drawn ones where too few match."""
    width = most + int(relevant.counts[rows].max())
    best = Bm25.over(documents).best(queries.texts(rows), width)
    return {
        row: _filled(_without(found, relevant[row])[:most], relevant[row], most, len(documents), f"{seed}:{id}")
        for row, id, (found, _) in zip(rows.tolist(), queries.ids(rows), best, strict=True)
    }


def _without(rows: NDArray[np.integer], relevant: NDArray[np.integer]) -> NDArray[np.integer]:
    _, first = np.unique(rows, return_index=True)
    rows = rows[np.sort(first)]
    return rows[~np.isin(rows, relevant)]


def _filled(
    found: NDArray[np.integer], relevant: NDArray[np.integer], most: int, size: int, salt: str
) -> NDArray[np.integer]:
    missing = min(most, size - len(relevant)) - len(found)
    if missing <= 0:
        return found
    generator = np.random.default_rng(list(hashlib.sha256(salt.encode()).digest()))
    taken = set(found.tolist()) | set(relevant.tolist())
    drawn: list[int] = []
    while len(drawn) < missing:
        if size < 4 * (len(taken) + missing):  # dense: draw from what is left
            left = np.setdiff1d(np.arange(size), np.fromiter(taken, np.int64))
            drawn += generator.permutation(left)[: missing - len(drawn)].tolist()
        elif (candidate := int(generator.integers(size))) not in taken:
            taken.add(candidate)
            drawn.append(candidate)
    return np.concatenate([found, np.array(drawn, np.int64)])
