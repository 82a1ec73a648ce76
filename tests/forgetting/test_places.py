"""Places: where a ranker that never saw a pair puts it, and runs that bring pairs there."""

from __future__ import annotations

from dataclasses import replace
from math import floor, sqrt
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.tiny import make_collection
from unrank.collection.collection import Collection, Pairs
from unrank.collection.removal import Removal
from unrank.errors import UnrankError
from unrank.forgetting.forget import forget
from unrank.forgetting.places import Places, between, mapped, margins, places_at
from unrank.forgetting.train import Trained, train
from unrank.methods.cocol import Cocol
from unrank.methods.retrain import Retrain
from unrank.record import PlacesFound

FAST = Cocol(learning_rate=1e-3, batch=16, warm_up=1, place_epochs=3)
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
    same = places_at(golden, pairs, scores, there, FOUND)
    assert same.wanted == pytest.approx(scores(pairs))
    lowest = places_at(golden, pairs, scores, np.full(2, -1.5), FOUND)
    entries = golden.negatives.counts[pairs[:, 0]] + 1
    assert lowest.ranks.tolist() == entries.tolist(), "below every negative"
    highest = places_at(golden, pairs, scores, np.full(2, 0.5), FOUND)
    assert highest.ranks.tolist() == [1, 1]
    assert highest.mrr == 1.0


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


def test_margins_are_mapped_quantile_to_quantile() -> None:
    known, wanted = np.linspace(0, 1, 50), np.linspace(10, 30, 80)
    assert mapped(np.array([0.0, 0.5, 1.0, 7.0]), known, wanted) == pytest.approx([10, 20, 30, 30])


def test_the_spread_of_several_proxies() -> None:
    assert between(np.array([[0.0, np.nan], [1.0, 5.0]])) == 0.5, "the second pair has one proxy only"
    assert between(np.array([[0.0, 1.0]])) == 0.0


@pytest.fixture(scope="module")
def original(dense: Collection, encoder: Path) -> Trained:
    return train(dense, "bi-encoder", str(encoder), method=Retrain(learning_rate=3e-3, epochs=4), device="cpu")


def test_pairs_come_nearer_to_their_places(original: Trained, dense: Collection, removal: Removal) -> None:
    result = forget(original.ranker, dense, removal, method=FAST, record=original.record, device="cpu")
    places = result.record.places
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
