"""The teacher: the frozen original, which scores each pair once, when it is first asked for it.

With a cache, once for all jobs on the same kind of device: there what it said is found under a hash of all that it is.
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
from unrank.collection.texts import Rows
from unrank.disk import sha256
from unrank.engine.checkpoint import Cache
from unrank.engine.runtime import Runtime
from unrank.engine.scoring import scores_of
from unrank.engine.tokens import TokenStore
from unrank.rankers.base import Ranker

Scores = NDArray[np.float32]
LEAST_SPAN = 1e-3
"""A query whose candidates all score alike still has a range to divide by."""


class View(NamedTuple):
    """What the teacher says of pairs: their score, and the lowest score and the range of their query's list."""

    score: Scores
    low: Scores
    span: Scores


class Teacher:
    """Scores of all pairs asked for so far, and the ranges of the lists that they stand in."""

    def __init__(
        self, ranker: Ranker, collection: Collection, store: TokenStore, runtime: Runtime, cache: Cache | None = None
    ) -> None:
        self._ranker, self._collection, self._store, self._runtime = ranker, collection, store, runtime
        self._cache = cache if cache and cache.scores else None
        self._lists: Callable[[Rows], Pairs] = collection.list_pairs
        self._low, self._span = _Known(), _Known()
        self._scores = self._kept() if self._cache else _Known()
        self._known = len(self._scores)

    def _kept(self) -> _Known:
        """What was kept of it, if every process has the same of it: they score together what is not known."""
        assert self._cache is not None
        found = _Known.of(self._cache.load(self._name) or {})
        return found if self._runtime.processes.all_have(found.number) else _Known()

    @cached_property
    def _name(self) -> str:
        """What its scores are kept under: all that they depend on."""
        with TemporaryDirectory() as folder:
            self._ranker.save(Path(folder) / "ranker")
            files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
            parts = [f"{path.relative_to(folder)} {sha256(path)}" for path in files]
        parts += [self._ranker.kind, self._runtime.name, str(self._runtime.deterministic), torch.__version__]
        made_by = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        return f"scores-{self._collection.fingerprint[:16]}-{made_by[:16]}"

    def save(self) -> None:
        """Leave in the cache, if there is one, what it has said."""
        if self._cache and len(self._scores) > self._known:
            self._cache.save(self._name, self._scores.arrays(), self._runtime.progress.say)

    def looking_at(self, lists: Callable[[Rows], Pairs]) -> Teacher:
        """The same teacher, to whom the list of a query is these pairs and no others."""
        other = copy.copy(self)
        other._lists, other._low, other._span = lists, _Known(), _Known()
        return other

    def __call__(self, pairs: Pairs) -> View:
        """What the teacher says of pairs."""
        self.learn(pairs[:, 0])
        return View(self.scores(pairs), self._low[pairs[:, 0]], self._span[pairs[:, 0]])

    def of_pairs(self, pairs: Pairs) -> View:
        """The same for who asks for scores alone, of pairs that stand in no list of theirs."""
        scores = self.scores(pairs)
        return View(scores, np.zeros_like(scores), np.ones_like(scores))

    def scores(self, pairs: Pairs) -> Scores:
        """Their scores alone: who measures the original with these has told the teacher what it needs."""
        keys = self._collection.pair_keys(pairs)
        new, first = np.unique(keys[~self._scores.knows(keys)], return_index=True)
        if len(new):
            unknown = pairs[~self._scores.knows(keys)][first]
            self._scores.add(new, scores_of(self._ranker, self._store, unknown, self._runtime))
        return self._scores[keys]

    def learn(self, queries: Rows) -> None:
        """Look at the lists of these queries, as far as that has not been done."""
        queries = np.unique(queries[~self._low.knows(queries)])
        if not len(queries):
            return
        pairs = self._lists(queries)
        scores = self.scores(pairs)
        low, high = np.full(len(queries), np.inf, np.float32), np.full(len(queries), -np.inf, np.float32)
        place = np.searchsorted(queries, pairs[:, 0])
        np.minimum.at(low, place, scores)
        np.maximum.at(high, place, scores)
        self._low.add(queries, low)
        self._span.add(queries, np.maximum(high - low, LEAST_SPAN))


class _Known:
    """A number for each key that was added."""

    def __init__(self) -> None:
        self._keys, self._values = np.empty(0, np.int64), np.empty(0, np.float32)

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> _Known:
        """What `arrays` gave, or nothing where it cannot be that."""
        known = cls()
        keys, values = arrays.get("keys", known._keys), arrays.get("values", known._values)
        if len(keys) == len(values) and (np.diff(keys) > 0).all() and np.isfinite(values).all():
            known._keys, known._values = keys, values
        return known

    @property
    def number(self) -> int:
        """One that others hardly have."""
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
