"""p-values from resamples, Holm's correction, and non-inferiority."""

from __future__ import annotations

import numpy as np
import pytest

from unrank.evaluation.bootstrap import BootstrapEstimate
from unrank.evaluation.significance import holm, holm_adjusted, inferiority, two_sided


def test_adjusted_values_rise_with_the_given_ones_and_decide_alike() -> None:
    chances = {"a": 0.04, "b": 0.001, "c": 0.012, "d": 0.9}
    adjusted = holm_adjusted(chances)
    assert adjusted == pytest.approx({"a": 0.08, "b": 0.004, "c": 0.036, "d": 0.9})
    assert holm(chances) == {"b", "c"}
    assert holm({"a": 0.025, "b": 0.05}) == {"a", "b"}
    assert holm_adjusted({}) == {}


def test_a_difference_that_is_not_there_is_found_no_more_often_than_said() -> None:
    generator = np.random.default_rng(0)
    chances = [two_sided(BootstrapEstimate.of_mean(generator.normal(0, 1, 80), seed).resampled) for seed in range(200)]
    assert np.mean(np.array(chances) < 0.05) < 0.1
    assert two_sided(BootstrapEstimate.of_mean(generator.normal(1, 1, 80)).resampled) < 0.01


def test_what_cannot_be_resampled_is_undecided() -> None:
    unknown = BootstrapEstimate(0.0, np.array([np.nan, 0.0]), 1)
    assert inferiority(unknown, 0.01) == "undecided"
    assert inferiority(BootstrapEstimate.of_mean(np.zeros(40)), 0.01) == "not inferior"
    assert inferiority(BootstrapEstimate.of_mean(np.full(40, -0.02)), 0.01) == "inferior"
