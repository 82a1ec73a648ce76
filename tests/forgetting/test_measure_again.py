"""Lists that are scored again after a small move."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from unrank.collection.collection import Pairs
from unrank.forgetting.mrr_estimator import NEAREST, SPREAD, LastMeasurement

QUERIES, FORGET, OTHERS = 30, 2, 100
PAIRS: Pairs = np.array(
    [(query, document) for query in range(QUERIES) for document in range(FORGET)]
    + [(query, document) for query in range(QUERIES) for document in range(FORGET, FORGET + OTHERS)]
)


class Table:
    """Gives the scores of a table, and counts what it is asked for."""

    def __init__(self, scores: NDArray[np.float32]) -> None:
        self.scores, self.asked = scores, 0

    def __call__(self, pairs: Pairs) -> NDArray[np.float32]:
        self.asked += len(pairs)
        found: NDArray[np.float32] = self.scores[pairs[:, 0], pairs[:, 1]]
        return found


def standing_above(scores: NDArray[np.float32]) -> list[int]:
    """How many candidates stand above the best forget pair of each query."""
    forget, others = np.split(scores, [QUERIES * FORGET])
    best = forget.reshape(QUERIES, FORGET).max(1)
    return (others.reshape(QUERIES, OTHERS) > best[:, None]).sum(1).tolist()  # type: ignore[no-any-return]


def drawn(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(QUERIES, FORGET + OTHERS)).astype(np.float32)


@given(seed=st.integers(0, 10_000), move=st.sampled_from([0.0, 0.01, 0.1]), fall=st.sampled_from([0.0, 0.3, 2.0]))
def test_each_forget_pair_stands_where_scoring_all_would_put_it(seed: int, move: float, fall: float) -> None:
    then, generator = drawn(seed), np.random.default_rng(seed)
    now = then + generator.normal(size=(QUERIES, 1))  # the scores of a query go up or down together,
    now += move * generator.uniform(-1, 1, now.shape)  # and each a little by itself
    now[:, :FORGET] -= fall
    table = Table(now.astype(np.float32))
    found = LastMeasurement(PAIRS, QUERIES * FORGET, Table(then)(PAIRS)).now(table)
    assert standing_above(found) == standing_above(Table(now.astype(np.float32))(PAIRS))


@pytest.mark.parametrize(("move", "most"), [(0.0, 0.15), (0.01, 0.2), (10.0, 1.0)])
def test_the_less_moved_the_less_is_asked_for(move: float, most: float) -> None:
    then = drawn(1)
    now = then + np.float32(move) * drawn(2)
    table = Table(now)
    LastMeasurement(PAIRS, QUERIES * FORGET, Table(then)(PAIRS)).now(table)
    assert QUERIES * (FORGET + NEAREST + SPREAD) <= table.asked <= most * len(PAIRS)


def test_those_that_lay_far_show_how_far_others_move() -> None:
    """All that lay nearest moves alike, and the rest past it."""
    then = np.tile(np.array([10.0, 1.0] + [9.0] * 20 + [6.0] * 80, np.float32), (QUERIES, 1))
    now = np.tile(np.array([4.0, 1.0] + [4.1] * 20 + [6.5] * 80, np.float32), (QUERIES, 1))
    found = LastMeasurement(PAIRS, QUERIES * FORGET, Table(then)(PAIRS)).now(Table(now))
    assert standing_above(found) == [100] * QUERIES


@pytest.mark.parametrize("others", [0, 1, 5, 8, 11, 40])
def test_lists_of_any_length(others: int) -> None:
    pairs = PAIRS[PAIRS[:, 1] < FORGET + others]
    then, now = drawn(3), drawn(4)
    rescoring = LastMeasurement(pairs, QUERIES * FORGET, Table(then)(pairs))
    seen = pairs[QUERIES * FORGET + rescoring._sampled(pairs[:, 0])] if others else pairs[:0]
    assert {len(seen[seen[:, 0] == query]) for query in range(QUERIES)} == {min(others, NEAREST + SPREAD)}
    if others < 9:
        assert rescoring.now(Table(now)).tolist() == Table(now)(pairs).tolist()


def test_a_query_without_candidates_asks_for_its_forget_pairs() -> None:
    alone = np.array([(0, 0), (0, 1)])
    table = Table(np.array([[3.0, 4.0]], np.float32))
    found = LastMeasurement(alone, 2, np.array([1.0, 2.0], np.float32)).now(table)
    assert found.tolist() == [3.0, 4.0]
