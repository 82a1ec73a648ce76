"""The forget MRR of a student, measured or estimated.

To measure it is to score every candidate of every forget query, which costs more than the steps between two checks.
While a run is far from its target, or looks for it, an estimate does: some of the queries, each with the candidates
that the original ranks highest. What the last measurement differed by from its own estimate is added to the next. Once
measured, weights nearby are measured by what is likely to have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
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
    """What a gauge has a student read each time: pairs, or texts where they are encoded apart."""

    whole: int
    estimate: int
    again: int
    """A measurement not far from the last one."""

    @classmethod
    def of(cls, lists: Pairs, forget: Pairs, encoded: Sequence[int]) -> Effort:
        """`lists` as a judge gives them. What would save little is not done: then it is the whole."""
        rows, queries = rows_of_some_queries(lists, forget), len(np.unique(forget[:, 0]))
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
    """Told once what the original scores; asked again and again what the student measures."""

    def __init__(self, evaluator: Evaluator, original: Scorer, student: Scorer, encoded: Sequence[int] = ()) -> None:
        """`encoded` are the sides of a pair (0 the query, 1 the document) that the student encodes apart, each text
        once: to ask it for fewer pairs of the same texts saves nothing. One without such sides reads every pair."""
        self._judge, self._student = evaluator, student
        self._pairs, forget = evaluator.forget_lists(), evaluator.partition.forget
        self._measured: Rescoring | None = None
        effort = Effort.of(self._pairs, forget, encoded)
        self._again_costs_less = effort.again < effort.whole
        self.exact = effort.estimate == effort.whole
        """Whether an estimate is a measurement."""
        self.apart = 0.0
        """How far the last measurement was from its own estimate."""
        if not self.exact:
            rows = rows_of_some_queries(self._pairs, forget)
            scores = original(self._pairs[rows])
            telling = telling_rows(self._pairs[rows], scores, rows < len(forget))
            self._part = rows[telling]
            self._below_all = below_all(round((len(self._pairs) - len(forget)) / len(np.unique(forget[:, 0]))))
            self._at_first = self._mean_of_part(scores[telling])

    def begin(self, measured: float) -> None:
        """What the original measures."""
        self.apart = 0.0 if self.exact else measured - self._at_first

    def measure(self) -> float:
        scores = self._student(self._pairs)
        self._measured = Rescoring(self._pairs, len(self._judge.partition.forget), scores)
        return self._mean_of_all(scores)

    def measure_again(self) -> float:
        """The same of weights not far from those that were measured last."""
        if self._measured is None or not self._again_costs_less:
            return self.measure()
        return self._mean_of_all(self._measured.now(self._student))

    def go_far(self) -> None:
        """Weights come that what was measured last tells nothing of."""
        self._measured = None

    def _mean_of_all(self, scores: Scores) -> float:
        whole = float(self._judge.forget_ranks(self._pairs, scores).mean())
        if not self.exact:
            self.apart = whole - self._mean_of_part(scores[self._part])
        return whole

    def estimate(self) -> float:
        if self.exact:
            return self.measure()
        return float(np.clip(self._mean_of_part(self._student(self._pairs[self._part])) + self.apart, 0, 1))

    def _mean_of_part(self, scores: Scores) -> float:
        ranks = self._judge.forget_ranks(self._pairs[self._part], scores)
        return float(np.where(ranks * (CANDIDATES + 1) > 1, ranks, np.minimum(ranks, self._below_all)).mean())


def to_read(pairs: Pairs, encoded: Sequence[int], most: int | None = None) -> int:
    """What it takes to score pairs, or so many of them at most: pairs that are read, or texts that are encoded."""
    if not encoded:
        return len(pairs) if most is None else min(most, len(pairs))
    texts = [len(np.unique(pairs[:, side])) for side in encoded]
    return sum(texts if most is None else [min(most, number) for number in texts])


def below_all(negatives: int) -> float:
    """What a document that stands below the candidates that are looked at counts on average, wherever it stands among
    so many negatives.

    >>> round(below_all(100), 4), below_all(12) == 1 / 13
    (0.0235, True)
    """
    return float(np.mean(1 / np.arange(min(CANDIDATES, negatives) + 1, negatives + 2)))


def rows_of_some_queries(pairs: Pairs, forget: Pairs) -> Rows:
    """Where the lists of some forget queries stand: of all, if there are few."""
    chosen = np.random.default_rng(0).permutation(np.unique(forget[:, 0]))[:QUERIES]
    return np.flatnonzero(np.isin(pairs[:, 0], chosen))


def telling_rows(pairs: Pairs, scores: Scores, is_forget: NDArray[np.bool_]) -> Rows:
    """The forget pairs, and of the other candidates of each query those with the highest scores."""
    others = np.flatnonzero(~is_forget)
    others = others[np.lexsort((-scores[others], pairs[others, 0]))]
    _, first, count = np.unique(pairs[others, 0], return_index=True, return_counts=True)
    place = np.arange(len(others)) - np.repeat(first, count)
    return np.sort(np.concatenate([np.flatnonzero(is_forget), others[place < CANDIDATES]]))


@dataclass(frozen=True)
class Rescoring:
    """Lists as they were scored once. The first `forget` pairs are the forget pairs."""

    pairs: Pairs
    forget: int
    scores: Scores

    def now(self, score: Scorer) -> Scores:
        """What `score` gives for all of them, asked for no more than is likely to matter."""
        others = np.arange(self.forget, len(self.pairs))
        _, query = np.unique(self.pairs[:, 0], return_inverse=True)
        asked = np.concatenate([np.arange(self.forget), others[self._telling(query)]])
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

    def _telling(self, query: Rows) -> Rows:
        """Of the candidates of each query those whose scores lay nearest to its best forget pair's, and every so many
        of the others, the farthest first."""
        queries, scores = query[self.forget :], self.scores[self.forget :]
        order = np.lexsort((np.abs(scores - best_of(query, self.scores, self.forget)[queries]), queries))
        size = np.bincount(queries, minlength=query.max() + 1)[queries[order]]
        place = np.arange(len(order)) - np.searchsorted(queries[order], queries[order])
        turn, too_few = np.divmod(size - 1 - place, np.maximum(1, (size - NEAREST) // SPREAD))
        return np.sort(order[(place < NEAREST) | (turn < SPREAD) & (too_few == 0)])


def best_of(query: Rows, scores: Scores, forget: int) -> Scores:
    """The highest score of a forget pair, query by query."""
    best = np.full(query.max() + 1, -np.inf, np.float32)
    np.maximum.at(best, query[:forget], scores[:forget])
    return best
