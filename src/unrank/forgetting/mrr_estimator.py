"""The forget MRR of a student, measured or estimated.

A measurement scores every candidate of every forget query, which costs more than the steps between two checks. Far
from the target an estimate is enough: some of the queries, each with the candidates that the original ranks highest.
The error of the last estimate corrects the next ones. After a measurement, nearby weights are measured again by scoring
only the candidates that are likely to have changed sides. The end of a run is always measured in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
from unrank.evaluation.measure import Floats, ranks_among
from unrank.evaluation.scorecard import Evaluator, Scorer

Scores = NDArray[np.float32]
QUERIES = 256
CANDIDATES = 12
WORTH = 0.5
"""An estimate that costs more than this share of a measurement is replaced by a measurement."""
NEAREST, SPREAD = 6, 4
"""The candidates of a query that show how its others have moved: the nearest to the best forget pair, and some spread
over its list."""
SAFELY = 2.0
"""A candidate may have moved this many times as far from its query's mean as any candidate that was scored."""
FEW = 64
"""With fewer queries than this a sample shows too little."""


@dataclass(frozen=True)
class Effort:
    """The pairs that a student must read each time, or the texts if queries and documents are encoded on their own."""

    whole: int
    estimate: int
    again: int
    """A measurement not far from the last one."""

    @classmethod
    def of(cls, lists: Pairs, forget: Pairs, encoded: Sequence[int]) -> Effort:
        """Count what `forget_lists` of an evaluator need. An estimate that saves little counts as a measurement."""
        rows, queries = sampled_rows(lists, forget), len(np.unique(forget[:, 0]))
        some = int(np.count_nonzero(rows < len(forget))) + CANDIDATES * len(np.unique(lists[rows, 0]))
        whole = to_read(lists, encoded)
        estimate = to_read(lists[rows], encoded, most=some)
        again = to_read(lists, encoded, most=len(forget) + (NEAREST + SPREAD) * queries)
        return cls(
            whole,
            estimate if estimate <= WORTH * whole else whole,
            again if queries >= FEW and again <= WORTH * whole else whole,
        )


class MrrEstimator:
    """Measures and estimates the forget MRR of a student, starting from the original's scores."""

    def __init__(self, evaluator: Evaluator, original: Scorer, student: Scorer, encoded: Sequence[int] = ()) -> None:
        """Choose the pairs of an estimate.

        `encoded` are the sides of a pair (0 the query, 1 the document) whose texts the student encodes once each: fewer
        pairs of the same texts save nothing. Without such sides it reads every pair.
        """
        self._evaluator, self._student = evaluator, student
        self._pairs, forget = evaluator.forget_lists(), evaluator.partition.forget
        self._measured: LastMeasurement | None = None
        self.last: tuple[Pairs, Scores] = self._pairs[:0], np.empty(0, np.float32)
        """The pairs that were scored last, and their scores."""
        effort = Effort.of(self._pairs, forget, encoded)
        self._again_costs_less = effort.again < effort.whole
        self.exact = effort.estimate == effort.whole
        """Whether every estimate is a measurement."""
        self.apart = 0.0
        """The last measurement minus its own estimate."""
        if not self.exact:
            rows = sampled_rows(self._pairs, forget)
            scores = original(self._pairs[rows])
            chosen = highest_rows(self._pairs[rows], scores, rows < len(forget))
            self._part = rows[chosen]
            self._below_all = below_all(round((len(self._pairs) - len(forget)) / len(np.unique(forget[:, 0]))))
            self._at_first = self._mean_of_part(scores[chosen])

    def begin(self, measured: float) -> None:
        """Set the forget MRR of the original."""
        self.apart = 0.0 if self.exact else measured - self._at_first

    @property
    def queries(self) -> Rows:
        """The forget queries whose lists every estimate scores."""
        return np.unique(self._pairs[:, 0] if self.exact else self._pairs[self._part, 0])

    def measure(self) -> float:
        scores = self._student(self._pairs)
        self.last = self._pairs, scores
        self._measured = LastMeasurement(self._pairs, len(self._evaluator.partition.forget), scores)
        return self._mean_of_all(scores)

    def measure_again(self) -> float:
        """Return the forget MRR of weights not far from the last measured ones."""
        if self._measured is None or not self._again_costs_less:
            return self.measure()
        return self._mean_of_all(self._measured.now(self._student))

    def pair_ranks(self) -> Rows:
        """Return the rank of each forget pair at the last measurement."""
        assert self._measured is not None
        return self._measured.pair_ranks

    def go_far(self) -> None:
        """Drop the last measurement: the next weights are far from it."""
        self._measured = None

    def _mean_of_all(self, scores: Scores) -> float:
        whole = float(self._evaluator.forget_ranks(self._pairs, scores).mean())
        if not self.exact:
            self.apart = whole - self._mean_of_part(scores[self._part])
        return whole

    def estimate(self) -> float:
        if self.exact:
            return self.measure()
        pairs = self._pairs[self._part]
        scores = self._student(pairs)
        self.last = pairs, scores
        return float(np.clip(self._mean_of_part(scores) + self.apart, 0, 1))

    def estimate_distance(self, wanted: Floats) -> float:
        """Return the mean distance of the sampled queries' reciprocal ranks, at the last estimate, from wanted ones.

        `wanted` are those of all forget queries, in their order.
        """
        queries, forget = np.unique(self._pairs[self._part, 0]), self._evaluator.partition.forget
        wanted = wanted[np.searchsorted(np.unique(forget[:, 0]), queries)]
        return float(np.abs(self._reciprocals - self._without_order_below(wanted)).mean())

    def _mean_of_part(self, scores: Scores) -> float:
        ranks = self._evaluator.forget_ranks(self._pairs[self._part], scores)
        self._reciprocals = self._without_order_below(ranks)
        return float(self._reciprocals.mean())

    def _without_order_below(self, reciprocals: Floats) -> Floats:
        """Return reciprocal ranks, with one value for all ranks below the scored candidates."""
        return np.where(reciprocals * (CANDIDATES + 1) > 1, reciprocals, np.minimum(reciprocals, self._below_all))


