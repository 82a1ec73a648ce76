"""Rank-biased overlap and Kendall's τ, against slow second writings."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unrank.evaluation.agreement import agreements, kendall_tau, rank_biased_overlap
from unrank.evaluation.measure import Floats

TWO = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=15).map(
    lambda rows: np.array(rows, np.float64).T
)


def slow_overlap(one: Floats, other: Floats, persistence: float) -> float:
    """To a depth at which nothing is left of the weights."""
    first, second = (sorted(range(len(scores)), key=lambda i: (-scores[i], i)) for scores in (one, other))
    total = 0.0
    for depth in range(1, 2_000):
        common = len(set(first[:depth]) & set(second[:depth])) / min(depth, len(one))
        total += (1 - persistence) * persistence ** (depth - 1) * common
    return total


def slow_tau(one: Floats, other: Floats) -> float:
    pairs = list(combinations(range(len(one)), 2))
    signs = [(np.sign(one[i] - one[j]), np.sign(other[i] - other[j])) for i, j in pairs]
    same, against = sum(a * b > 0 for a, b in signs), sum(a * b < 0 for a, b in signs)
    only_one, only_other = sum(a != 0 and b == 0 for a, b in signs), sum(a == 0 and b != 0 for a, b in signs)
    untied = (same + against + only_one) * (same + against + only_other)
    return (same - against) / math.sqrt(untied) if untied else 0.0


@given(TWO, st.sampled_from([0.5, 0.9]))
def test_overlap(two: Floats, persistence: float) -> None:
    one, other = two
    assert rank_biased_overlap(one, other, persistence) == pytest.approx(slow_overlap(one, other, persistence))


@given(TWO)
def test_tau_with_ties(two: Floats) -> None:
    assert kendall_tau(*two) == pytest.approx(slow_tau(*two))


def test_the_ends_of_the_scales() -> None:
    scores = np.array([0.1, 3.0, 2.0, -1.0])
    assert rank_biased_overlap(scores, 5 * scores + 1) == pytest.approx(1.0)
    assert kendall_tau(scores, 5 * scores + 1) == pytest.approx(1.0)
    assert kendall_tau(scores, -scores) == pytest.approx(-1.0)
    assert kendall_tau(scores, np.zeros(4)) == 0.0
    assert rank_biased_overlap(scores, -scores) < 0.8


def test_many_lists_at_once() -> None:
    one, other = np.array([2.0, 1.0, 5.0, 4.0, 3.0]), np.array([1.0, 2.0, 5.0, 4.0, 3.0])
    overlap, tau = agreements(one, other, np.array([4, 4, 9, 9, 9]))
    assert tau.tolist() == [-1.0, pytest.approx(1.0)]
    assert overlap.tolist() == [pytest.approx(0.9), pytest.approx(1.0)]
