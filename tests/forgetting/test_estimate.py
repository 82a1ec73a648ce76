"""How long a run would take is timed on steps that change nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from unrank.collection.collection import Collection
from unrank.collection.partition import partition
from unrank.collection.removal import Removal
from unrank.engine.loop import step as usual
from unrank.forgetting import estimate as module
from unrank.forgetting.estimate import estimate
from unrank.forgetting.train import Trained
from unrank.methods import make_method

METHODS = ["cocol", "retrain", "finetune", "ssd"]


@pytest.mark.parametrize("name", METHODS)
def test_each_phase_is_timed_after_it_is_warm_and_nothing_moves(
    name: str, trained: Trained, dense: Collection, removal: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = copy.deepcopy(trained.ranker.state_dict())
    method, parts, sizes = make_method(name, ranker=trained.ranker.kind), partition(dense, removal), []

    def step(ranker: Any, phase: Any, samples: Any, *more: Any) -> Any:
        assert ranker is not trained.ranker
        sizes.append((phase.name, len(samples)))
        return usual(ranker, phase, samples, *more)

    monkeypatch.setattr(module, "step", step)
    monkeypatch.setattr(module, "WARM_UP", {"cpu": 2})
    monkeypatch.setattr(module, "TIMED_STEPS", {"cpu": 3})
    monkeypatch.setattr(module, "TIMED_SAMPLES", {"cpu": 4})
    assert estimate(trained.ranker, dense, parts, method, device="cpu") > 0
    assert {sizes.count(timed) for timed in sizes} == {5}
    assert {size for _, size in sizes} == {4}
    for key, value in trained.ranker.state_dict().items():
        assert torch.equal(value, before[key])
