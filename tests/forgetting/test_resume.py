"""A run that was stopped goes on where it was, and ends with the very same weights."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.forgetting.conftest import FAST, QUICK_TRAINING
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.engine.runtime import Silence
from unrank.engine.unfinished import beside, unfinished
from unrank.errors import Stopped
from unrank.forgetting.forget import Forgotten, forget
from unrank.forgetting.run import Pace
from unrank.forgetting.train import Trained, train
from unrank.methods.amnesiac import Amnesiac
from unrank.methods.bad_teacher import BadTeacher
from unrank.methods.base import Method
from unrank.methods.finetune import Finetune
from unrank.methods.neggrad import NegGrad
from unrank.methods.ssd import SelectiveDampening

OUT_OF_REACH = 0.01
Job = Callable[..., Any]

METHODS: dict[str, Method] = {
    "cocol": replace(FAST, epochs=4),
    "retrain": replace(QUICK_TRAINING, epochs=3),
    "finetune": Finetune(learning_rate=1e-3, epochs=2, batch=64, negatives=2),
    "amnesiac": Amnesiac(learning_rate=1e-3, epochs=3, batch=64, negatives=2),
    "neggrad": NegGrad(learning_rate=1e-3, epochs=4),
    "ssd": SelectiveDampening(),
    "bad-teacher": BadTeacher(learning_rate=1e-3, epochs=2, batch=32),
}


class StopAfter(Silence):
    """Sends a signal to stop after so many strides of the job."""

    def __init__(self, strides: int, number: signal.Signals = signal.SIGTERM) -> None:
        self.left, self._number = strides, number

    def advance(self, steps: int = 1) -> None:
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), self._number)


def strides_of(job: Job) -> tuple[Any, int]:
    """What a job comes to if nobody stops it, and how many strides it takes."""
    counter = StopAfter(-1)
    return job(progress=counter), -1 - counter.left


def stopped_and_resumed(job: Job, out: Path, strides: int) -> Any:
    """What a job comes to that is stopped again and again, a few strides later each time."""
    stops = 0
    for share in (0.3, 0.6, 0.8):
        try:
            with unfinished(out, every=0) as run:
                return job(run=run, progress=StopAfter(int(share * strides)))
        except Stopped:
            stops += 1
    assert stops
    with unfinished(out) as run:
        return job(run=run)


def assert_same(one: Trained | Forgotten, other: Trained | Forgotten) -> None:
    weights = [list(result.ranker.named_parameters()) for result in (one, other)]
    assert all(torch.equal(here, there) for (_, here), (_, there) in zip(*weights, strict=True))
    histories = [[{**line, "seconds": 0} for line in result.record.history] for result in (one, other)]
    assert histories[0] == histories[1]
    assert one.after.to_json() == other.after.to_json()


@pytest.mark.parametrize("method", METHODS)
def test_forgetting_goes_on(
    method: str, trained: Trained, dense: Collection, removal: Removal, target: float, encoder: Path, tmp_path: Path
) -> None:
    def job(**options: Any) -> Forgotten:
        return forget(
            trained.ranker, dense, removal, method=METHODS[method], target=target, base=str(encoder), **options
        )

    whole, strides = strides_of(job)
    assert_same(stopped_and_resumed(job, tmp_path / "out", strides), whole)
    assert not beside(tmp_path / "out").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"pace": Pace(check_every=3)},
        {"freeze": "documents", "method": METHODS["finetune"]},
        {"freeze": "documents", "target": OUT_OF_REACH},
        {"train_layers": 1, "method": METHODS["amnesiac"]},
        {"check_recovery": True},
    ],
    ids=lambda options: " ".join(options),
)
def test_forgetting_goes_on_however_it_is_done(
    options: dict[str, Any], trained: Trained, dense: Collection, removal: Removal, target: float, tmp_path: Path
) -> None:
    def job(**more: Any) -> Forgotten:
        return forget(trained.ranker, dense, removal, **{"method": METHODS["cocol"], "target": target} | options | more)

    whole, strides = strides_of(job)
    assert_same(stopped_and_resumed(job, tmp_path / "out", strides), whole)


def test_training_goes_on(dense: Collection, encoder: Path, tmp_path: Path) -> None:
    def job(**options: Any) -> Trained:
        return train(dense, "cross-encoder", str(encoder), method=METHODS["retrain"], **options)  # type: ignore[arg-type]

    whole, strides = strides_of(job)
    assert_same(stopped_and_resumed(job, tmp_path / "out", strides), whole)
