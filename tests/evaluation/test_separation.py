"""AUC and the members found at a bar, against slow second writings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unrank.evaluation.measure import Floats
from unrank.evaluation.separation import area_under_curve, found_at

VALUES = st.lists(st.integers(-4, 4), min_size=1, max_size=30).map(lambda values: np.array(values, np.float64))


def slow_area(members: Floats, strangers: Floats) -> float:
    wins = sum(1.0 if m > s else 0.5 if m == s else 0.0 for m in members for s in strangers)
    return wins / (len(members) * len(strangers))


def slow_found(members: Floats, strangers: Floats, share: float) -> float:
    """The best over all bars that few enough strangers pass."""
    bars = [bar for bar in {*members, *strangers} if sum(s > bar for s in strangers) <= share * len(strangers)]
    return float(max(sum(m > bar for m in members) / len(members) for bar in [*bars, np.inf]))


@given(VALUES, VALUES)
def test_the_area_is_the_share_of_pairs_in_order(members: Floats, strangers: Floats) -> None:
    assert area_under_curve(members, strangers) == pytest.approx(slow_area(members, strangers))
    assert area_under_curve(strangers, members) == pytest.approx(1 - area_under_curve(members, strangers))


@given(VALUES, VALUES, st.sampled_from([0.01, 0.1, 0.5]))
def test_no_bar_finds_more_at_so_few_false_ones(members: Floats, strangers: Floats, share: float) -> None:
    assert found_at(members, strangers, share) == pytest.approx(slow_found(members, strangers, share))


def test_one_in_a_hundred() -> None:
    strangers = np.arange(200.0)
    assert found_at(np.array([196.5, 197.5, 198.5, 300.0]), strangers) == 0.75
    assert found_at(np.array([196.5, 197.5, 198.5, 300.0]), strangers[:99]) == 1.0
