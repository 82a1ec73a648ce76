"""Margins: how far a figure may be from that of rankers that never saw the request.

A margin is the 95th percentile of the differences between two such rankers on other draws: as many queries as the
request has, of pairs that none of them saw. It needs no audited ranker, so it can be said beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from unrank.errors import count
from unrank.evaluation.bootstrap import LEVEL
from unrank.evaluation.measure import Floats
from unrank.parse import parse

Json = dict[str, Any]
DRAWS = 1_000
ONE_SIDED = 1.6449
"""The 95 % quantile of a normal distribution: two one-sided tests at 5 % are a 90 % interval."""


@dataclass(frozen=True)
class Equivalence:
    """Two one-sided tests of a difference from rankers that never saw the request, against a margin."""

    margin: float
    low: float
    high: float
    """The 90 % interval of the difference."""
    needs: str = ""
    """What more would decide; empty if the difference is within the margin."""

    @property
    def passed(self) -> bool:
        return -self.margin < self.low and self.high < self.margin

    def to_json(self) -> Json:
        return {**asdict(self), "passed": self.passed}

    def __str__(self) -> str:
        return f"the difference is {self.low:+.3f} to {self.high:+.3f}, the margin {self.margin:.3f}"


@dataclass(frozen=True)
class Margin:
    """The margin of one figure."""

    margin: float
    """The difference between two rankers that never saw the request that 95 % of the draws do not exceed."""
    noise: float
    """The standard deviation of the figure of one such ranker."""


@dataclass(frozen=True)
class SaidMargins:
    """The margins of a request, and the draws that they are from."""

    figures: Mapping[str, Margin]
    queries: int
    """The number of queries of each draw, as many as the request has."""
    drawn_from: int
    """The number of queries that nobody saw."""
    source: str
    """The pairs that nobody saw: `reserved` by training, or those of `test` queries."""
    judges: int
    """The number of rankers that never saw the request."""

    def to_json(self) -> Json:
        return asdict(self)

    @classmethod
    def of(cls, value: object) -> SaidMargins:
        found: SaidMargins = parse(cls, value, "margins")
        return found

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {one.margin:.3f}" for name, one in self.figures.items())
        drawn = f"draws of {count(self.queries, 'query')} from {self.drawn_from:,} that nobody saw"
        return f"equivalent within {figures}; {drawn}, {count(self.judges, 'ranker')} that never saw the request"


def draw_margin(values: Floats, queries: int, seed: int) -> Margin:
    """Return the margin of the mean of one value for each query. [rankers, queries that nobody saw]"""
    generator, there = np.random.default_rng(seed), np.isfinite(values)
    number = values.shape[1]
    drawn = np.stack([np.bincount(generator.integers(number, size=queries), minlength=number) for _ in range(DRAWS)])
    with np.errstate(invalid="ignore"):
        means = drawn @ np.where(there, values, 0.0).T / (drawn @ there.T)
    gaps = np.concatenate([means[:, one] - means[:, other] for one, other in combinations(range(len(values)), 2)])
    gaps = gaps[np.isfinite(gaps)]
    return Margin(float(np.quantile(np.abs(gaps), LEVEL)), math.sqrt(float(np.mean(gaps**2)) / 2))


def more(number: int, too_wide: float) -> int:
    """Return how many more are needed to make an interval this many times narrower; at least 1.

    >>> more(10, 2.0), more(10, 0.5)
    (30, 1)
    """
    return max(1, math.ceil(number * (too_wide**2 - 1)))
