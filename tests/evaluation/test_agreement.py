"""The agreement of two rankers against second, slow implementations and values worked out by hand."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unrank.collection.collection import Collection
from unrank.collection.partition import split_pairs
from unrank.evaluation.agreement import (
    DEPTH,
    ForgetFigures,
    agreement,
    agreements,
    correlation,
    distance,
    kendall_tau,
    list_ranks,
    order_of,
    overlaps,
    rank_biased_overlap,
)
from unrank.evaluation.measure import Floats
from unrank.evaluation.scorecard import Evaluator

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
    found = rank_biased_overlap(order_of(one), order_of(other), persistence)
    assert found == pytest.approx(slow_overlap(one, other, persistence))


@given(st.lists(TWO, min_size=1, max_size=4), st.sampled_from([0.5, 0.9]))
def test_the_overlap_of_many_lists(lists: list[Floats], persistence: float) -> None:
    """Lists of several lengths at once, with ties, have the overlap that each has alone."""
    owner = np.repeat(np.arange(len(lists)) * 3, [two.shape[1] for two in lists])
    ranks = [list_ranks(scores, owner) for scores in np.concatenate(lists, axis=1)]
    found = overlaps(ranks[0], ranks[1], owner, persistence)
    assert found.tolist() == pytest.approx([slow_overlap(two[0], two[1], persistence) for two in lists])


@given(TWO)
def test_tau_with_ties(two: Floats) -> None:
    assert kendall_tau(*two) == pytest.approx(slow_tau(*two))


def test_the_ends_of_the_scales() -> None:
    scores = np.array([0.1, 3.0, 2.0, -1.0])
    assert rank_biased_overlap(order_of(scores), order_of(5 * scores + 1)) == pytest.approx(1.0)
    assert kendall_tau(scores, 5 * scores + 1) == pytest.approx(1.0)
    assert kendall_tau(scores, -scores) == pytest.approx(-1.0)
    assert kendall_tau(scores, np.zeros(4)) == 0.0
    assert rank_biased_overlap(order_of(scores), order_of(-scores)) < 0.8


def test_many_lists_at_once() -> None:
    one, other = np.array([2.0, 1.0, 5.0, 4.0, 3.0]), np.array([1.0, 2.0, 5.0, 4.0, 3.0])
    overlap, tau = agreements(one, other, np.array([4, 4, 9, 9, 9]))
    assert tau.tolist() == [-1.0, pytest.approx(1.0)]
    assert overlap.tolist() == [pytest.approx(0.9), pytest.approx(1.0)]


@given(st.permutations(range(12)), st.permutations(range(12)), st.integers(1, 12))
def test_an_overlap_of_first_places_is_near_that_of_the_whole(one: list[int], other: list[int], depth: int) -> None:
    """It lies between the two ends that the places below leave open, and is the same both ways."""
    first, second = np.array(one), np.array(other)
    whole, part = rank_biased_overlap(first, second), rank_biased_overlap(first[:depth], second[:depth])
    assert rank_biased_overlap(second[:depth], first[:depth]) == pytest.approx(part)
    assert -1e-9 <= part <= 1 + 1e-9
    assert abs(whole - part) <= 0.9**depth + 1e-9
    assert depth < 12 or part == whole


def test_overlap_by_hand() -> None:
    """Two rankings of five documents; common at the depths 1 to 5: 0, 2, 2, 4, 5."""
    shares, p = [0, 2 / 2, 2 / 3, 4 / 4, 5 / 5], 0.9
    wanted = sum((1 - p) * p**depth * share for depth, share in enumerate(shares)) + p**5
    assert rank_biased_overlap(np.array([0, 1, 2, 3, 4]), np.array([1, 0, 3, 2, 4])) == pytest.approx(wanted)
    assert rank_biased_overlap(np.array([0]), np.array([0])) == pytest.approx(1)
    assert rank_biased_overlap(np.array([0]), np.array([1])) == 0, "first places alone, with nothing in common"


RANKS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=20).map(
    lambda rows: 1 / np.array(rows, np.float64).T
)


@given(RANKS)
def test_distance_and_correlation(two: Floats) -> None:
    one, other = two
    assert distance(one, other) == pytest.approx(sum(abs(a - b) for a, b in zip(one, other, strict=True)) / len(one))
    found = correlation(one, other)
    if len({*one}) == 1 or len({*other}) == 1:
        assert found is None
    else:
        assert found is not None and -1 <= found <= 1
        assert found == pytest.approx(np.corrcoef(one, other)[0, 1])


def test_the_same_mean_is_not_the_same_ranker() -> None:
    one, other = np.array([1, 1, 0.5, 0.5]), np.array([0.5, 0.5, 1, 1])
    found = agreement(ForgetFigures(one), ForgetFigures(other))
    assert one.mean() == other.mean()
    assert (found.queries, found.distance, found.low, found.high) == (4, 0.5, 0.5, 0.5)
    assert found.correlation == pytest.approx(-1)
    assert found.rank_biased_overlap is None, "the lists are not known"


def test_one_query_has_no_correlation() -> None:
    lists = (np.array([0, 1]),)
    found = agreement(ForgetFigures(np.array([0.5]), None, lists), ForgetFigures(np.array([1.0]), None, lists))
    assert (found.queries, found.distance, found.correlation) == (1, 0.5, None)
    assert found.rank_biased_overlap == pytest.approx(1)


def test_forget_figures_are_those_of_the_scorecard(dense: Collection) -> None:
    """By rows: of equal scores the document with the lower row comes first."""
    pairs = dense.pairs
    evaluator = Evaluator(dense, split_pairs(pairs, np.arange(len(pairs)) % 5 == 0))
    forget = evaluator.partition.forget
    queries = np.unique(forget[:, 0])

    def score(of: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        return ((of[:, 0] * 7 + of[:, 1] * 13) % 5).astype(np.float32)

    card, alone = evaluator.scorecard(score), evaluator.forget_figures(score)
    found = card.forget_figures
    assert found is not None and found.pair_scores is not None and alone.pair_scores is not None
    assert found.reciprocal.tolist() == alone.reciprocal.tolist()
    assert found.pair_scores.tolist() == alone.pair_scores.tolist() == score(forget).tolist()
    assert [order.tolist() for order in found.orders] == [order.tolist() for order in alone.orders]
    for query, order in zip(queries.tolist(), found.orders, strict=True):
        documents = np.sort(dense.list_pairs(np.array([query]))[:, 1])
        scores = score(np.array([[query, document] for document in documents]))
        wanted = sorted(range(len(documents)), key=lambda place: (-scores[place], documents[place]))
        assert order.tolist() == wanted[:DEPTH]
    same = agreement(found, alone)
    assert same.distance == 0
    assert same.rank_biased_overlap == pytest.approx(1)
