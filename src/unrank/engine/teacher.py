"""The teacher: a frozen ranker, usually the original, that scores each pair once, when it is first asked for it.

With a cache, each pair is scored once for all jobs on the same device. The cache names the scores by a hash of
everything that they depend on.
"""

from __future__ import annotations

import copy
import hashlib
import zlib
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import NO_PAIRS
from unrank.collection.texts import Rows
from unrank.disk import file_hashes
from unrank.engine.checkpoint import Cache
from unrank.engine.runtime import Runtime
from unrank.engine.scoring import scores_of
from unrank.engine.tokens import TokenStore
from unrank.rankers.base import Ranker
from unrank.rankers.saved_files import saved_files

Scores = NDArray[np.float32]
MIN_RANGE = 1e-3
"""The range of a list whose scores are all equal: a loss divides by it."""


class TeacherScores(NamedTuple):
    """The scores of pairs, and for each the lowest score and the range of its query's list."""

    score: Scores
    list_min: Scores
    list_range: Scores


class Teacher:
    """The scores of all pairs that were asked for so far, and the ranges of their lists."""

    def __init__(
        self, ranker: Ranker, collection: Collection, store: TokenStore, runtime: Runtime, cache: Cache | None = None
    ) -> None:
        self.ranker, self._collection, self._store, self._runtime = ranker, collection, store, runtime
        self._cache = cache if cache and cache.scores and not store.would_keep_vectors(ranker) else None
        self._lists: Callable[[Rows], Pairs] = collection.list_pairs
        self._min, self._range = _Known(), _Known()
        self._held, self._held_pairs, self._shift = _Known(), NO_PAIRS, _Known()
        self._scores = self._cached() if self._cache else _Known()
        self._known = len(self._scores)

    def _cached(self) -> _Known:
        """Return the scores of the cache, if every process has the same: the others are scored together."""
        assert self._cache is not None
        found = _Known.of(self._cache.load(self._name) or {})
        return found if self._runtime.processes.all_have(found.number) else _Known()

    @cached_property
    def _name(self) -> str:
        """The name of its scores in the cache: a hash of everything that they depend on."""
        parts = [saved_digest(self.ranker), self._runtime.name, str(self._runtime.deterministic), torch.__version__]
        made_by = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        return f"scores-{self._collection.fingerprint[:16]}-{made_by[:16]}"

    def save(self) -> None:
        """Write the scores to the cache, if there is one."""
        if self._cache and len(self._scores) > self._known:
            self._cache.save(self._name, self._scores.arrays(), self._runtime.progress.say)

    def with_lists(self, lists: Callable[[Rows], Pairs]) -> Teacher:
        """Return this teacher with other lists: `lists` gives the pairs of the lists of queries."""
        other = copy.copy(self)
        other._lists, other._min, other._range = lists, _Known(), _Known()
        return other

    def holding(self, pairs: Pairs, scores: Scores) -> Teacher:
        """Return this teacher with given scores of some pairs, by which it answers what it is asked.

        The given scores of a query are moved together to the level of its own: only their differences are held.
        """
        other = copy.copy(self)
        other._held, other._shift = _Known(), _Known()
        keys, first = np.unique(self._collection.pair_keys(pairs), return_index=True)
        other._held.add(keys, scores[first])
        other._held_pairs = pairs[first]
        return other

    def ask(self, pairs: Pairs, list_ranges: bool = True) -> TeacherScores:
        """Score pairs, and the lists of their queries.

        Without `list_ranges` no list is scored; the lowest score is then 0 and the range 1.
        """
        if not list_ranges:
            scores = self.answers(pairs)
            return TeacherScores(scores, np.zeros_like(scores), np.ones_like(scores))
        self.learn(pairs[:, 0])
        return TeacherScores(self.answers(pairs), self._min[pairs[:, 0]], self._range[pairs[:, 0]])

    def answers(self, pairs: Pairs) -> Scores:
        """Return the given scores of pairs that have one, and its own of the others."""
        keys = self._collection.pair_keys(pairs)
        held = self._held.knows(keys)
        self._level(pairs[held, 0])
        answers = np.empty(len(pairs), np.float32)
        answers[held] = self._held[keys[held]] + self._shift[pairs[held, 0]]
        answers[~held] = self.scores(pairs[~held])
        return answers

    def _level(self, queries: Rows) -> None:
        """Find how far the given scores of queries are below its own on average, unless that is done."""
        queries = np.unique(queries[~self._shift.knows(queries)])
        pairs = self._held_pairs[np.isin(self._held_pairs[:, 0], queries)]
        below = self.scores(pairs) - self._held[self._collection.pair_keys(pairs)]
        row = np.searchsorted(queries, pairs[:, 0])
        sums, counts = (np.bincount(row, weights, len(queries)) for weights in (below, None))
        self._shift.add(queries, (sums / np.maximum(counts, 1)).astype(np.float32))

    def knows(self, pairs: Pairs) -> NDArray[np.bool_]:
        """Return which pairs were scored before."""
        return self._scores.knows(self._collection.pair_keys(pairs))

    def remember(self, pairs: Pairs, scores: Scores) -> None:
        """Take scores of its ranker that were computed elsewhere."""
        keys, first = np.unique(self._collection.pair_keys(pairs), return_index=True)
        new = ~self._scores.knows(keys)
        self._scores.add(keys[new], scores[first][new])

    def scores(self, pairs: Pairs) -> Scores:
        """Return the scores of pairs. To measure the original by these also prepares the teacher."""
        keys = self._collection.pair_keys(pairs)
        new, first = np.unique(keys[~self._scores.knows(keys)], return_index=True)
        if len(new):
            unknown = pairs[~self._scores.knows(keys)][first]
            self._scores.add(new, scores_of(self.ranker, self._store, unknown, self._runtime))
        return self._scores[keys]

    def learn(self, queries: Rows) -> None:
        """Score the lists of queries, unless that is done."""
        queries = np.unique(queries[~self._min.knows(queries)])
        if not len(queries):
            return
        pairs = self._lists(queries)
        scores = self.scores(pairs)
        low, high = np.full(len(queries), np.inf, np.float32), np.full(len(queries), -np.inf, np.float32)
        place = np.searchsorted(queries, pairs[:, 0])
        np.minimum.at(low, place, scores)
        np.maximum.at(high, place, scores)
        self._min.add(queries, low)
        self._range.add(queries, np.maximum(high - low, MIN_RANGE))


