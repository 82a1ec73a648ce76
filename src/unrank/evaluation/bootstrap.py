"""The bootstrap: how far a figure over queries would vary with other queries of the same kind.

Queries are resampled many times, and alike for every ranker. So the estimates of two rankers can be subtracted or
averaged resample by resample, and the interval of a difference is a paired one.

>>> before, after = (BootstrapEstimate.of_mean(np.array(values)) for values in ([1.0, 0.5, 1.0], [0.5, 0.0, 0.5]))
>>> (after - before).value, (after - before).low, (after - before).high
(-0.5, -0.5, -0.5)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unrank.collection.texts import Rows
from unrank.evaluation.measure import FALSE_SHARE, Floats, area_under_curve, found_at

RESAMPLES = 1_000
LEVEL = 0.95
MIN_QUERIES = 10
"""With fewer queries an interval says nothing."""
VALUES_AT_ONCE = 4_000_000


def resampled_means(values: Floats, seed: int = 0) -> Floats:
    """Return the mean of each resample. With one seed, arrays of the same length are resampled alike."""
    generator = np.random.default_rng(seed)
    at_once = max(1, VALUES_AT_ONCE // len(values))
    means = [
        values[generator.integers(len(values), size=(min(at_once, RESAMPLES - start), len(values)))].mean(axis=1)
        for start in range(0, RESAMPLES, at_once)
    ]
    return np.concatenate(means)


def resampled_columns(columns: Floats, seed: int = 0) -> Floats:
    """Return the mean of each column in each resample: rows are drawn as `resampled_means` draws values.

    >>> values = np.array([1.0, 0.5, 0.0])
    >>> np.allclose(resampled_columns(values[:, None])[:, 0], resampled_means(values))
    True
    """
    return resampled_nested([[columns]], seed)


def resampled_nested(seeds: Sequence[Sequence[Floats]], seed: int = 0) -> Floats:
    """Return the mean of each column in each resample of a hierarchy: queries within a draw within a training seed.

    Seeds are resampled first, then the draws of each seed that was taken, then the queries (rows) of each draw that was
    taken. All seeds count alike, and so do all draws of a seed. With one seed or one draw that level adds no variation,
    because nothing is known of others. [RESAMPLES, columns]

    >>> one, other = np.zeros((4, 1)), np.ones((4, 1))
    >>> np.unique(resampled_nested([[one], [other]])).tolist()  # both seeds, or one of them twice
    [0.0, 0.5, 1.0]
    """
    generator = np.random.default_rng(seed)
    total = np.zeros((RESAMPLES, seeds[0][0].shape[1]))
    taken = _times_taken(generator, np.ones(RESAMPLES, np.int64), len(seeds))
    for place, draws in enumerate(seeds):
        drawn = _times_taken(generator, taken[:, place], len(draws))
        for number, columns in enumerate(draws):
            total += _resampled_sums(generator, columns, drawn[:, number]) / len(draws)
    return total / len(seeds)


def _times_taken(generator: np.random.Generator, times: Rows, items: int) -> Rows:
    """Return how often each of some items is taken, if `items` of them are drawn `times` times. [times, items]"""
    return generator.multinomial(times * items, np.full(items, 1 / items))


def _resampled_sums(generator: np.random.Generator, columns: Floats, times: Rows) -> Floats:
    """Return in each resample the sum of the means of `times` resamples of the rows. [RESAMPLES, columns]"""
    number, sums = len(columns), []
    at_once = max(1, VALUES_AT_ONCE // number)
    for start in range(0, RESAMPLES, at_once):
        some = times[start : start + at_once]
        where = np.repeat(np.arange(len(some)) * number, some * number)
        drawn = generator.integers(number, size=len(where)) + where
        counts = np.bincount(drawn, minlength=len(some) * number).reshape(len(some), number)
        sums.append(counts @ columns / number)
    return np.concatenate(sums)


def percentiles(resampled: Floats) -> tuple[float, float]:
    """Return the ends between which 95 % of the values lie.

    >>> [round(end) for end in percentiles(np.arange(1_001.0))]
    [25, 975]
    """
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def interval(values: Floats, seed: int = 0) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean.

    >>> interval(np.ones(5))
    (1.0, 1.0)
    """
    return percentiles(resampled_means(values, seed))


