"""Places: where a ranker that never saw a pair puts it, and runs that bring pairs there."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from math import floor, sqrt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.tiny import make_collection
from unrank.cli.closing import closing
from unrank.cli.show import show_worst_pair
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal
from unrank.engine.samples import Phase
from unrank.engine.training_state import Interval
from unrank.errors import UnrankError
from unrank.evaluation.measure import ranks_among
from unrank.evaluation.scorecard import SetMetrics
from unrank.forgetting.forget import forget
from unrank.forgetting.mrr_estimator import MrrEstimator
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.pair_stopping import PairStoppingRule
from unrank.forgetting.places import (
    Places,
    between,
    calibration_level,
    find_places,
    list_tops,
    mapped,
    mapped_by_kind,
    margins,
    margins_by_rank,
    places_at,
    rank_at,
    score_at,
)
from unrank.forgetting.previous_requests import fulfilled_goal, hashed, previous_removals
from unrank.forgetting.provenance import Reference
from unrank.forgetting.proxies import Proxy
from unrank.forgetting.train import Trained, train
from unrank.forgetting.validation import Base, run_fingerprint
from unrank.forgetting.workspace import Workspace
from unrank.methods.cocol import Cocol
from unrank.methods.retrain import Retrain
from unrank.methods.task import EarlierPlaces
from unrank.rankers import create_ranker
from unrank.record import PlacesFound, Record
from unrank.report.run_page import verdict

FAST = Cocol(learning_rate=1e-3, batch=16, warm_up=1, place_epochs=3, place_rounds=1)
FOUND = PlacesFound(proxies=1, source="made", epochs=2, calibrated_on=0, spread=0.0)


def scores(pairs: Pairs) -> NDArray[np.float32]:
    """The higher the row of the document, the lower its score."""
    return (-pairs[:, 1]).astype(np.float32)


def test_a_margin_is_the_distance_to_the_best_negative_in_ranges(golden: Collection) -> None:
    pairs = golden.pairs[:1]
    (query, document), negatives = pairs[0], golden.negatives.pairs(pairs[:, 0])[:, 1]
    width = negatives.max() - negatives.min()
    assert margins(golden, pairs, scores)[0] == pytest.approx((negatives.min() - document) / width)
    assert query == golden.negatives.pairs(pairs[:, 0])[0, 0]


def test_a_place_is_the_score_with_a_margin_and_its_rank(golden: Collection) -> None:
    pairs = golden.pairs[:2]
    there = margins(golden, pairs, scores)
    assert score_at(golden, pairs, scores, there) == pytest.approx(scores(pairs))
    lowest = places_at(golden, pairs, scores, np.full(2, -1.5), FOUND)
    entries = golden.negatives.counts[pairs[:, 0]] + 1
    assert lowest.ranks.tolist() == entries.tolist(), "below every negative"
    highest = places_at(golden, pairs, scores, np.full(2, 0.5), FOUND)
    assert highest.ranks.tolist() == [1, 1]
    assert highest.mrr == 1.0


def test_the_wanted_score_of_a_small_request_is_not_next_to_a_negative(golden: Collection) -> None:
    """It has the same rank, at least a twentieth of the range away from the negatives, or midway between two."""
    pair = golden.pairs[:1]
    negatives = golden.negatives.pairs(pair[:, 0])
    listed = np.sort(scores(negatives))[::-1]
    width = listed[0] - listed[-1]
    for margin in (0.001, -0.001, -0.3, -0.999, -1.001, -1.4):
        places = places_at(golden, pair, scores, np.array([margin]), FOUND)
        rank, wanted = int(places.ranks[0]), places.wanted
        assert ranks_among(pair, wanted, negatives, scores(negatives)).tolist() == [rank]
        apart = [abs(wanted[0] - each) for each in listed[max(0, rank - 2) : rank]]
        middle = (listed[rank - 2] - listed[rank - 1]) / 2 if 1 < rank <= len(listed) else np.inf
        assert min(apart) >= min(0.05 * width, middle) - 1e-4


def test_as_many_pairs_may_be_above_their_places_as_of_unseen_ones(dense: Collection) -> None:
    pairs = dense.pairs
    places = places_at(dense, pairs, scores, np.full(len(pairs), -0.7), replace(FOUND, above=0.25))
    assert (places.least < places.ranks).any(), "a rank of nearly the same reciprocal will do"
    assert places.missed(places.ranks) == 0
    higher = places.ranks.copy()
    higher[:20] = places.least[:20] - 1
    assert places.missed(higher) == 0, "twenty may"
    assert places.may_exceed == floor(72 * 0.25 + 2 * sqrt(72 * 0.25 * 0.75))
    assert places.missed(np.ones(len(pairs), int)) == len(pairs), "the mean is far off, so none may"
    one = places_at(dense, pairs[:1], scores, np.full(1, -0.7), replace(FOUND, above=0.25))
    assert (one.may_exceed, one.missed(np.ones(1, int))) == (0, 1), "of a few pairs none may"


def test_pairs_that_are_first_at_their_place_excuse_no_others(dense: Collection) -> None:
    pairs = dense.pairs[np.unique(dense.pairs[:, 0], return_index=True)[1]]
    low = np.arange(len(pairs)) % 5 < 2
    places = places_at(dense, pairs, scores, np.where(low, -0.7, 0.5), FOUND)
    assert places.found.above is None, "it was not measured: half of those that are not first count"
    assert 0 < places.may_exceed < low.sum()
    assert places_at(dense, pairs, scores, np.full(len(pairs), 0.5), FOUND).may_exceed == 0


def test_a_list_with_one_negative_is_as_wide_as_the_others() -> None:
    pairs, negatives = np.array([[0, 9], [1, 9], [2, 9]]), np.array([[0, 1], [0, 2], [1, 1]])
    best, width = list_tops(pairs, negatives, np.array([3.0, 1.0, 5.0], np.float32))
    assert best.tolist() == [3.0, 5.0, -np.inf]
    assert width.tolist() == [2.0, 2.0, 2.0]


def test_margins_are_mapped_quantile_to_quantile() -> None:
    known, wanted = np.linspace(0, 1, 50), np.linspace(10, 30, 80)
    assert mapped(np.array([0.0, 0.5, 1.0, 7.0]), known, wanted) == pytest.approx([10, 20, 30, 30])


def test_margins_of_a_kind_are_mapped_by_their_kind_if_it_has_enough() -> None:
    known, of = np.concatenate([np.linspace(0, 1, 20), np.linspace(0, 1, 20)]), np.arange(40) >= 20
    wanted = np.where(of, known + 10, known + 20)
    values, kinds = np.array([0.5, 0.5]), np.array([True, False])
    assert mapped_by_kind(values, kinds, known, wanted, of) == pytest.approx([10.5, 20.5])
    few = np.arange(40) >= 39  # one of a kind: it is mapped by all
    assert mapped_by_kind(values, kinds, known, wanted, few)[0] == mapped(values, known, wanted)[0]


def test_a_step_of_few_pairs_has_a_smaller_rate() -> None:
    schedule = FAST.schedule(0)

    def rate(pairs: int) -> float:
        phase = Phase("forget", 16 * pairs, draw=None, loss=None, batch=4 * pairs, together=4)  # type: ignore[arg-type]
        return FAST.place_schedule(schedule, [phase]).learning_rate / schedule.learning_rate

    assert rate(FAST.batch) == rate(2 * FAST.batch) == 1
    assert rate(8) == pytest.approx((8 / FAST.batch) ** 0.48)
    assert rate(1) < rate(8)


def test_the_spread_of_several_proxies() -> None:
    assert between(np.array([[0.0, np.nan], [1.0, 5.0]])) == 0.5, "the second pair has one proxy only"
    assert between(np.array([[0.0, 1.0]])) == 0.0


@pytest.fixture(scope="module")
def original(dense: Collection, encoder: Path) -> Trained:
    return train(dense, "bi-encoder", str(encoder), method=Retrain(learning_rate=3e-3, epochs=4), device="cpu")


def test_pairs_come_nearer_to_their_places(
    original: Trained, dense: Collection, removal: Removal, capsys: pytest.CaptureFixture[str]
) -> None:
    record = replace(original.record, settings={})  # so that the proxy is trained by the recipe of its kind
    result = forget(original.ranker, dense, removal, method=FAST, record=record, device="cpu", keep_at_least=1.0)
    places = result.record.places
    assert min(result.kept.values()) < 1
    assert not result.limited, "what is kept counts at the end"
    assert places is not None
    assert (places.proxies, places.source, places.calibrated_on) == (1, "made", 0)
    assert places.distance_before is not None
    assert places.distance_after is not None
    assert places.distance_after < places.distance_before
    assert result.record.target_name == "places"
    assert result.target == places.mrr
    assert result.record.epochs == FAST.place_epochs, "the rate falls over the whole run"
    assert result.record.pairs is not None
    assert len(result.record.pairs.places) == result.record.pairs.pairs
    assert result.record.timing["proxies"] > 0
    assert "the target was the pairs' own places, with an MRR of" in verdict(result.record)
    said = closing(result, Path("out"))
    assert re.match(
        r"the reciprocal ranks of the forget queries are 0.\d{3} from those of their places on average", said
    )
    assert re.search(
        r"; the places are those of a proxy of 2 epochs that never saw it, not calibrated; .* to out$", said
    )
    show_worst_pair(result, dense, make_partition(dense, removal).forget)
    worst = r"document \w+: rank \d+ of 11 before, rank \d+ now, place \d+\n\d+ pairs stood higher than places allow, "
    assert re.search(worst, capsys.readouterr().out)


def test_a_run_says_that_its_places_show_little(
    original: Trained, dense: Collection, removal: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unrank.forgetting.outcome.MOST_ABOVE", -1.0)
    result = forget(original.ranker, dense, removal, method=FAST, record=original.record, device="cpu")
    assert result.record.places is not None and result.record.places.above is None, "a share is measured, not guessed"
    assert result.state == "forgotten, not verifiable"
    assert "its places show little, because too few pairs that no ranker saw were there to" in result.judgement.why


def test_a_check_of_few_pairs_is_one_measurement(
    original: Trained, dense: Collection, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(MrrEstimator, "estimate")
    reference = Reference(create_ranker("bi-encoder", str(encoder), 1), known=True)
    short, few = replace(FAST, place_epochs=2), Removal(queries=[f"query{number}" for number in range(3, 9)])
    result = forget(original.ranker, dense, few, method=short, reference=reference, device="cpu")
    assert [check.measured for check in result.record.history] == [True, True]


@pytest.mark.parametrize(
    ("missed", "epochs"), [([0], 2), ([3, 0], 4), ([3, 2], 4)], ids=["there", "there after two", "two rounds at most"]
)
def test_there_is_another_round_if_pairs_are_not_at_their_places(
    missed: list[int], epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, done = iter(missed), list[float]()
    goals = SimpleNamespace(pulls_up=True, few=False, left=lambda ranks: next(left))
    estimator = SimpleNamespace(measure=lambda: 0.5, pair_ranks=lambda: np.ones(1))
    clock = SimpleNamespace(on=lambda purpose: nullcontext())
    rule = PairStoppingRule(None, None, estimator, 0.5, 0.0, clock, 0, None, (1.0, {}), 1.0, goals=goals, round=2)  # type: ignore[arg-type]
    monkeypatch.setattr(rule, "_check", lambda interval: done.append(interval.epochs))
    monkeypatch.setattr(rule, "_return", lambda: None)
    monkeypatch.setattr(rule, "out_of_time", lambda: False)
    rule.follow(SimpleNamespace(epochs=half / 2) for half in range(1, 13))  # type: ignore[misc]
    assert done[-1] == epochs


def test_of_a_small_request_the_check_nearest_to_all_places_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own pairs and those of earlier requests. Among equal checks the last one counts.

    Earlier requests were at .1 when it began: what is beyond that is unmet.
    """
    apart, earlier = iter([0.4, 0.1, 0.0, 0.0]), iter([0.0, 0.0, 0.5, 0.1])
    rule = PairStoppingRule(
        *(SimpleNamespace(), None, SimpleNamespace(), 0.5, 0.0, None, 0, None, (1.0, {}), 1.0),  # type: ignore[arg-type]
        goals=SimpleNamespace(pulls_up=True, few=True),  # type: ignore[arg-type]
        earlier=(np.zeros((0, 2), np.int64), SimpleNamespace(before=0.1)),  # type: ignore[arg-type]
    )
    monkeypatch.setattr(rule, "_earlier_distance", lambda interval: next(earlier))
    ranks = []
    for _ in range(4):
        rule.distance = next(apart)
        ranks.append(rule._rank(SimpleNamespace(epochs=1)))  # type: ignore[arg-type]
    assert ranks == [(0.4, 0.4), (0.1, 0.1), (0.5, 0.4), (0.1, 0.0)]