def saved_digest(ranker: Ranker) -> str:
    """Return a hash of a ranker as it is saved: all that its scores depend on, beside the device and the versions."""
    hashes = saved_files(ranker)
    if hashes is None:
        with TemporaryDirectory() as folder:
            ranker.save(Path(folder) / "ranker")
            hashes = file_hashes(Path(folder) / "ranker")
    parts = [f"ranker/{name} {hashed}" for name, hashed in sorted(hashes.items())]
    return hashlib.sha256("\n".join([*parts, ranker.kind]).encode()).hexdigest()[:32]


class _Known:
    """A sorted map from keys to numbers."""

    def __init__(self) -> None:
        self._keys, self._values = np.empty(0, np.int64), np.empty(0, np.float32)

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> _Known:
        """Return a map of what `arrays` gave; an empty one if that is malformed."""
        known = cls()
        keys, values = arrays.get("keys", known._keys), arrays.get("values", known._values)
        if len(keys) == len(values) and (np.diff(keys) > 0).all() and np.isfinite(values).all():
            known._keys, known._values = keys, values
        return known

    @property
    def number(self) -> int:
        """A number that two different maps hardly share."""
        return zlib.crc32(self._values.tobytes(), zlib.crc32(self._keys.tobytes()))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"keys": self._keys, "values": self._values}

    def __len__(self) -> int:
        return len(self._keys)

    def knows(self, keys: Rows) -> NDArray[np.bool_]:
        if not len(self._keys):
            return np.zeros(len(keys), bool)
        found: NDArray[np.bool_] = self._keys[self._places(keys)] == keys
        return found

    def add(self, keys: Rows, values: Scores) -> None:
        joined = np.concatenate([self._keys, keys])
        order = np.argsort(joined, kind="stable")
        self._keys, self._values = joined[order], np.concatenate([self._values, values])[order]

    def __getitem__(self, keys: Rows) -> Scores:
        return self._values[self._places(keys)] if len(keys) else np.empty(0, np.float32)

    def _places(self, keys: Rows) -> Rows:
        return np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
