"""What a target means."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unrank.collection.collection import Collection
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal
from unrank.errors import UnknownName, UnrankError
from unrank.evaluation.scorecard import Scorecard, SetMetrics
from unrank.forgetting.target import check_target, resolve_target, tolerance


def measured(mean: float) -> SetMetrics:
    return SetMetrics(np.arange(2), np.full(2, mean), mean, mean, mean, mean)


def scorecard(test_mrr: float | None) -> Scorecard:
    """A ranker that is perfect on what it was trained on."""
    one = measured(1.0)
    return Scorecard(one, one, one, None if test_mrr is None else measured(test_mrr), one)


@pytest.mark.parametrize("target", ["test-mrr", "half-unseen", 0.45, "0.45", 1, "1", 1e-6, "50%", "0.1%", "100%"])
def test_what_can_be_a_target(target: str | float, dense: Collection) -> None:
    check_target(target, dense, make_partition(dense, Removal(queries=["query1"])))
    assert 0 < resolve_target(target, scorecard(0.5)) <= 1


@pytest.mark.parametrize(
    "target", [0, -0.1, 1.0001, 1.5, "0", "1.5", float("nan"), "nan", float("inf"), "-inf", "0%", "101%"]
)
def test_numbers_that_cannot(target: str | float, dense: Collection) -> None:
    with pytest.raises(UnrankError, match=r"outside \(0, 1\]"):
        check_target(target, dense, make_partition(dense, Removal(queries=["query1"])))


@pytest.mark.parametrize("target", ["abc", "", "0,5", "UNSEEN", "unseen ", "%", "half%", "50%%"])
def test_words_that_cannot(target: str, dense: Collection) -> None:
    with pytest.raises(
        UnknownName, match=r"unknown target .*known are places, test-mrr, half-unseen, .* a number in \(0, 1\]"
    ):
        check_target(target, dense, make_partition(dense, Removal(queries=["query1"])))


def test_the_nearest_name_is_offered(dense: Collection) -> None:
    with pytest.raises(UnknownName, match="did you mean 'half-unseen'"):
        check_target("half_unseen", dense, make_partition(dense, Removal(queries=["query1"])))


def test_test_mrr_is_what_the_ranker_reaches_on_test_queries() -> None:
    before = scorecard(0.62)
    assert resolve_target("test-mrr", before) == 0.62
    assert resolve_target("half-unseen", before) == 0.31
    assert resolve_target(0.45, before) == resolve_target("0.45", before) == 0.45


def test_test_mrr_needs_test_queries_and_a_number_does_not(golden: Collection) -> None:
    partition = make_partition(golden, Removal(queries=["q1"]))
    with pytest.raises(UnrankError, match="MRR on test queries, and none is there or none is left: give a number"):
        check_target("test-mrr", golden, partition)
    check_target("places", golden, partition)
    check_target(0.3, golden, partition)
    assert resolve_target(0.3, scorecard(None)) == 0.3


def test_unseen_needs_test_queries_that_are_left(dense: Collection) -> None:
    tested = dense.documents.ids(np.unique(dense.test_pairs[:, 1]))
    partition = make_partition(dense, Removal(documents=tested))
    with pytest.raises(UnrankError, match="none is left"):
        check_target("half-unseen", dense, partition)


def test_a_share_is_of_what_the_forget_pairs_had() -> None:
    before = replace(scorecard(None), forget=measured(0.8))
    assert resolve_target("50%", before) == pytest.approx(0.4)
    assert resolve_target("100%", before) == pytest.approx(0.8)


def test_the_tolerance_is_half_a_query_within_limits() -> None:
    assert tolerance(1) == tolerance(10) == 0.05
    assert tolerance(100) == 0.005
    assert tolerance(167) == tolerance(100_000) == 0.003
