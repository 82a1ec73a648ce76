"""The teacher: the frozen original, whose scores are computed once a query, when they are first needed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unrank.collection.collection import Collection, Pairs
from unrank.collection.texts import Rows
from unrank.engine.runtime import Runtime
from unrank.engine.scoring import scores_of
from unrank.engine.tokens import TokenStore
from unrank.rankers.base import Ranker

LEAST_SPAN = 1e-3
"""A query whose candidates all score alike still has a range to divide by."""


class View(NamedTuple):
    """What the teacher says of pairs: their score, and the lowest score and the range of their query's list."""

    score: NDArray[np.float32]
    low: NDArray[np.float32]
    span: NDArray[np.float32]


class Teacher:
    """Scores of the lists of all queries asked for so far."""

    def __init__(self, ranker: Ranker, collection: Collection, store: TokenStore, runtime: Runtime) -> None:
        self._ranker, self._collection, self._store, self._runtime = ranker, collection, store, runtime
        self._keys = np.empty(0, np.int64)
        self._scores = np.empty(0, np.float32)
        self._queries = np.empty(0, np.int64)
        self._low = np.empty(0, np.float32)
        self._span = np.empty(0, np.float32)

    def __call__(self, pairs: Pairs) -> View:
        """What the teacher says of pairs that stand in their queries' lists."""
        self.learn(pairs[:, 0])
        place = np.searchsorted(self._keys, self._collection.pair_keys(pairs))
        query = np.searchsorted(self._queries, pairs[:, 0])
        return View(self._scores[place], self._low[query], self._span[query])

    def scores(self, pairs: Pairs) -> NDArray[np.float32]:
        """Their scores alone: who measures the original with these has told the teacher all it needs."""
        return self(pairs).score

    def learn(self, queries: Rows) -> None:
        """Score the lists of these queries, as far as that has not been done."""
        queries = np.setdiff1d(queries, self._queries)
        if not len(queries):
            return
        pairs = self._collection.list_pairs(queries)
        scores = scores_of(self._ranker, self._store, pairs, self._runtime)
        low, high = np.full(len(queries), np.inf, np.float32), np.full(len(queries), -np.inf, np.float32)
        place = np.searchsorted(queries, pairs[:, 0])
        np.minimum.at(low, place, scores)
        np.maximum.at(high, place, scores)
        self._keys, self._scores = _merge(self._keys, self._collection.pair_keys(pairs), self._scores, scores)
        known = self._queries
        self._queries, self._low = _merge(known, queries, self._low, low)
        _, self._span = _merge(known, queries, self._span, np.maximum(high - low, LEAST_SPAN))


def _merge(
    keys: NDArray[np.int64], new_keys: NDArray[np.int64], values: NDArray[np.float32], new_values: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    joined = np.concatenate([keys, new_keys])
    order = np.argsort(joined, kind="stable")
    return joined[order], np.concatenate([values, new_values])[order]
