"""Each measure against a second, slow implementation that goes one list or one pair at a time."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unrank.evaluation.bootstrap import interval, paired_interval
from unrank.evaluation.measure import (
    Floats,
    ScoredLists,
    area_under_curve,
    found_at,
    ndcg,
    reciprocal_ranks,
)

Entry = tuple[int, bool]
"""A score, and whether the document is a target."""

few = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=8)
long = st.lists(st.tuples(st.integers(-2, 2), st.booleans()), min_size=9, max_size=30)


def slow_order(entries: Sequence[Entry], ties_first: bool) -> list[bool]:
    """Which places hold a target, best first."""

    def place(entry: Entry) -> tuple[int, int]:
        score, target = entry
        return -score, int(target != ties_first)

    return [target for _, target in sorted(entries, key=place)]


def slow_reciprocal(entries: Sequence[Entry], ties_first: bool) -> float:
    for rank, target in enumerate(slow_order(entries, ties_first), 1):
        if target:
            return 1 / rank
    return 0.0


def slow_ndcg(entries: Sequence[Entry], ties_first: bool) -> float:
    order = slow_order(entries, ties_first)
    if not any(order):
        return 0.0
    gain = sum(1 / math.log2(rank + 1) for rank, target in enumerate(order[:10], 1) if target)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(sum(order), 10) + 1))
    return gain / best


def laid_out(lists: Sequence[Sequence[Entry]], seed: int) -> ScoredLists:
    """All entries of all lists, mixed."""
    entries = [(owner, *entry) for owner, listed in enumerate(lists) for entry in listed]
    random.Random(seed).shuffle(entries)
    return ScoredLists(
        np.array([owner for owner, _, _ in entries], np.int64),
        np.array([score for _, score, _ in entries], np.float32),
        np.array([target for _, _, target in entries], bool),
        len(lists),
    )


@settings(deadline=None, max_examples=60)
@given(st.lists(few | long, min_size=1, max_size=6), st.booleans(), st.integers(0, 9))
def test_as_written_slowly(lists: list[list[Entry]], ties_first: bool, seed: int) -> None:
    made = laid_out(lists, seed)
    assert reciprocal_ranks(made, ties_first).tolist() == [slow_reciprocal(entries, ties_first) for entries in lists]
    assert ndcg(made, ties_first) == pytest.approx([slow_ndcg(entries, ties_first) for entries in lists], abs=1e-12)


@pytest.mark.parametrize(
    ("entries", "last", "first"),
    [
        ([(1, True)], 1, 1),
        ([(1, True), (1, False), (1, False)], 1 / 3, 1),
        ([(2, False), (1, True), (1, False), (0, False)], 1 / 3, 1 / 2),
        ([(1, True), (1, True), (1, False)], 1 / 2, 1),
        ([(3, False), (2, False)], 0, 0),
        ([(3, True), (2, False)], 1, 1),
        ([], 0, 0),
    ],
)
def test_ties_by_hand(entries: list[Entry], last: float, first: float) -> None:
    made = laid_out([entries], 0)
    assert reciprocal_ranks(made, ties_first=False).tolist() == [last]
    assert reciprocal_ranks(made, ties_first=True).tolist() == [first]


def test_a_miss_counts_nothing_and_stays_in_the_mean() -> None:
    made = laid_out([[(1, True)], [(1, False)], []], 0)
    assert reciprocal_ranks(made, ties_first=False).mean() == pytest.approx(1 / 3)
    assert ndcg(made, ties_first=True).tolist() == [1, 0, 0]


def test_beyond_the_tenth_place_nothing_is_gained() -> None:
    ten_before = [(9, False)] * 10
    assert ndcg(laid_out([[*ten_before, (1, True)]], 0), ties_first=False).tolist() == [0]
    assert reciprocal_ranks(laid_out([[*ten_before, (1, True)]], 0), ties_first=False).tolist() == [1 / 11]
    assert ndcg(laid_out([[(1, True)] * 12], 0), ties_first=False).tolist() == [1]


def test_grades_are_gains_by_hand() -> None:
    """Grades 1, 3 and 2 in the places 1, 3 and 4; and two equal scores, of which the lower grade comes first."""
    target = np.array([True, False, True, True])
    lists = ScoredLists(
        np.zeros(4, np.int64), np.array([9, 8, 7, 6], np.float32), target, 1, np.array([1.0, 5.0, 3.0, 2.0])
    )
    reached = 1 + 3 / math.log2(4) + 2 / math.log2(5)
    assert ndcg(lists, ties_first=False) == pytest.approx([reached / (3 + 2 / math.log2(3) + 1 / math.log2(4))])
    tied = ScoredLists(np.zeros(2, np.int64), np.zeros(2, np.float32), np.array([True, True]), 1, np.array([2.0, 1.0]))
    best = 2 + 1 / math.log2(3)
    assert ndcg(tied, ties_first=False) == pytest.approx([(1 + 2 / math.log2(3)) / best])
    assert ndcg(tied, ties_first=True) == pytest.approx([1])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 20).map(lambda rank: 1 / rank), min_size=1, max_size=60), st.integers(0, 99))
def test_intervals_contain_the_mean_and_follow_the_seed(values: list[float], seed: int) -> None:
    array = np.array(values)
    low, high = interval(array, seed)
    assert array.min() - 1e-9 <= low <= array.mean() + 1e-9
    assert array.mean() - 1e-9 <= high <= array.max() + 1e-9
    assert (low, high) == interval(array, seed)


def test_another_seed_gives_another_interval() -> None:
    values = np.random.default_rng(0).random(40)
    assert interval(values, 0) != interval(values, 1)


def test_more_queries_narrow_the_interval() -> None:
    values = np.random.default_rng(0).random(25)
    low, high = interval(values)
    narrow_low, narrow_high = interval(np.tile(values, 16))
    assert (narrow_high - narrow_low) == pytest.approx((high - low) / 4, rel=0.15)


def test_so_many_values_that_they_are_resampled_in_parts() -> None:
    values = np.random.default_rng(0).random(9_000)  # 9 million values in all, of which 4 million fit at once
    low, high = interval(values)
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 9_000**0.5, rel=0.15)


def test_a_paired_interval_sees_only_the_change() -> None:
    before = np.random.default_rng(0).random(50)
    assert list(paired_interval(before, before - 0.125)) == pytest.approx([-0.125, -0.125])
    noise = np.random.default_rng(1).normal(0, 0.01, 50)
    low, high = paired_interval(before, before + 0.1 + noise)
    assert 0.09 < low < 0.1 + noise.mean() < high < 0.11


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
