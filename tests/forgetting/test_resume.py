"""A run that was stopped goes on where it was, and ends with the very same weights."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.test_checkpoint import files_at_most
from tests.forgetting.conftest import FAST, QUICK_TRAINING
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.collection.texts import Rows
from unrank.disk import CHECKPOINT, beside, check_result
from unrank.engine.distributed import ProcessGroup
from unrank.engine.resume import resumable
from unrank.engine.runtime import Silence
from unrank.engine.tokens import Encodings, KeptEncodings
from unrank.errors import NotFinite, Stopped, UnrankError
from unrank.forgetting.forget import Forgotten, forget
from unrank.forgetting.options import Pace
from unrank.forgetting.train import Lessons, Trained, train
from unrank.methods.amnesiac import Amnesiac
from unrank.methods.bad_teacher import BadTeacher
from unrank.methods.base import Method
from unrank.methods.finetune import Finetune
from unrank.methods.neggrad import NegGrad
from unrank.methods.npo import NegativePreference
from unrank.methods.salun import SalientUnlearning
from unrank.methods.scrub import Scrub
from unrank.methods.ssd import SelectiveDampening
from unrank.methods.task_negation import TaskNegation
from unrank.rankers import create_ranker
from unrank.record import Check

OUT_OF_REACH = 0.01
SLOW = pytest.mark.slow
QUICK = ("cocol", "retrain")
"""A steered method and one that trains anew: the others go on by the same steps."""
Job = Callable[..., Any]

METHODS: dict[str, Method] = {
    "cocol": replace(FAST, epochs=4),
    "retrain": replace(QUICK_TRAINING, epochs=2),
    "finetune": Finetune(learning_rate=1e-3, epochs=2, batch=64, negatives=2),
    "amnesiac": Amnesiac(learning_rate=1e-3, epochs=3, batch=64, negatives=2),
    "neggrad": NegGrad(learning_rate=1e-3, epochs=4),
    "ssd": SelectiveDampening(),
    "bad-teacher": BadTeacher(learning_rate=1e-3, epochs=2, batch=32),
    "npo": NegativePreference(learning_rate=1e-3, epochs=3, batch=16, gru=True, warm_up=4),
    "scrub": Scrub(learning_rate=1e-3, epochs=3, batch=32),
    "salun": SalientUnlearning(learning_rate=1e-3, epochs=3, batch=16),
    "task-negation": TaskNegation(learning_rate=1e-4, epochs=3, batch=64, negatives=2),
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
    for share in (0.4, 0.7):
        try:
            with resumable(out, every=0) as run:
                return job(run=run, progress=StopAfter(int(share * strides)))
        except Stopped:
            stops += 1
    assert stops
    with resumable(out) as run:
        return job(run=run)


def assert_same(one: Trained | Forgotten, other: Trained | Forgotten) -> None:
    weights = [list(result.ranker.named_parameters()) for result in (one, other)]
    assert all(torch.equal(here, there) for (_, here), (_, there) in zip(*weights, strict=True))
    histories = [[replace(line, seconds=0) for line in result.record.history] for result in (one, other)]
    assert histories[0] == histories[1]
    assert one.after.to_json() == other.after.to_json()


@pytest.mark.parametrize("method", [name if name in QUICK else pytest.param(name, marks=SLOW) for name in METHODS])
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
        pytest.param({"pace": Pace(check_every=3)}, marks=SLOW),
        pytest.param({"freeze": "documents", "method": METHODS["finetune"]}, marks=SLOW),
        {"freeze": "documents", "target": OUT_OF_REACH},
        pytest.param({"train_layers": 1, "method": METHODS["amnesiac"]}, marks=SLOW),
        pytest.param({"check_recovery": True}, marks=SLOW),
        pytest.param({"target": "beyond:9", "keep_at_least": 0.1}, marks=SLOW),
    ],
    ids=lambda options: " ".join(options),
)
def test_forgetting_goes_on_however_it_is_done(
    options: dict[str, Any], trained: Trained, dense: Collection, removal: Removal, target: float, tmp_path: Path
) -> None:
    def job(**more: Any) -> Forgotten:
        chosen: dict[str, Any] = {"method": METHODS["cocol"], "target": target} | options | more
        return forget(trained.ranker, dense, removal, **chosen)

    whole, strides = strides_of(job)
    assert_same(stopped_and_resumed(job, tmp_path / "out", strides), whole)


def test_training_goes_on(dense: Collection, encoder: Path, tmp_path: Path) -> None:
    def job(**options: Any) -> Trained:
        return train(
            dense, "cross-encoder", str(encoder), method=replace(QUICK_TRAINING, epochs=2, negatives=1), **options
        )

    whole, strides = strides_of(job)
    assert_same(stopped_and_resumed(job, tmp_path / "out", strides), whole)


def test_what_is_kept_of_frozen_documents_is_made_in_the_same_batches(
    trained: Trained, dense: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last bits of a vector may depend on what it was encoded with, on wide encoders."""
    little = Removal(pairs=dense.pair_ids(dense.pairs[:1]))
    made: list[list[int]] = []
    keep = KeptEncodings._keep

    def logged(self: KeptEncodings, rows: Rows, encode: Callable[[Rows], Encodings]) -> None:
        made.append(rows.tolist())
        keep(self, rows, encode)

    def job(**options: Any) -> Forgotten:
        made.clear()
        method = Finetune(learning_rate=1e-3, epochs=1, batch=8, negatives=1)
        return quick(trained, dense, little, method=method, measure=1, freeze="documents", **options)

    monkeypatch.setattr(KeptEncodings, "_keep", logged)
    _, strides = strides_of(job)
    whole = list(made)
    assert len(whole) > 2, "no step has encoded anything"
    stopped_and_resumed(job, tmp_path / "out", strides)
    assert made == whole


