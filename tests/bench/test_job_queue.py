"""The queue of jobs: nothing twice, nothing too soon, and the expected time; workers and their GPUs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.bench.conftest import Grid, cells_of
from unrank.bench.cell import Cell, Job, Original
from unrank.bench.job_queue import JobQueue
from unrank.bench.run import Eta
from unrank.bench.runner import JobRunner
from unrank.bench.store import FinishedCell, Store
from unrank.bench.worker_pool import Processes, open_pool

TWO = 'removals = ["documents"]\nmethods = ["retrain", "cocol", "ssd"]\nseeds = [0, 1]'


def open_queue(path: Path) -> JobQueue:
    return JobQueue(cells_of(path), finished=(), trained=())


def label(job: Original | Cell | None) -> str:
    if job is None:
        return "nothing"
    return f"original {job.seed}" if isinstance(job, Original) else f"{job.label} {job.original.seed}"


def test_two_workers_never_train_the_same_and_stay_with_what_they_have(grid: Grid) -> None:
    queue = open_queue(grid(TWO))
    first, second = queue.take(None), queue.take(None)
    assert [label(job) for job in (first, second, queue.take(None))] == ["original 0", "original 1", "nothing"]
    assert first is not None and second is not None
    queue.done(second)
    retrain = queue.take(second.name)
    assert label(retrain) == "retrain 1"
    assert label(queue.take(None)) == "nothing"  # cocol waits for its destination, ssd for what it is compared with
    assert retrain is not None
    queue.done(first)
    queue.done(retrain)
    assert label(queue.take(second.name)) == "cocol 1"
    assert label(queue.take(second.name)) == "ssd 1"
    assert label(queue.take(second.name)) == "retrain 0"


def test_what_another_bench_has_is_left_to_it(grid: Grid) -> None:
    queue = open_queue(grid(TWO))
    names = {label(job): job.name for job in queue.left}
    free = queue.take(None, {names["original 0"]})
    assert label(free) == "original 1", "another machine loads the first"
    assert queue.take(None, (), lambda job: False) is None
    assert free is not None
    queue.put_back(free)
    assert free.name in queue.open and len(queue.left) == 8
    queue.done(free)
    queue.done(queue.open[names["retrain 1"]])
    assert label(queue.take(free.name)) == "cocol 1"


def test_what_is_finished_is_not_handed_out(grid: Grid) -> None:
    cells = cells_of(grid(TWO))
    trained = {cell.original.name for cell in cells}
    queue = JobQueue(cells, {cell.name for cell in cells if cell.original.seed == 0}, trained)
    assert {label(job) for job in queue.left} == {"retrain 1", "cocol 1", "ssd 1"}
    only_cocol = JobQueue(cells, {cell.name for cell in cells if cell.label != "cocol"}, ())
    assert [label(job) for job in only_cocol.left] == ["original 0", "cocol 0", "original 1", "cocol 1"]
    assert JobQueue(cells, {cell.name for cell in cells}, ()).left == []


def test_what_fails_takes_down_what_needs_it_and_no_more(grid: Grid) -> None:
    queue = open_queue(grid(TWO))
    first, second = queue.take(None), queue.take(None)
    assert first is not None and second is not None
    assert [label(job) for job in queue.failed(first)] == ["retrain 0", "cocol 0", "ssd 0"]
    queue.done(second)
    retrain = queue.take(second.name)
    assert retrain is not None
    assert queue.take(second.name) is None
    assert [label(job) for job in queue.failed(retrain)] == ["cocol 1"]
    assert [label(job) for job in queue.left] == ["ssd 1"]
    assert label(queue.take(second.name)) == "ssd 1", "it is only compared with what failed"


def test_the_time_left_goes_by_the_nearest_that_is_done(grid: Grid) -> None:
    cells = cells_of(grid(TWO, rankers='["bi-encoder", "colbert"]'))
    cocol, colbert = (next(cell for cell in cells if cell.label == "cocol" and cell.original.ranker == kind)
                      for kind in ("bi-encoder", "colbert"))  # fmt: skip
    ssd = next(cell for cell in cells if cell.label == "ssd")
    assert Eta([]).left([cocol], 1) is None
    original = cocol.original
    eta = Eta([FinishedCell("cocol", original.ranker, original.fingerprint, "cocol", "", 10.0, 40.0)])
    assert eta.left([cocol], 1) == 10
    assert eta.left([colbert], 1) == 10
    assert eta.left([cocol.original], 1) == 40
    assert eta.left([ssd], 1) == 25  # like nothing that is done: the mean of all
    eta.learn(colbert, 30.0)
    assert eta.left([cocol, colbert], 2) == 20
    assert eta.left([], 2) == 0


class ShownGpu(JobRunner):
    """Runs nothing, and says which GPU its process may use."""

    def run(self, job: Job) -> str:
        return os.environ["CUDA_VISIBLE_DEVICES"]


def test_each_worker_has_a_gpu_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    three = Processes(ShownGpu(Store(tmp_path), "auto", False), jobs=3)
    assert [worker.gpu for worker in three.workers] == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    two = Processes(ShownGpu(Store(tmp_path), "cuda", False), jobs=2)
    assert [worker.gpu for worker in two.workers] == ["4", "7"]
    on_cpu = Processes(ShownGpu(Store(tmp_path), "cpu", False), jobs=2)
    assert [worker.gpu for worker in on_cpu.workers] == [None, None]


@pytest.mark.slow
def test_a_worker_sees_its_gpu_alone(grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow: each worker is a process that imports torch."""
    cells = cells_of(grid(TWO))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    with open_pool(ShownGpu(Store(tmp_path), "cuda", False), jobs=2) as pool:
        for worker, cell in zip(pool.idle(), cells, strict=False):
            worker.start(cell)
        results = [result for _ in cells[:2] for result in pool.wait(60)]
    assert sorted(result.message for result in results) == ["4", "7"]