@pytest.mark.parametrize(
    ("unmet", "alone", "epochs"),
    [([0.0] * 9, False, 2), ([0.5, 0.5, 0.0, 0.0], False, 3), ([0.5] * 9, False, 8), ([0.5] * 9, True, 4)],
    ids=["there", "there in a later round", "all rounds", "no earlier request"],
)
def test_in_a_row_rounds_go_on_until_nothing_is_unmet(
    unmet: list[float], alone: bool, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first round is run to its end; a later one ends with the epoch in which all is met."""
    goals = SimpleNamespace(pulls_up=True, few=True)
    estimator = SimpleNamespace(measure=lambda: 0.5, pair_ranks=lambda: np.ones(1))
    clock = SimpleNamespace(on=lambda purpose: nullcontext())
    rule = PairStoppingRule(None, None, estimator, 0.5, 0.0, clock, 0, None, (1.0, {}), 1.0, goals=goals, round=2)  # type: ignore[arg-type]
    if not alone:
        rule.earlier = np.zeros((1, 2), np.int64), SimpleNamespace()  # type: ignore[assignment]
    done, found = list[float](), iter(unmet)

    def check(interval: Interval) -> None:
        done.append(interval.epochs)
        rule.unmet = next(found)

    monkeypatch.setattr(rule, "_check", check)
    monkeypatch.setattr(rule, "_return", lambda: None)
    monkeypatch.setattr(rule, "out_of_time", lambda: False)
    rule.follow(SimpleNamespace(epochs=number) for number in range(1, 9))  # type: ignore[misc]
    assert done[-1] == epochs


def test_requests_that_are_away_from_their_places_count_and_their_pairs_are_marked() -> None:
    """The third pair has no place. The two of the first request are away, the one of the second is near."""
    there = np.array([True, True, False, True])
    places = EarlierPlaces.of(there, np.ones(3, np.float32), np.array([2, 4, 50]), np.array([7, 7, 9]))
    ranks = np.array([1, 2, 60])
    places.mark(ranks)
    assert places.away.tolist() == [True, True, False, False]
    assert places.distance(ranks) == pytest.approx((0.5 + 0.25) / 2)
    assert places.distance(np.array([2, 4, 50])) == 0.0


def test_a_run_that_is_not_at_its_places_runs_twice_as_long(
    original: Trained, dense: Collection, removal: Removal
) -> None:
    slow = replace(FAST, place_epochs=1, place_rounds=2, learning_rate=1e-4)
    result = forget(original.ranker, dense, removal, method=slow, record=original.record, device="cpu")
    assert (str(result.state), result.record.epochs) == ("not forgotten", 2)


def test_prepared_proxies_and_one_made_now(original: Trained, dense: Collection, removal: Removal) -> None:
    workspace = Workspace.for_removal(original.ranker, dense, removal, original.record, device="cpu")
    some = np.arange(len(workspace.partition.forget)) % 2 == 0
    proxies = [Proxy(original.ranker, some, "prepared", 3), Proxy(original.ranker, some | True, "made", 2)]
    places = find_places(workspace, original.ranker, workspace.scorer(original.ranker), proxies)
    assert (places.found.proxies, places.found.source, places.found.epochs) == (2, "prepared and made", 3)
    assert places.wanted == pytest.approx(workspace.scorer(original.ranker)(workspace.partition.forget), abs=1e-4)


def test_margins_are_mapped_less_of_the_way_if_much_is_removed(
    original: Trained, dense: Collection, removal: Removal, encoder: Path
) -> None:
    workspace = Workspace.for_removal(original.ranker, dense, removal, original.record, device="cpu")
    parts = replace(workspace.partition, reserved=workspace.partition.entangled)
    workspace, untrained = replace(workspace, partition=parts), create_ranker("bi-encoder", str(encoder), 1)
    own, theirs = workspace.scorer(original.ranker), workspace.scorer(untrained)
    said, level = margins(dense, parts.forget, theirs), calibration_level(parts)
    whole = mapped(said, margins(dense, parts.reserved, theirs), margins(dense, parts.reserved, own))
    part = said + level * (whole - said)
    assert 0 < level < 1
    assert not np.allclose(whole, said)
    for source, epochs, expected in [("made", 2, part), ("reference", 2, part), ("reference", 6, said)]:
        proxy = Proxy(untrained, np.ones(len(said), bool), source, epochs)  # type: ignore[arg-type]
        places = find_places(workspace, original.ranker, own, [proxy])
        assert places.wanted == pytest.approx(score_at(dense, parts.forget, own, expected), abs=1e-5)


def test_without_reserved_pairs_a_place_is_the_rank_in_the_list_of_the_proxy(dense: Collection) -> None:
    def shuffled(pairs: Pairs) -> NDArray[np.float32]:
        return np.array([hash((7, *pair)) % 9973 for pair in pairs.tolist()], np.float32)

    pairs = dense.pairs
    negatives = dense.negatives.pairs(np.unique(pairs[:, 0]))
    asked = ranks_among(pairs, shuffled(pairs), negatives, shuffled(negatives))
    wanted = margins_by_rank(dense, pairs, shuffled, scores)
    assert np.array_equal(rank_at(dense, pairs, scores, wanted), asked)
    assert len({*asked.tolist()}) > 8, "from the first to the last"
    assert margins_by_rank(dense, pairs, scores, scores) == pytest.approx(margins(dense, pairs, scores), abs=1e-5)


def test_the_level_of_a_ranker_with_less_data(dense: Collection) -> None:
    def level(queries: int) -> float:
        named = dense.queries.ids(np.unique(dense.pairs[:, 0])[:queries])
        return calibration_level(make_partition(dense, Removal(queries=named)))

    assert 0.8 < level(1) < 1
    assert level(1) > level(3)
    assert level(len(np.unique(dense.pairs[:, 0])) - 1) == 0


def test_a_run_is_the_same_if_the_original_was_measured_before(
    original: Trained, dense: Collection, removal: Removal
) -> None:
    workspace = Workspace.for_removal(original.ranker, dense, removal, original.record, device="cpu")
    before = workspace.scorecard(original.ranker)
    short = replace(FAST, place_epochs=1)
    runs = [
        forget(original.ranker, dense, removal, method=short, record=original.record, device="cpu", before=known)
        for known in (None, before)
    ]
    states = [run.ranker.state_dict() for run in runs]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_another_way_to_find_places_is_another_run(original: Trained, dense: Collection, removal: Removal) -> None:
    workspace = Workspace.for_removal(original.ranker, dense, removal, original.record, device="cpu")
    every: list[dict[str, Any]] = [{}, {"proxy_epochs": 1}, {"proxies": "there"}]
    found = [run_fingerprint(workspace, original.ranker, FAST, ForgetOptions(**some), Base(), None) for some in every]
    assert found[0] != found[1]
    assert found[0] != found[2]


def test_a_run_to_places_has_no_more_epochs_than_the_method() -> None:
    schedule = replace(FAST, epochs=2).place_schedule(FAST.schedule(0), ())
    assert schedule.epochs == 2


def test_what_was_brought_to_places_is_done_until_it_comes_back(
    original: Trained, dense: Collection, removal: Removal
) -> None:
    done: dict[str, Any] = {"method": "cocol", "target": 0.5, "target_name": "places", "reached": True, "epochs": 1}
    record = replace(original.record, removed=hashed(removal), **done)
    workspace = Workspace.for_removal(original.ranker, dense, removal, record, device="cpu")

    def fulfilled(mean: float, before: Record = record, apart: bool = False) -> bool:
        there = replace(workspace, previous=previous_removals(dense, before))
        now = SetMetrics(np.array([0]), np.array([mean]), mean, mean, mean, mean)
        return fulfilled_goal(there, FAST, "places", 0.4, now, missed=1, apart=apart) == 0.4

    assert fulfilled(0.54)
    assert not fulfilled(0.54, apart=True), "a mean does not help a request that is judged by itself"
    assert not fulfilled(0.6)
    assert not fulfilled(0.54, replace(record, reached=False))
    assert not fulfilled(0.54, replace(record, state="not forgotten"))
    assert not fulfilled(0.54, replace(record, target_name="test-mrr"))
    assert fulfilled(0.9, replace(record, method="retrain")), "a ranker that never saw it has nothing to forget"


def test_unseen_is_another_name_for_places(original: Trained, dense: Collection, removal: Removal) -> None:
    result = forget(original.ranker, dense, removal, method="retrain", target="unseen", record=original.record)
    assert result.record.target_name == "test-mrr", "a method that stops by its own measure needs no proxy"
    assert result.record.places is None


def test_a_method_without_goals_stops_at_the_mean_of_the_places(
    original: Trained, dense: Collection, removal: Removal
) -> None:
    result = forget(original.ranker, dense, removal, method="neggrad", record=original.record, settings={"epochs": "2"})
    assert result.record.places is not None
    assert result.target == result.record.places.mrr
    assert result.record.pairs is not None
    assert result.record.pairs.places, "its pairs are judged by their places all the same"


def test_without_a_base_places_are_estimated(original: Trained, dense: Collection, removal: Removal) -> None:
    result = forget(original.ranker, dense, removal, method=FAST)
    assert result.record.places is not None
    assert (result.record.places.proxies, result.record.places.source) == (0, "estimated")
    assert 0 < result.record.places.calibrated_on <= len(dense.test_pairs)


def test_nothing_to_estimate_by(original: Trained, tmp_path: Path) -> None:
    few = make_collection(tmp_path / "few", [("q1", "d1"), ("q2", "d2"), ("q3", "d3")])
    with pytest.raises(UnrankError, match="needs the model that the ranker was trained from, or test queries"):
        forget(original.ranker, few, Removal(queries=["q1"]), method=FAST)


def test_places_of_an_unfinished_run_are_read_again(golden: Collection) -> None:
    pairs = golden.pairs[:2]
    places = places_at(golden, pairs, scores, np.full(2, -0.3), FOUND)
    again = Places.of(pairs, places.state())
    assert again.found == places.found
    assert all((getattr(again, name) == getattr(places, name)).all() for name in ("least", "wanted", "ranks"))
