"""Benches that share a folder: every job once, and each of them knows how all came out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import sleep

import pytest

from tests.bench.conftest import Grid, cells_of
from unrank.bench import run as run_module
from unrank.bench.cell import Cell, Job, Original
from unrank.bench.claims import Claims
from unrank.bench.plan import shard_cells
from unrank.bench.run import GridStatus, Update, run_grid, shared
from unrank.bench.runner import JobRunner
from unrank.bench.store import Store
from unrank.bench.worker_pool import open_pool
from unrank.errors import UnrankError

FORTY = 'methods = ["retrain", "cocol", "ssd", "neggrad", "finetune"]\nseeds = [0, 1]\nshares = [0.1, 0.25]'


@dataclass
class Pretender(JobRunner):
    """Runs nothing, and leaves a folder as if it had."""

    begun: Callable[[Job], None] = lambda job: None

    def run(self, job: Job) -> str:
        self.begun(job)
        sleep(0.005)
        (self.store.rankers if isinstance(job, Original) else self.store.cells).joinpath(job.name).mkdir()
        return "done"


@pytest.fixture
def cells(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    monkeypatch.setattr(run_module, "POLL", 0.01)
    return cells_of(grid(FORTY))


def run_here(cells: list[Cell], store: Store, begun: Callable[[Job], None]) -> tuple[int, list[Update]]:
    """Run a grid as one of several benches; the number of lost jobs, and what the bench was told."""
    updates: list[Update] = []
    with shared(store, 1) as claims, open_pool(Pretender(store, "cpu", False, begun=begun), 1) as pool:
        status = GridStatus(store, cells, frozenset(), run_module.Eta([]), (), {})
        return run_grid(status, claims, pool, updates.append), updates


def test_two_benches_share_the_work(cells: list[Cell], tmp_path: Path) -> None:
    """One job fails at its worker: the other bench does not try it, and both count it with what needs it."""
    store, begun, found = Store(tmp_path / "out"), list[tuple[int, str]](), []
    retrained = next(cell for cell in cells if cell.is_retrained)
    needing = [cell for cell in cells if retrained.name in cell.needs]

    both = threading.Barrier(2, timeout=30)

    def note(job: Job) -> None:
        first = threading.get_ident() not in {thread for thread, _ in begun}
        begun.append((threading.get_ident(), job.name))
        if first:
            both.wait()  # no job ends before both know of all jobs
        if job.name == retrained.name:
            raise UnrankError("this one breaks")

    threads = [threading.Thread(target=lambda: found.append(run_here(cells, store, note))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    names = [name for _, name in begun]
    jobs = {cell.name for cell in cells} | {cell.original.name for cell in cells}
    assert len(cells) == 40 and needing
    assert sorted(names) == sorted(jobs - {cell.name for cell in needing}), "each once"
    assert len({thread for thread, _ in begun}) == 2, "both have worked"
    for lost, updates in found:
        assert lost == 1 + len(needing)
        assert updates[-1].jobs_left == 0
        assert sum(1 + len(update.impossible) for update in updates) == len(jobs)
        assert any(update.result.elsewhere for update in updates)
    [left] = store.claims.iterdir()
    assert left.name == f"{retrained.name}.1", "the failure is kept, for those who come later"


def test_a_job_that_was_taken_over_does_not_fail_here(
    cells: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, end = Store(tmp_path / "out"), Claims.end
    broken: list[str] = []

    def breaks(job: Job) -> None:
        if not broken:
            broken.append(job.name)
            (store.claims / f"{job.name}.2").write_text("{}")  # by a worker that took this one for dead
            (store.rankers / job.name).mkdir()
            raise UnrankError("its folder is gone")

    ended: list[bool] = []

    def noted(claims: Claims, job: str, why: str = "") -> bool:
        ended.append(end(claims, job, why))
        return ended[-1]

    monkeypatch.setattr(Claims, "end", noted)
    lost, updates = run_here(cells, store, breaks)
    assert (lost, ended) == (0, [False])
    assert [update.result.job.name for update in updates if update.result.elsewhere] == broken


def test_half_written_folders_of_others_at_work_stay(tmp_path: Path) -> None:
    store = Store(tmp_path / "out")
    half = store.cells / ".abc.partial-xyz"
    with shared(store, 1):
        half.mkdir(parents=True)
        with shared(store, 1):
            assert half.exists()
    with shared(store, 1):
        assert not half.exists()


def test_shards_are_the_grid(cells: list[Cell]) -> None:
    shards = [shard_cells(cells, number, 3) for number in (1, 2, 3)]
    assert {cell.name for shard in shards for cell in shard} == {cell.name for cell in cells}
    own = [[cell.name for cell in shard if not cell.is_retrained] for shard in shards]
    assert sum(map(len, own)) == len(set().union(*own)) == 32
    for shard in shards:
        assert [cell for cell in cells if cell in shard] == shard, "in the order of the grid"
        assert {cell.retrained.name for cell in shard} <= {cell.name for cell in shard}
    assert shard_cells(cells, 1, 1) == cells
