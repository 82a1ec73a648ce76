"""Significance: p-values from resamples, Holm's correction for several tests, and non-inferiority within a margin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from unrank.evaluation.bootstrap import LEVEL, BootstrapEstimate
from unrank.evaluation.measure import Floats

IN_ALL = 1 - LEVEL
"""The chance that any of several tests finds a difference where there is none."""

Inferiority = Literal["not inferior", "undecided", "inferior"]


def p_value(beyond: Floats) -> float:
    """Return the share of resamples that are not above zero; never 0, because resamples are few.

    >>> p_value(np.array([1.0, 2.0, -1.0])), p_value(np.ones(999))
    (0.5, 0.001)
    """
    return float((1 + np.count_nonzero(beyond <= 0)) / (1 + len(beyond)))


def two_sided(resampled: Floats) -> float:
    """Return the p-value of a difference in either direction.

    >>> two_sided(np.array([1.0, 2.0, -1.0])), two_sided(-np.ones(999)), two_sided(np.zeros(9))
    (1.0, 0.002, 1.0)
    """
    return min(1.0, 2 * min(p_value(resampled), p_value(-resampled)))


def holm_adjusted(chances: Mapping[str, float]) -> dict[str, float]:
    """Return p-values that allow for the number of tests, by Holm's procedure, in the order of the given ones.

    >>> holm_adjusted({"one": 0.01, "two": 0.04, "three": 0.02})
    {'one': 0.03, 'two': 0.04, 'three': 0.04}
    """
    least, adjusted = 0.0, {}
    for rank, name in enumerate(sorted(chances, key=chances.__getitem__)):
        least = max(least, min(1.0, chances[name] * (len(chances) - rank)))
        adjusted[name] = least
    return {name: adjusted[name] for name in chances}


def holm(chances: Mapping[str, float], level: float = IN_ALL) -> set[str]:
    """Return the names of the p-values that are significant together, by Holm's procedure.

    >>> sorted(holm({"one": 0.01, "two": 0.04, "three": 0.02})), holm({"one": 0.03, "two": 0.04})
    (['one', 'three', 'two'], set())
    """
    limit = level * (1 + 1e-9)  # 0.025 times 2 is within 0.05
    return {name for name, chance in holm_adjusted(chances).items() if chance <= limit}


def inferiority(change: BootstrapEstimate, margin: float) -> Inferiority:
    """Return the result of two one-sided tests, at 5 % each, of a change that may be as low as minus the margin.

    A change with unknown resamples is undecided.

    >>> values = np.linspace(-0.004, 0.0, 1_000)
    >>> [inferiority(BootstrapEstimate(-0.002, values + lower, 50), 0.01) for lower in (0.0, -0.008, -0.02)]
    ['not inferior', 'undecided', 'inferior']
    """
    if np.isnan(change.resampled).any():
        return "undecided"
    if p_value(change.resampled + margin) <= IN_ALL:
        return "not inferior"
    return "inferior" if p_value(-margin - change.resampled) <= IN_ALL else "undecided"
