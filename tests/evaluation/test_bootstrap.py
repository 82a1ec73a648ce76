"""Bootstrap estimates: their differences are paired."""

from __future__ import annotations

import numpy as np
import pytest

from unrank.evaluation import bootstrap
from unrank.evaluation.bootstrap import BootstrapEstimate, interval, paired_interval, resampled_nested, resamples


def test_a_mean_has_the_interval_of_the_scorecard() -> None:
    values = np.random.default_rng(1).random(40)
    estimate = BootstrapEstimate.of_mean(values)
    assert estimate.value == pytest.approx(values.mean())
    assert (estimate.low, estimate.high) == interval(values)
    assert estimate.to_json() == {"figure": estimate.value, "low": estimate.low, "high": estimate.high, "queries": 40}


def test_differences_and_means_are_paired() -> None:
    before, after = np.random.default_rng(2).random((2, 40))
    one, other = BootstrapEstimate.of_mean(before), BootstrapEstimate.of_mean(after)
    assert (other - one).interval == pytest.approx(paired_interval(before, after))
    assert BootstrapEstimate.mean_of([one, other]).interval == pytest.approx(interval((before + after) / 2))


def test_an_owner_is_drawn_with_all_that_is_its_own() -> None:
    owner = np.array([5, 2, 5, 5, 8, 2])
    drawn = list(resamples(owner, seed=3))
    assert len(drawn) == bootstrap.RESAMPLES
    counts = np.array([np.bincount(places, minlength=6) for places in drawn])
    assert (counts[:, 0] == counts[:, 2]).all() and (counts[:, 0] == counts[:, 3]).all()
    assert (counts[:, 1] == counts[:, 5]).all()
    assert (counts[:, 0] + counts[:, 1] + counts[:, 4] == 3).all()
    assert counts[:, 4].mean() == pytest.approx(1.0, abs=0.1)
    assert all((one == other).all() for one, other in zip(drawn, resamples(owner, seed=3), strict=True))


def test_a_hierarchy_varies_with_its_seeds_and_draws() -> None:
    """Ten draws that differ, of queries that do not: the pooled queries would hide that."""
    generator = np.random.default_rng(5)
    levels = generator.normal(0.0, 1.0, (2, 5))
    seeds = [[np.full((200, 1), level) for level in draws] for draws in levels]
    spread = resampled_nested(seeds, 1)[:, 0].std()
    within = np.sqrt((levels.var(axis=1) / 5).mean() / 2)  # the draws of a seed
    assert spread >= within
    assert spread == pytest.approx(np.sqrt(within**2 + levels.mean(axis=1).var() / 2), rel=0.15)
    assert resampled_nested(seeds, 1).mean() == pytest.approx(levels.mean(), abs=0.1)


def test_seeds_and_draws_of_unequal_size_count_alike() -> None:
    seeds = [[np.zeros((3, 1)), np.zeros((30, 1))], [np.ones((500, 1))]]
    assert resampled_nested(seeds).mean() == pytest.approx(0.5, abs=0.05)
    alone = resampled_nested([[np.arange(20.0)[:, None]]], 7)
    assert np.allclose(alone[:, 0], bootstrap.resampled_means(np.arange(20.0), 7))
