"""A reading: a figure, and what it would have come to with other queries of the same kind.

Queries are resampled many times, always alike, so that readings of two rankers can be subtracted or averaged resample
by resample: the interval of a difference is a paired one, whatever the figure is.

>>> before, after = (Reading.of_mean(np.array(values)) for values in ([1.0, 0.5, 1.0], [0.5, 0.0, 0.5]))
>>> (after - before).value, (after - before).low, (after - before).high
(-0.5, -0.5, -0.5)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unrank.collection.texts import Rows
from unrank.evaluation.interval import RESAMPLES, percentiles, resampled_means
from unrank.evaluation.measure import Floats


@dataclass(frozen=True)
class Reading:
    """A figure over so many queries, and the same figure of each resample."""

    value: float
    resampled: Floats  # [RESAMPLES]
    queries: int

    @classmethod
    def of_mean(cls, values: Floats, seed: int = 0) -> Reading:
        """The mean of one value a query."""
        return cls(float(values.mean()), resampled_means(values, seed), len(values))

    @classmethod
    def mean_of(cls, readings: Sequence[Reading]) -> Reading:
        """What several rankers come to on average."""
        value = float(np.mean([reading.value for reading in readings]))
        return cls(value, np.mean([reading.resampled for reading in readings], axis=0), readings[0].queries)

    def __sub__(self, other: Reading) -> Reading:
        queries = min(self.queries, other.queries)
        return Reading(self.value - other.value, self.resampled - other.resampled, queries)

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


def resamples(owner: Rows, seed: int = 0) -> Iterator[Rows]:
    """The places of each of many resamples of owners; an owner comes with all that is its own.

    >>> all(list(places).count(0) == list(places).count(1) for places in resamples(np.array([7, 7, 9])))
    True
    """
    generator = np.random.default_rng(seed)
    order = np.argsort(owner, kind="stable")
    _, starts, counts = np.unique(owner[order], return_index=True, return_counts=True)
    for _ in range(RESAMPLES):
        drawn = generator.integers(len(starts), size=len(starts))
        size = counts[drawn]
        within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        yield order[np.repeat(starts[drawn], size) + within]