def quick(trained: Trained, dense: Collection, removal: Removal, **options: Any) -> Forgotten:
    """A few steps that never get there."""
    chosen: dict[str, Any] = {"method": replace(FAST, epochs=1), "target": OUT_OF_REACH} | options
    return forget(trained.ranker, dense, removal, **chosen)


@pytest.fixture
def stopped(trained: Trained, dense: Collection, removal: Removal, tmp_path: Path) -> Path:
    """The result-to-be of a run that was stopped in its steps."""
    with pytest.raises(Stopped, match="the same command goes on from"), resumable(tmp_path / "out", every=0) as run:
        quick(trained, dense, removal, run=run, progress=StopAtStep(3))
    return tmp_path / "out"


class StopAtStep(StopAfter):
    """Counts the strides of epochs alone."""

    _counts = False

    def begin(self, what: str, steps: int) -> None:
        self._counts = what.startswith("epoch")

    def advance(self, steps: int = 1) -> None:
        if self._counts:
            super().advance(steps)


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"seed": 1}, "seed is 0 there and 1 here"),
        ({"method": replace(FAST, epochs=1, learning_rate=2e-3)}, "learning_rate is 0.001 there and 0.002 here"),
        ({"method": NegGrad(epochs=1)}, "method is cocol there and neggrad here"),
        ({"target": 0.02}, "target is 0.01 there and 0.02 here"),
        ({"pace": Pace(check_every=2)}, "check_every is None there and 2 here"),
        ({"freeze": "documents"}, "freeze is None there and documents here"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_run_is_refused_with_what_differs(
    other: dict[str, Any], named: str, trained: Trained, dense: Collection, removal: Removal, stopped: Path
) -> None:
    before = (beside(stopped) / CHECKPOINT).read_bytes()
    with pytest.raises(UnrankError, match=named), resumable(stopped) as run:
        quick(trained, dense, removal, run=run, **other)
    assert (beside(stopped) / CHECKPOINT).read_bytes() == before


def test_other_data_and_another_ranker_are_refused(
    trained: Trained, golden: Collection, dense: Collection, removals: dict[str, Removal], encoder: Path, stopped: Path
) -> None:
    with pytest.raises(UnrankError, match=r"removal is .* there and .* here"), resumable(stopped) as run:
        quick(trained, dense, removals["queries"], run=run)
    with pytest.raises(UnrankError, match=r"collection is .* there and .* here"), resumable(stopped) as run:
        quick(trained, golden, Removal(documents=["d2"]), run=run)
    other = replace(trained, ranker=create_ranker("bi-encoder", str(encoder), 0))
    with pytest.raises(UnrankError, match=r"weights is .* there and .* here"), resumable(stopped) as run:
        quick(other, dense, removals["documents"], run=run)


def test_a_new_beginning_forgets_the_old_one(
    trained: Trained, dense: Collection, removal: Removal, stopped: Path
) -> None:
    with resumable(stopped, resume=False) as run:
        again = quick(trained, dense, removal, run=run, seed=1)
    assert_same(again, quick(trained, dense, removal, seed=1))
    assert not beside(stopped).exists()


def test_two_jobs_cannot_share_a_folder(stopped: Path) -> None:
    with resumable(stopped), pytest.raises(UnrankError, match="another job is at work on"), resumable(stopped):
        pass


def test_what_is_whole_leaves_nothing_behind(trained: Trained, stopped: Path) -> None:
    """A run may be killed between its last two deeds: the result is there, and what it forgot beside it."""
    trained.save(stopped)
    with pytest.raises(UnrankError, match="exists already"):
        check_result(stopped)
    assert not beside(stopped).exists()


def test_a_run_that_cannot_begin_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UnrankError, match="no"), resumable(tmp_path / "new" / "out"):
        raise UnrankError("no")
    assert not [*tmp_path.iterdir()]


