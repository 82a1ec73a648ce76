"""Bootstrap estimates: their differences are paired."""

from __future__ import annotations

import numpy as np
import pytest

from unrank.evaluation import bootstrap
from unrank.evaluation.bootstrap import (
    BootstrapEstimate,
    ResampledSets,
    interval,
    paired_interval,
    resampled_nested,
    times_drawn,
)
from unrank.evaluation.measure import area_under_curve, found_at


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
    counts = times_drawn(owner, seed=3)
    assert counts.shape == (bootstrap.RESAMPLES, 6)
    assert (counts[:, 0] == counts[:, 2]).all() and (counts[:, 0] == counts[:, 3]).all()
    assert (counts[:, 1] == counts[:, 5]).all()
    assert (counts[:, 0] + counts[:, 1] + counts[:, 4] == 3).all()
    assert counts[:, 4].mean() == pytest.approx(1.0, abs=0.1)
    assert (counts == times_drawn(owner, seed=3)).all()


def test_the_separation_of_each_resample_is_that_of_the_values_it_holds() -> None:
    """By hand: values are repeated as often as they are drawn. Ties and owners of several values are among them."""
    generator = np.random.default_rng(0)
    members, strangers = generator.integers(9, size=30).astype(float), generator.integers(7, size=150).astype(float)
    drawn = ResampledSets.of(np.arange(30) // 3, np.arange(150) // 2, seed=4)
    area, found = drawn.area(members, strangers, 10), drawn.found(members, strangers, 10)
    for row in range(0, bootstrap.RESAMPLES, 50):
        both = np.repeat(members, drawn.members[row]), np.repeat(strangers, drawn.strangers[row])
        assert area.resampled[row] == pytest.approx(area_under_curve(*both))
        assert found.resampled[row] == pytest.approx(found_at(*both))
    assert area.value == area_under_curve(members, strangers) and found.value == found_at(members, strangers)


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
