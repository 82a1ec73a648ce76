"""The task of a method: the pairs to forget and to keep, negatives to draw, and the teachers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from unrank.collection.collection import Collection, Pairs, Ragged
from unrank.collection.partition import NO_PAIRS, Partition
from unrank.collection.texts import Rows
from unrank.engine.samples import Drawn, all_present
from unrank.engine.teacher import Teacher
from unrank.errors import UnrankError

QUERIES_AT_ONCE = 16_384
KeptSet = Literal["entangled", "disjoint"]
KEPT_SETS: tuple[KeptSet, ...] = ("entangled", "disjoint")
Untrained = Literal["initial", "random"]
"""An untrained teacher: the model that training began with, or one with random weights throughout."""


class Negatives:
    """The negatives of each query. A removed document is never among them."""

    def __init__(self, collection: Collection, removed: Rows) -> None:
        self._lists = collection.negatives
        self._removed = np.zeros(len(collection.documents), bool)
        self._removed[removed] = True
        self._most: int | None = None

    def thinned(self, most: int) -> Negatives:
        """Return at most this many negatives of each query, spread evenly over its list, always the same ones."""
        fewer = copy.copy(self)
        fewer._most = most
        return fewer

    def pairs(self, queries: Rows) -> Pairs:
        """Return all negatives of queries."""
        lists = [(queries[here], self._kept(queries[here])) for here in _blocks(len(queries))]
        blocks_of_pairs = [np.stack([np.repeat(rows, kept.counts), kept.values], axis=1) for rows, kept in lists]
        return np.concatenate([np.empty((0, 2), np.int64), *blocks_of_pairs])

    def draw(self, queries: Rows, generator: np.random.Generator) -> Drawn:
        """Draw one random negative for each query."""
        where, documents, has = generator.random(len(queries)), np.zeros_like(queries), np.zeros(len(queries), bool)
        for here in _blocks(len(queries)):
            documents[here], has[here] = self._pick(queries[here], where[here])
        return np.stack([queries, documents], axis=1), has

    def are_left(self, queries: Rows) -> bool:
        """Return whether any of the queries has a negative."""
        return any(len(self._kept(queries[here]).values) for here in _blocks(len(queries)))

    def _pick(self, queries: Rows, where: NDArray[np.float64]) -> tuple[Rows, NDArray[np.bool_]]:
        """Return for each query the negative at a place of its list, as a share of its length."""
        unique, place = np.unique(queries, return_inverse=True)
        lists = self._kept(unique)
        counts = lists.counts[place]
        pick = lists.offsets[place] + np.floor(where * counts).astype(np.int64)
        has = counts > 0
        documents = lists.values[np.where(has, pick, 0)] if len(lists.values) else np.zeros_like(queries)
        return documents.astype(np.int64), has

    def _kept(self, queries: Rows) -> Ragged:
        """Return the lists of queries without removed documents."""
        documents = self._lists.pairs(queries)[:, 1].astype(np.int32)
        offsets = np.concatenate([[0], np.cumsum(self._lists.counts[queries])])
        kept = _select(Ragged(offsets, documents), ~self._removed[documents])
        if self._most is None:
            return kept
        counts = np.repeat(kept.counts, kept.counts)
        place = np.arange(len(kept.values)) - np.repeat(kept.offsets[:-1], kept.counts)
        spread = (place + 1) * self._most // counts > place * self._most // counts
        return _select(kept, (counts <= self._most) | spread)


class HardNegatives:
    """The negatives of some queries that a teacher scores highest."""

    def __init__(self, pairs: Pairs, teacher: Teacher, most: int, given: Pairs = NO_PAIRS) -> None:
        """Choose the highest negatives of each query, at most this many, from pairs of queries and negatives.

        `given` are negatives of other queries, which are not chosen from.
        """
        highest_first = pairs[np.lexsort((-teacher.scores(pairs), pairs[:, 0]))]
        both = np.concatenate([highest_first, given])
        self._pairs = both[np.argsort(both[:, 0], kind="stable")]
        self._queries, self._starts, counts = np.unique(self._pairs[:, 0], return_index=True, return_counts=True)
        self._counts = np.minimum(counts, most)

    def draw(self, queries: Rows, generator: np.random.Generator) -> Drawn:
        """Draw one of them for each query at random."""
        row = np.minimum(np.searchsorted(self._queries, queries), max(0, len(self._queries) - 1))
        has = self._queries[row] == queries if len(self._queries) else np.zeros(len(queries), bool)
        chosen, row = np.stack([queries, np.zeros_like(queries)], axis=1), row[has]
        pick = np.floor(generator.random(len(queries))[has] * self._counts[row]).astype(np.int64)
        chosen[has] = self._pairs[self._starts[row] + pick]
        return chosen, has


def _select(lists: Ragged, chosen: NDArray[np.bool_]) -> Ragged:
    """Return lists with the chosen values only."""
    return Ragged(np.concatenate([[0], np.cumsum(chosen)])[lists.offsets], lists.values[chosen])


def are_in(pairs: Pairs, others: Pairs) -> NDArray[np.bool_]:
    """Return which pairs are among the others."""
    width = 1 + max(rows.max(initial=0) for rows in (pairs[:, 1], others[:, 1]))
    keys, theirs = (rows[:, 0] * width + rows[:, 1] for rows in (pairs, others))
    found: NDArray[np.bool_] = np.isin(keys, theirs)
    return found


def _blocks(size: int) -> Iterator[slice]:
    """Yield slices of queries whose lists fit well into memory."""
    return (slice(start, start + QUERIES_AT_ONCE) for start in range(0, size, QUERIES_AT_ONCE))


def no_base(which: Untrained) -> Teacher:
    """Refuse to make an untrained teacher."""
    raise UnrankError("the model that training began with is not known: name it with --base")


AWAY = 0.02
"""The distance of a reciprocal rank from that of its place from which on a pair is away from it."""


@dataclass(frozen=True)
class EarlierPlaces:
    """The places of pairs that were forgotten before, in the order of `partition.previous`."""

    scores: NDArray[np.float32]
    """The score of each place; NaN if a pair has none."""
    ranks: Rows
    """The rank of each place; 0 if a pair has none."""
    away: NDArray[np.bool_]
    """The pairs that are away from their places. It changes after each epoch."""
    requests: Rows
    """The number of the request that each pair is of."""
    before: float = 0.0
    """How far requests were from their places when the run began."""

    @classmethod
    def of(cls, there: NDArray[np.bool_], scores: NDArray[np.float32], ranks: Rows, requests: Rows) -> EarlierPlaces:
        """Return the places of the pairs that have one."""
        size = len(there)
        nowhere = np.full(size, np.nan, np.float32)
        made = cls(nowhere, np.zeros(size, np.int64), np.zeros(size, bool), np.zeros(size, np.int64))
        made.scores[there], made.ranks[there], made.requests[there] = scores, ranks, requests
        return made

    def mark(self, ranks: Rows) -> None:
        """Mark the pairs that are away from their places, by the ranks of those that have one."""
        self.away[self.ranks > 0] = self._distances(ranks) > AWAY

    def distance(self, ranks: Rows) -> float:
        """Return how far requests are from their places, with these ranks: the sum over those that are away."""
        _, number = np.unique(self.requests[self.ranks > 0], return_inverse=True)
        means = np.bincount(number, self._distances(ranks)) / np.bincount(number)
        return float(means[means > AWAY].sum())

    def _distances(self, ranks: Rows) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.abs(1 / ranks - 1 / self.ranks[self.ranks > 0])
        return found


@dataclass(frozen=True)
class Task:
    """Everything that a method may use. Test queries are out of reach."""

    partition: Partition
    negatives: Negatives
    teacher: Teacher
    """The original."""
    untrained: Callable[[Untrained], Teacher] = no_base
    """Makes an untrained teacher."""
    wanted: NDArray[np.float32] | None = None
    """The score that each forget pair is pulled to, in the order of the partition; `None`: the lowest of its list."""
    pulls_up: bool = False
    """Whether a forget pair that is below its wanted score is pulled up to it."""
    anchors: Pairs = field(default_factory=lambda: NO_PAIRS)
    """Kept pairs that the teacher gives the first original's scores of; it is another ranker after a first request."""
    anchor_negatives: Pairs = field(default_factory=lambda: NO_PAIRS)
    """Negatives of their queries, which it gives the first original's scores of too."""
    earlier_places: EarlierPlaces | None = None
    """`None` if no pair that was forgotten before has a place."""

    def draw_kept(self, size: int, generator: np.random.Generator, sets: Sequence[KeptSet] = KEPT_SETS) -> Drawn:
        """Draw kept pairs at random, from these sets. If the sets are empty, no sample has one."""
        kept = self.kept(sets)
        if not len(kept):
            return np.zeros((size, 2), np.int64), np.zeros(size, bool)
        return all_present(kept[generator.integers(len(kept), size=size)])

    def kept(self, sets: Sequence[KeptSet] = KEPT_SETS) -> Pairs:
        """Return the kept pairs of some sets."""
        return np.concatenate([np.empty((0, 2), np.int64), *(getattr(self.partition, name) for name in sets)])

    def limit_disjoint(self, most: int) -> Task:
        """Return this task with at most this many disjoint pairs, always the same ones; half of them anchors, if any.

        So the cost of a small request does not grow with the collection.
        """
        disjoint, generator = self.partition.disjoint, np.random.default_rng(0)
        if len(disjoint) <= most:
            return self
        anchored = are_in(disjoint, self.anchors)
        held, others = np.flatnonzero(anchored), np.flatnonzero(~anchored)
        number = min(len(held), max(most // 2, most - len(others)))
        chosen = generator.choice(others, most - number, replace=False)
        chosen = np.concatenate([chosen, generator.permutation(held)[:number]])
        return replace(self, partition=replace(self.partition, disjoint=disjoint[np.sort(chosen)]))

    def limit_negatives(self, most: int) -> Task:
        """Return this task with at most this many negatives of each query, so that the teacher has less to score."""
        negatives = self.negatives.thinned(most)
        parts = self.partition
        relevant = np.concatenate([parts.forget, parts.retain, parts.previous, parts.risen, parts.reserved])

        def lists(queries: Rows) -> Pairs:
            return np.concatenate([relevant[np.isin(relevant[:, 0], queries)], negatives.pairs(queries)])

        return replace(self, negatives=negatives, teacher=self.teacher.with_lists(lists))
