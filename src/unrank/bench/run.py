"""Running a grid: finished cells stay, the others are run, and failures are reported.

Benches that run in one folder, on one machine or on several, share the work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from unrank.bench.cell import Cell, Job, Original
from unrank.bench.claims import Claims, joined
from unrank.bench.heartbeat import LEASE, Worker
from unrank.bench.job_queue import JobQueue
from unrank.bench.store import FinishedCell, Store, report_key
from unrank.bench.worker_pool import JobResult, WorkerPool
from unrank.errors import UnrankError

TRAINING = "training"
POLL = 1.0
"""Seconds between two looks at what other benches have done."""
LOOKING = 20
"""The next look is at least this many times as far away as the last one took."""


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


def run_grid(status: GridStatus, claims: Claims, pool: WorkerPool, notify: Callable[[Update], None]) -> int:
    """Run the jobs that are left, together with the other workers of the folder, until every job is done or failed.

    Return the number of jobs that failed or could not start.
    """
    queue, lost = status.queue(), 0
    for result in _results(queue, status.store, claims, pool):
        impossible = queue.failed(result.job) if result.failed else []
        if not result.failed:
            queue.done(result.job)
            claims.done(result.job.name)
        if not result.failed and not result.elsewhere:
            status.eta.learn(result.job, result.seconds)
        lost += result.failed + len(impossible)
        left, runners = queue.left, claims.heartbeats.runners()
        notify(Update(result, impossible, len(left), status.eta.left(left, max(1, runners))))
    return lost + len(queue.left)


def _results(queue: JobQueue, store: Store, claims: Claims, pool: WorkerPool) -> Iterator[JobResult]:
    """Keep all workers busy until no job is left that can start here, and none is under way elsewhere."""

    def claim(job: Job) -> bool:
        if not claims.take(job.name):
            return False
        store.free(job.name)
        return not store.having([job])  # a worker deletes its claim after it has written the result

    while queue.left:
        began, was_over = perf_counter(), pool.is_over
        claims.look()
        yield from _elsewhere(queue, store, claims)
        for worker in pool.idle():
            if (job := queue.take(worker.last_original, claims.last, claim)) is not None:
                worker.start(job)
        pause = max(POLL, LOOKING * (perf_counter() - began))
        for result in pool.wait(pause):
            if not result.failed or claims.end(result.job.name, result.message):
                yield result
            else:  # another worker took it over, and may have finished it
                queue.put_back(result.job)
        if was_over:  # the look since then has found all that its workers did
            return


def _elsewhere(queue: JobQueue, store: Store, claims: Claims) -> Iterator[JobResult]:
    """Yield the jobs that other benches have finished, or failed at, since the last time."""
    done = store.having(queue.open.values())
    for job in list(queue.open.values()):
        if job.name in done:
            yield JobResult(job, 0.0, "done by another worker", elsewhere=True)
        elif job.name in queue.open and (why := claims.failure(job.name)):
            yield JobResult(job, 0.0, why, failed=True, elsewhere=True)


@contextmanager
def shared(store: Store, jobs: int, lease: float = LEASE, old: Mapping[str, int] | None = None) -> Iterator[Claims]:
    """Make the folder ready, and share the work on it with every other bench there."""
    with joined(store.claims, Worker.this(jobs, lease), old) as claims:
        store.tidy(lambda: not claims.heartbeats.others())
        yield claims
