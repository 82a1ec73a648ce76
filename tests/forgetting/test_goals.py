"""Tests of goals for single pairs: `beyond:K`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.forgetting.conftest import FAST
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal
from unrank.errors import UnrankError
from unrank.forgetting.forget import forget
from unrank.forgetting.goals import wanted_scores
from unrank.forgetting.outcome import ForgetState, list_lengths
from unrank.forgetting.target import check_target_name, least_ranks
from unrank.forgetting.train import Trained
from unrank.methods.neggrad import NegGrad
from unrank.record import PairRanks

HASTY = replace(FAST, learning_rate=4e-3, warm_up=1)


def ranks_of(result: Any) -> PairRanks:
    found: PairRanks = result.judgement.ranks
    return found


@pytest.mark.parametrize("target", ["beyond:", "beyond:0", "beyond:-3", "beyond:1.5", "beyond:ten", "beyond:²"])
def test_a_target_beyond_nothing_is_refused(target: str) -> None:
    with pytest.raises(UnrankError, match="needs a whole number of 1 or more, such as beyond:10"):
        check_target_name(target)


def test_every_pair_is_pulled_just_below_the_place_it_may_have(dense: Collection, removal: Removal) -> None:
    scores = {tuple(pair): float(-place) for place, pair in enumerate(dense.list_pairs(np.arange(len(dense.queries))))}

    def score(pairs: Pairs) -> Any:
        return np.array([scores[tuple(pair)] for pair in pairs.tolist()], np.float32)

    scores = {(int(query), int(document)): value for (query, document), value in scores.items()}
    forget_pairs = make_partition(dense, removal).forget
    least = least_ranks(4, list_lengths(dense, forget_pairs))
    wanted = wanted_scores(dense, forget_pairs, least, score)
    for (query, _), best, value in zip(forget_pairs.tolist(), least.tolist(), wanted.tolist(), strict=True):
        others = score(dense.negatives.pairs(np.array([query])))
        assert 1 + np.count_nonzero(others > value) >= best


def test_no_pair_is_left_among_the_first_and_nothing_is_landed(
    trained: Trained, dense: Collection, removal: Removal
) -> None:
    result = forget(trained.ranker, dense, removal, method=HASTY, target="beyond:3")
    ranks = ranks_of(result)
    assert result.reached and result.state is ForgetState.FORGOTTEN and result.record.landing is None
    assert min(ranks.ranks_after) > 3 >= min(ranks.ranks_before) and set(ranks.least_ranks) == {4}
    assert result.record.target_name == "beyond:3" and result.target == pytest.approx(1 / 4)
    again = forget(result.ranker, dense, removal, method=HASTY, target="beyond:3", record=result.record)
    assert again.fulfilled and again.state is ForgetState.FORGOTTEN and not again.record.epochs
    further = forget(result.ranker, dense, removal, method=HASTY, target="beyond:4", record=result.record)
    assert not further.fulfilled and min(ranks_of(further).ranks_after) > 4


def test_in_a_short_list_a_pair_goes_to_the_end(trained: Trained, dense: Collection, removal: Removal) -> None:
    result = forget(trained.ranker, dense, removal, method=replace(HASTY, epochs=3), target="beyond:500")
    ranks = ranks_of(result)
    assert ranks.least_ranks == ranks.list_lengths
    assert result.reached == (ranks.ranks_after == ranks.list_lengths) == (result.state is ForgetState.FORGOTTEN)
    assert sum(ranks.ranks_after) > sum(ranks.ranks_before)


def test_the_run_stops_before_more_is_lost_than_allowed(trained: Trained, dense: Collection, removal: Removal) -> None:
    careless = replace(HASTY, learning_rate=0.03, anchors="paper", without_entangled=True, without_disjoint=True)
    result = forget(trained.ranker, dense, removal, method=careless, target="beyond:9", keep_at_least=1.0)
    assert "would have kept 0." in result.limited and not result.reached
    assert result.state is ForgetState.NOT_FORGOTTEN
    assert min(result.kept.values()) >= 1, "the weights are those of the last check that kept enough, or the original's"


def test_another_steered_method_stops_by_the_worst_pair(trained: Trained, dense: Collection, removal: Removal) -> None:
    method = NegGrad(learning_rate=1e-3)
    result = forget(trained.ranker, dense, removal, method=method, target="beyond:4")
    assert result.reached == (min(ranks_of(result).ranks_after) > 4)
    assert result.record.history[-1].measured


def test_where_it_makes_no_sense_it_is_refused(trained: Trained, dense: Collection, removal: Removal) -> None:
    for method in ("retrain", "ssd"):
        with pytest.raises(UnrankError, match=f"{method} has no target to stop at, so it takes no beyond:5: use cocol"):
            forget(trained.ranker, dense, removal, method=method, target="beyond:5", base="x", record=trained.record)
    with pytest.raises(UnrankError, match="beyond:1 asks for less than forgetting: unseen test queries have an MRR of"):
        forget(trained.ranker, dense, removal, method=FAST, target="beyond:1")
