"""The forget MRR of a student, measured or estimated.

To measure it is to score every candidate of every forget query, which costs more than the steps between two checks.
While a run is far from its target, or looks for it, an estimate does: each query with the candidates that the original
ranks highest, and if there are very many queries, some of them. What the last measurement differed by from its own estimate is added to the next.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
from unrank.evaluation.scorecard import Judge, Scorer

Scores = NDArray[np.float32]
QUERIES = 2_048
CANDIDATES = 12
WORTH = 0.5
"""Where an estimate would take more of a measurement's scores than this, there is none."""


class Gauge:
    """Told once what the original scores; asked again and again what the student measures."""

    def __init__(self, judge: Judge, original: Scorer, student: Scorer) -> None:
        self._judge, self._student = judge, student
        self._pairs = judge.forget_lists()
        scores = original(self._pairs)
        self._part = telling_rows(self._pairs, scores, judge.parts.forget)
        self.exact = len(self._part) > WORTH * len(self._pairs)
        """Whether an estimate is a measurement."""
        self.apart = 0.0
        """How far the last measurement was from its own estimate."""
        self._learn(scores)

    def measure(self) -> float:
        return self._learn(self._student(self._pairs))

    def estimate(self) -> float:
        if self.exact:
            return self.measure()
        part = self._pairs[self._part]
        return float(np.clip(self._mean(part, self._student(part)) + self.apart, 0, 1))

    def _learn(self, scores: Scores) -> float:
        whole = self._mean(self._pairs, scores)
        self.apart = whole - self._mean(self._pairs[self._part], scores[self._part])
        return whole

    def _mean(self, pairs: Pairs, scores: Scores) -> float:
        return float(self._judge.forget_ranks(pairs, scores).mean())


def telling_rows(pairs: Pairs, scores: Scores, forget: Pairs) -> Rows:
    """The rows of some queries' lists: their forget pairs, which come first, and of the others those with the highest
    scores."""
    queries = np.unique(forget[:, 0])
    chosen = np.random.default_rng(0).permutation(queries)[:QUERIES]
    rows = np.flatnonzero(np.isin(pairs[:, 0], chosen))
    asked, others = rows[rows < len(forget)], rows[rows >= len(forget)]
    others = others[np.lexsort((-scores[others], pairs[others, 0]))]
    _, first, count = np.unique(pairs[others, 0], return_index=True, return_counts=True)
    place = np.arange(len(others)) - np.repeat(first, count)
    return np.sort(np.concatenate([asked, others[place < CANDIDATES]]))