def test_steps_that_come_to_nothing_are_not_kept(
    trained: Trained, dense: Collection, removal: Removal, tmp_path: Path
) -> None:
    hopeless = NegGrad(learning_rate=1e30)
    with pytest.raises(NotFinite), resumable(tmp_path / "out", every=0) as run:
        quick(trained, dense, removal, method=hopeless, run=run)
    assert not [*tmp_path.iterdir()]


def test_time_before_a_stop_counts(trained: Trained, dense: Collection, removal: Removal, stopped: Path) -> None:
    with resumable(stopped) as run:
        result = quick(trained, dense, removal, run=run, pace=Pace())
    steps = result.record.timing["steps"]
    assert steps == pytest.approx(sum(line.seconds for line in result.record.history))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_a_step_waits_for_its_end(number: signal.Signals, tmp_path: Path) -> None:
    unusual = signal.signal(number, signal.default_int_handler)  # one that is ignored, as in the background, stays so
    before = signal.getsignal(number)
    done = []
    with pytest.raises(Stopped, match="stopped"), resumable(tmp_path / "out") as run:
        run.follow(print, ProcessGroup(), done=Lessons())
        with run.step():
            signal.raise_signal(number)
            done.append("whole")
    assert done == ["whole"]
    assert (beside(tmp_path / "out") / CHECKPOINT).exists()
    assert signal.getsignal(number) == before
    signal.signal(number, unusual)


def test_of_several_processes_the_first_writes_and_the_others_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, kept = tmp_path / "out", beside(tmp_path / "out") / CHECKPOINT
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(Stopped, match="the same command goes on"), resumable(out, every=0) as run:
        run.claim(lambda: {"seed": 1})
        run.follow(print, ProcessGroup(), done=Lessons([Check(1)]))
        with run.step():
            pass
        raise KeyboardInterrupt
    written = kept.read_bytes()
    monkeypatch.setenv("RANK", "1")
    with resumable(out, every=0) as run:
        run.claim(lambda: {"seed": 1})
        lessons = Lessons()
        with pytest.raises(UnrankError, match="do not see the same checkpoint"):
            run.follow(print, Disagreeing(), done=lessons)
        run.follow(print, ProcessGroup(), done=lessons)
        with run.step():
            pass
    assert lessons.history == [Check(1)]
    assert kept.read_bytes() == written


class Disagreeing(ProcessGroup):
    def all_have(self, number: int) -> bool:
        assert number > 0
        return False


class Hearing(Silence):
    def __init__(self, hear: Callable[[str], None]) -> None:
        self._hear = hear

    def say(self, line: str) -> None:
        self._hear(line)


def test_a_full_disk_does_not_end_a_run(trained: Trained, dense: Collection, removal: Removal, tmp_path: Path) -> None:
    said: list[str] = []
    listener = Hearing(said.append)
    with resumable(tmp_path / "out", every=0) as run, files_at_most(20_000):
        result = quick(trained, dense, removal, run=run, progress=listener)
    assert_same(result, quick(trained, dense, removal))
    assert len([line for line in said if "cannot be written" in line and line.endswith("going on without")]) == 1


def test_a_clock_that_jumps_does_no_harm(
    trained: Trained, dense: Collection, removal: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = quick(trained, dense, removal, pace=Pace(minutes=10))
    hours = itertools.cycle([0.0, -9e5, 9e5])
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + next(hours))
    jumpy = quick(trained, dense, removal, pace=Pace(minutes=10))
    assert_same(jumpy, whole)
    assert 0 < jumpy.record.seconds < 600
