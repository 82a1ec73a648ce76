"""Bootstrap intervals: how far a mean over queries could have come out otherwise."""

from __future__ import annotations

import numpy as np

from unrank.evaluation.measure import Floats

RESAMPLES = 1_000
LEVEL = 0.95
VALUES_AT_ONCE = 4_000_000


def resampled_means(values: Floats, seed: int = 0) -> Floats:
    """The mean of each of many resamples; values of the same number are drawn alike with the same seed."""
    generator = np.random.default_rng(seed)
    at_once = max(1, VALUES_AT_ONCE // len(values))
    means = [
        values[generator.integers(len(values), size=(min(at_once, RESAMPLES - start), len(values)))].mean(axis=1)
        for start in range(0, RESAMPLES, at_once)
    ]
    return np.concatenate(means)


def percentiles(resampled: Floats) -> tuple[float, float]:
    """The ends between which 95 % of them lie.

    >>> [round(end) for end in percentiles(np.arange(1_001.0))]
    [25, 975]
    """
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def interval(values: Floats, seed: int = 0) -> tuple[float, float]:
    """The 95 % percentile interval of the mean.

    >>> interval(np.ones(5))
    (1.0, 1.0)
    """
    return percentiles(resampled_means(values, seed))


def paired_interval(before: Floats, after: Floats) -> tuple[float, float]:
    """The interval of the mean change of the same queries.

    >>> paired_interval(np.array([0.5, 1.0]), np.array([0.25, 0.75]))
    (-0.25, -0.25)
    """
    return interval(after - before)