def paired_interval(before: Floats, after: Floats) -> tuple[float, float]:
    """Return the interval of the mean change, query by query.

    >>> paired_interval(np.array([0.5, 1.0]), np.array([0.25, 0.75]))
    (-0.25, -0.25)
    """
    return interval(after - before)


@dataclass(frozen=True)
class BootstrapEstimate:
    """A figure over queries, and its value in each resample."""

    value: float
    resampled: Floats  # [RESAMPLES]
    queries: int

    @classmethod
    def of_mean(cls, values: Floats, seed: int = 0) -> BootstrapEstimate:
        """Return the mean of one value per query."""
        return cls(float(values.mean()), resampled_means(values, seed), len(values))

    @classmethod
    def mean_of(cls, estimates: Sequence[BootstrapEstimate]) -> BootstrapEstimate:
        """Return the mean over several rankers."""
        value = float(np.mean([estimate.value for estimate in estimates]))
        return cls(value, np.mean([estimate.resampled for estimate in estimates], axis=0), estimates[0].queries)

    def __sub__(self, other: BootstrapEstimate) -> BootstrapEstimate:
        queries = min(self.queries, other.queries)
        return BootstrapEstimate(self.value - other.value, self.resampled - other.resampled, queries)

    def __truediv__(self, other: BootstrapEstimate) -> BootstrapEstimate:
        """Return this as a share of the other, which must not be 0. A resample in which the other is 0 has none."""
        shares = np.full(len(self.resampled), np.nan)
        np.divide(self.resampled, other.resampled, out=shares, where=other.resampled > 0)
        return BootstrapEstimate(self.value / other.value, shares, min(self.queries, other.queries))

    @cached_property
    def interval(self) -> tuple[float, float]:
        return percentiles(self.resampled)

    @property
    def low(self) -> float:
        return self.interval[0]

    @property
    def high(self) -> float:
        return self.interval[1]

    def to_json(self) -> dict[str, float | int]:
        return {"figure": self.value, "low": self.low, "high": self.high, "queries": self.queries}


@dataclass(frozen=True)
class ResampledSets:
    """How often each value of two sets, members and strangers, is taken in each resample of their owners."""

    members: Rows  # [RESAMPLES, members]
    strangers: Rows  # [RESAMPLES, strangers]

    @classmethod
    def of(cls, member_of: Rows, stranger_of: Rows, seed: int = 0) -> ResampledSets:
        return cls(times_drawn(member_of, seed), times_drawn(stranger_of, seed + 1))

    def area(self, members: Floats, strangers: Floats, queries: int) -> BootstrapEstimate:
        """Estimate how often a member is above a stranger, a tie counting half."""
        order = np.argsort(strangers)
        below = np.cumsum(np.pad(self.strangers[:, order], ((0, 0), (1, 0))), axis=1)
        low, high = (np.searchsorted(strangers[order], members, side) for side in ("left", "right"))
        won = (self.members * (below[:, low] + below[:, high])).sum(axis=1) / 2
        areas = won / self.members.sum(axis=1) / below[:, -1]
        return BootstrapEstimate(area_under_curve(members, strangers), areas, queries)

    def found(self, members: Floats, strangers: Floats, queries: int) -> BootstrapEstimate:
        """Estimate the share of members above the bar that 1 % of the strangers exceed."""
        order = np.argsort(strangers)
        up_to = np.cumsum(self.strangers[:, order], axis=1)
        allowed = (FALSE_SHARE * up_to[:, -1:]).astype(np.int64)
        bars = strangers[order][(up_to < up_to[:, -1:] - allowed).sum(axis=1)]
        above = (self.members * (members > bars[:, None])).sum(axis=1)
        shares = above / self.members.sum(axis=1)
        return BootstrapEstimate(found_at(members, strangers), shares, queries)


def times_drawn(owner: Rows, seed: int = 0) -> Rows:
    """Return how often each index is taken in each resample of the owners. All indices of an owner are drawn together.

    >>> bool((times_drawn(np.array([7, 9, 7]))[:, 0] == times_drawn(np.array([7, 9, 7]))[:, 2]).all())
    True
    """
    generator = np.random.default_rng(seed)
    owners, member = np.unique(owner, return_inverse=True)
    drawn = [generator.integers(len(owners), size=len(owners)) for _ in range(RESAMPLES)]
    return np.stack([np.bincount(each, minlength=len(owners)) for each in drawn])[:, member]
