"""Workers on other machines: jobs of Slurm through submitit (`unrank[slurm]`), or tasks of Ray (`unrank[ray]`).

Each worker claims jobs in the shared folder, as a bench of its own would. The fleet starts the workers, and starts
another one for each that dies.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import sleep
from typing import Any, Literal, Protocol

from unrank.bench.cell import Cell
from unrank.bench.claims import Claims
from unrank.bench.run import GridStatus, run_grid, shared
from unrank.bench.runner import JobRunner
from unrank.bench.worker_pool import JobResult, Worker, open_pool
from unrank.errors import UnrankError

MINUTES = 24 * 60
"""The time of a Slurm job, unless another one is given. A worker that runs out of time is replaced."""
MOST_RESTARTS = 10
"""If this number of workers for each one that was asked for die and nothing was finished since, the bench ends."""


Where = Literal["slurm", "local", "ray"]


@dataclass(frozen=True)
class Shift:
    """The work of one worker: all that it needs to take part in the bench."""

    folder: Path
    """The current folder, which paths start from."""
    cells: Sequence[Cell]
    runner: JobRunner
    lease: float
    old: Mapping[str, int]
    """The claims when the bench began. A job that failed since is not tried again."""

    def __call__(self) -> None:
        os.chdir(self.folder)
        store = self.runner.store
        with shared(store, 1, self.lease, self.old) as claims, open_pool(self.runner, 1) as pool:
            run_grid(GridStatus.of(self.cells, store.out), claims, pool, lambda update: None)


class Launcher(Protocol):
    """Starts workers somewhere. What `start` returns stands for a worker."""

    def start(self, shift: Shift) -> Any:
        """Start a worker."""

    def fate(self, worker: Any) -> str | None:
        """Return `None` while a worker runs; then why it died, empty if it came to its end."""

    def cancel(self, worker: Any) -> None:
        """End a worker."""


class Submitit:
    """Workers as jobs of Slurm, or as processes on this machine to try it; submitit keeps their logs in `folder`."""

    def __init__(self, where: Where, folder: Path, resources: Mapping[str, object]) -> None:
        submitit = _needed("submitit", "slurm")
        given = {"name": "unrank", "timeout_min": MINUTES, **resources}
        try:
            self._executor = submitit.AutoExecutor(folder=folder, cluster=where)
            self._executor.update_parameters(**given)
        except Exception as error:  # submitit raises many kinds
            raise UnrankError(f"submitit cannot start workers on {where}: {error}") from error

    def start(self, shift: Shift) -> Any:
        return self._executor.submit(shift)

    def fate(self, worker: Any) -> str | None:
        if not worker.done():
            return None
        error = worker.exception()
        return _last_line(error) if error is not None else ""

    def cancel(self, worker: Any) -> None:
        worker.cancel()


class Ray:
    """Workers as tasks of Ray: of the cluster that RAY_ADDRESS names or that runs here, else of this machine alone."""

    def __init__(self, resources: Mapping[str, object]) -> None:
        self._ray = _needed("ray", "ray")
        try:
            self._ray.init(ignore_reinit_error=True, log_to_driver=False, logging_level="ERROR")
            self._task = self._ray.remote(_work).options(max_retries=0, **resources)
        except Exception as error:  # Ray raises many kinds
            raise UnrankError(f"Ray cannot start workers: {error}") from error

    def start(self, shift: Shift) -> Any:
        return self._task.remote(shift)

    def fate(self, worker: Any) -> str | None:
        if not self._ray.wait([worker], timeout=0, fetch_local=False)[0]:
            return None
        try:
            self._ray.get(worker)
        except self._ray.exceptions.RayError as error:
            return _last_line(error)
        return ""

    def cancel(self, worker: Any) -> None:
        self._ray.cancel(worker, force=True)


class Fleet:
    """A pool whose workers take their jobs themselves."""

    def __init__(self, launcher: Launcher, shift: Shift, number: int) -> None:
        self._launcher, self._shift = launcher, shift
        self._most, self._deaths, self._left = MOST_RESTARTS * number, 0, len(shift.cells)
        self._workers = [launcher.start(shift) for _ in range(number)]

    @property
    def is_over(self) -> bool:
        return not self._workers

    def idle(self) -> Sequence[Worker]:
        return []

    def wait(self, seconds: float) -> list[JobResult]:
        """Replace the workers that have died."""
        sleep(seconds)
        for worker in list(self._workers):
            if (fate := self._launcher.fate(worker)) is not None:
                self._workers.remove(worker)
                if fate:
                    self._count_death(fate)
                    self._workers.append(self._launcher.start(self._shift))
        return []

    def stop(self) -> None:
        for worker in self._workers:
            self._launcher.cancel(worker)

    def _count_death(self, fate: str) -> None:
        """Count the deaths since a cell was last finished; raise an error if there are too many."""
        cells = self._shift.cells
        left = len(cells) - len(self._shift.runner.store.having(cells))
        self._deaths = self._deaths + 1 if left == self._left else 1
        self._left = left
        if self._deaths > self._most:
            raise UnrankError(f"{self._deaths} workers died, and no cell was finished between; the last: {fate}")


@contextmanager
def open_fleet(launcher: Launcher, status: GridStatus, runner: JobRunner, claims: Claims, jobs: int) -> Iterator[Fleet]:
    """Yield a pool of workers elsewhere, and end those that are left afterwards."""
    shift = Shift(Path.cwd(), status.cells, runner, claims.heartbeats.worker.lease, claims.old)
    fleet = Fleet(launcher, shift, jobs)
    try:
        yield fleet
    finally:
        fleet.stop()


def make_launcher(where: Where, folder: Path, resources: Mapping[str, object]) -> Launcher:
    """Return what starts workers there; refuse what cannot be had or cannot be understood."""
    return Ray(resources) if where == "ray" else Submitit(where, folder, resources)


def _work(shift: Shift) -> None:
    shift()


def _needed(package: str, extra: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise UnrankError(f"--on needs {error.name}: pip install 'unrank[{extra}]'") from error


def _last_line(error: BaseException) -> str:
    """Return the last line of an error that may hold a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
