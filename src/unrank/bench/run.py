"""Running a grid: finished cells stay, the others are run, and failures are reported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from unrank.bench.cell import Cell, Job, Original
from unrank.bench.runner import JobRunner
from unrank.bench.store import FinishedCell, Store, report_key
from unrank.bench.worker_pool import JobResult, WorkerPool, open_pool
from unrank.disk import sole_user
from unrank.errors import UnrankError

TRAINING = "training"


class JobQueue:
    """The jobs that are left: an original before its cells, a retrained ranker before the cells that need it.

    One queue hands out all jobs, so no two workers train the same ranker. A worker gets a job of the original that it
    has in memory, if there is one; otherwise one of an original that no other worker uses; otherwise any.
    """

    def __init__(self, cells: Iterable[Cell], finished: Iterable[str], trained: Iterable[str]) -> None:
        cells, finished = list(cells), set(finished)
        self._done = finished | set(trained)
        self._open: dict[str, Job] = {}
        for cell in cells:
            if cell.name not in finished:
                if cell.original.name not in self._done:
                    self._open.setdefault(cell.original.name, cell.original)
                self._open[cell.name] = cell
        self._running: dict[str, Job] = {}

    @property
    def left(self) -> list[Job]:
        """All jobs that are not done, in order."""
        return [*self._running.values(), *self._open.values()]

    def take(self, last_original: str | None) -> Job | None:
        """Return the next job for a worker that has this original in memory; `None` if none can start now."""
        ready = [job for job in self._open.values() if self._done.issuperset(job.needs)]
        busy = {job.original.name for job in self._running.values()}
        ready.sort(key=lambda job: (job.original.name != last_original, job.original.name in busy))
        if not ready:
            return None
        self._running[ready[0].name] = self._open.pop(ready[0].name)
        return ready[0]

    def done(self, job: Job) -> None:
        del self._running[job.name]
        self._done.add(job.name)

    def failed(self, job: Job) -> list[Job]:
        """Take out, and return, the jobs that can never start because this one failed."""
        del self._running[job.name]
        lost, impossible = {job.name}, []
        for other in list(self._open.values()):  # a job comes after the jobs that it needs
            if lost.intersection(other.needs):
                lost.add(other.name)
                impossible.append(self._open.pop(other.name))
        return impossible


class Eta:
    """The expected seconds of jobs: the mean of finished jobs of the same method, ranker and collection. If there is
    none, of the same method and ranker, then of the same method, then of all."""

    def __init__(self, finished: Iterable[FinishedCell]) -> None:
        self._seconds: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for cell in finished:
            self._add((cell.method, cell.ranker, cell.fingerprint), cell.seconds)
            self._add((TRAINING, cell.ranker, cell.fingerprint), cell.training_seconds)

    def learn(self, job: Job, seconds: float) -> None:
        """Add the time of a finished job."""
        self._add(_kind(job), seconds)

    def left(self, jobs: Iterable[Job], workers: int) -> float | None:
        """Return the expected seconds for all these jobs; `None` if no job is finished yet."""
        if not self._seconds:
            return None
        return sum(self._expected(job) for job in jobs) / workers

    def _add(self, kind: tuple[str, ...], seconds: float) -> None:
        for length in range(len(kind) + 1):
            self._seconds[kind[:length]].append(seconds)

    def _expected(self, job: Job) -> float:
        kind = _kind(job)
        nearest = next(kind[:length] for length in (3, 2, 1, 0) if kind[:length] in self._seconds)
        return sum(self._seconds[nearest]) / len(self._seconds[nearest])


def _kind(job: Job) -> tuple[str, ...]:
    method = TRAINING if isinstance(job, Original) else job.method.name
    return method, job.original.ranker, job.original.fingerprint


@dataclass(frozen=True)
class GridStatus:
    """A grid, and its cells that are finished."""

    store: Store
    cells: Sequence[Cell]
    finished: frozenset[str]
    eta: Eta
    namesakes: Sequence[str]
    """Finished cells that a report would take for cells of this grid, though they were made with other settings."""
    renamed: Mapping[str, str]
    """From a label of this grid to the label of the same finished cell on disk, if they differ."""

    @classmethod
    def of(cls, cells: Sequence[Cell], out: Path) -> GridStatus:
        """Compare the cells of a grid with those on disk."""
        if out.exists() and not out.is_dir():
            raise UnrankError(f"{out} is a file; --out takes the folder of the records")
        store = Store(out)
        finished = store.finished()
        names = {cell.name for cell in cells}
        keys = {report_key(cell.describe()) for cell in cells}
        namesakes = [name for name, other in finished.items() if name not in names and other.report_key in keys]
        labels = [(cell.label, finished[cell.name].label) for cell in cells if cell.name in finished]
        renamed = {label: other for label, other in labels if label != other}
        return cls(store, cells, frozenset(names & finished.keys()), Eta(finished.values()), namesakes, renamed)

    @property
    def without_rankers(self) -> frozenset[str]:
        """Finished cells whose rankers were not kept."""
        return self.finished - self.store.trained()

    def queue(self) -> JobQueue:
        """Return the jobs that are left."""
        return JobQueue(self.cells, self.finished, self.store.trained())


@dataclass(frozen=True)
class Update:
    """The result of one job, and the work that is left."""

    result: JobResult
    impossible: Sequence[Job]
    """Jobs that can never start because this one failed."""
    jobs_left: int
    seconds_left: float | None


def run_grid(status: GridStatus, runner: JobRunner, workers: int, notify: Callable[[Update], None]) -> int:
    """Run the jobs that are left, and return the number of those that failed or could not start."""
    queue, lost = status.queue(), 0
    with open_pool(runner, workers) as pool:
        for result in _results(queue, pool):
            impossible = queue.failed(result.job) if result.failed else []
            if not result.failed:
                queue.done(result.job)
                status.eta.learn(result.job, result.seconds)
            lost += result.failed + len(impossible)
            left = queue.left
            notify(Update(result, impossible, len(left), status.eta.left(left, workers)))
    return lost


def _results(queue: JobQueue, pool: WorkerPool) -> Iterator[JobResult]:
    """Keep all workers busy until no job is left that can start."""
    while True:
        for worker in pool.idle():
            if (job := queue.take(worker.last_original)) is not None:
                worker.start(job)
        results = pool.wait()
        if not results:
            return
        yield from results


@contextmanager
def locked(store: Store) -> Iterator[None]:
    """Make the folder ready, and keep every other bench out of it."""
    with sole_user(store.out, f"another 'unrank bench' is at work in {store.out}: wait for it, or stop it"):
        store.tidy()
        yield