def to_read(pairs: Pairs, encoded: Sequence[int], most: int | None = None) -> int:
    """Return the number of pairs to read or of texts to encode, for all pairs or for at most `most` of them."""
    if not encoded:
        return len(pairs) if most is None else min(most, len(pairs))
    texts = [len(np.unique(pairs[:, side])) for side in encoded]
    return sum(texts if most is None else [min(most, number) for number in texts])


def below_all(negatives: int) -> float:
    """Return the mean reciprocal rank of a document below the scored candidates, at any rank among the negatives.

    >>> round(below_all(100), 4), below_all(12) == 1 / 13
    (0.0235, True)
    """
    return float(np.mean(1 / np.arange(min(CANDIDATES, negatives) + 1, negatives + 2)))


def sampled_rows(pairs: Pairs, forget: Pairs) -> Rows:
    """Return the rows of the lists of a sample of the forget queries; of all, if there are few."""
    chosen = np.random.default_rng(0).permutation(np.unique(forget[:, 0]))[:QUERIES]
    return np.flatnonzero(np.isin(pairs[:, 0], chosen))


def highest_rows(pairs: Pairs, scores: Scores, is_forget: NDArray[np.bool_]) -> Rows:
    """Return the rows of the forget pairs, and of each query's other candidates with the highest scores."""
    others = np.flatnonzero(~is_forget)
    others = others[np.lexsort((-scores[others], pairs[others, 0]))]
    _, first, count = np.unique(pairs[others, 0], return_index=True, return_counts=True)
    place = np.arange(len(others)) - np.repeat(first, count)
    return np.sort(np.concatenate([np.flatnonzero(is_forget), others[place < CANDIDATES]]))


@dataclass(frozen=True)
class LastMeasurement:
    """Forget lists with their scores, to be scored again after the ranker has moved a little.

    The forget MRR depends on how many candidates are above the best forget pair. So the forget pairs are scored again,
    the candidates nearest to the best of them, and a sample of the others. The sample shows how far the rest may have
    moved, and every candidate that may have changed sides is scored too. The rest is moved by its query's mean. The
    first `forget` pairs are the forget pairs.
    """

    pairs: Pairs
    forget: int
    scores: Scores

    @property
    def pair_ranks(self) -> Rows:
        """The rank of each forget pair among the negatives of its query."""
        own, others = slice(self.forget), slice(self.forget, None)
        return ranks_among(self.pairs[own], self.scores[own], self.pairs[others], self.scores[others])

    def now(self, score: Scorer) -> Scores:
        """Return the scores now, scoring only the pairs that are likely to matter."""
        others = np.arange(self.forget, len(self.pairs))
        _, query = np.unique(self.pairs[:, 0], return_inverse=True)
        asked = np.concatenate([np.arange(self.forget), others[self._sampled(query)]])
        values = self.scores.copy()
        values[asked] = score(self.pairs[asked])
        moved, seen = values - self.scores, asked[self.forget :]
        shift = np.bincount(query[seen], moved[seen]) / np.maximum(1, np.bincount(query[seen]))
        rest = np.setdiff1d(others, seen, assume_unique=True)
        values[rest] += shift[query[rest]].astype(np.float32)
        furthest = SAFELY * float(np.abs(moved[seen] - shift[query[seen]]).max(initial=0.0))
        may_have_crossed = rest[np.abs(values[rest] - best_of(query, values, self.forget)[query[rest]]) <= furthest]
        if len(may_have_crossed):
            values[may_have_crossed] = score(self.pairs[may_have_crossed])
        return values

    def _sampled(self, query: Rows) -> Rows:
        """Return the candidates of each query nearest to its best forget pair, and a spread of the others."""
        queries, scores = query[self.forget :], self.scores[self.forget :]
        order = np.lexsort((np.abs(scores - best_of(query, self.scores, self.forget)[queries]), queries))
        size = np.bincount(queries, minlength=query.max() + 1)[queries[order]]
        place = np.arange(len(order)) - np.searchsorted(queries[order], queries[order])
        turn, too_few = np.divmod(size - 1 - place, np.maximum(1, (size - NEAREST) // SPREAD))
        return np.sort(order[(place < NEAREST) | (turn < SPREAD) & (too_few == 0)])


def best_of(query: Rows, scores: Scores, forget: int) -> Scores:
    """Return the highest score of a forget pair of each query."""
    best = np.full(query.max() + 1, -np.inf, np.float32)
    np.maximum.at(best, query[:forget], scores[:forget])
    return best
