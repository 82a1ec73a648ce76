"""How far two sets of values lie apart: what tells members from strangers."""

from __future__ import annotations

import numpy as np

from unrank.evaluation.measure import Floats


def area_under_curve(members: Floats, strangers: Floats) -> float:
    """How often a member lies above a stranger, a tie counting half: 0.5 where nothing tells them apart.

    >>> area_under_curve(np.array([3.0, 1.0]), np.array([2.0, 1.0]))
    0.625
    """
    ordered = np.sort(strangers)
    below = np.searchsorted(ordered, members, "left") + np.searchsorted(ordered, members, "right")
    return float(below.mean() / 2 / len(strangers))


def found_at(members: Floats, strangers: Floats, false_share: float = 0.01) -> float:
    """The share of members above a bar that at most so many of the strangers pass.

    >>> found_at(np.array([9.0, 5.0, 1.0]), np.array([6.0, 4.0, 2.0, 0.0]), 0.25)
    0.6666666666666666
    >>> found_at(np.array([9.0, 5.0, 1.0]), np.array([6.0, 4.0, 2.0, 0.0]), 0.01)
    0.3333333333333333
    """
    allowed = int(false_share * len(strangers))
    bar = np.sort(strangers)[len(strangers) - 1 - allowed]
    return float((members > bar).mean())
