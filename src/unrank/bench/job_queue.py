"""The queue of a bench: the jobs that are left, and which of them can start."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from unrank.bench.cell import Cell, Job


class JobQueue:
    """The jobs that are left: an original before its cells, a retrained ranker before the cells that need it.

    Other cells of the same removal wait for its retrained ranker too, if the grid has one, because their records are
    compared with it; they are run even if it fails. A worker gets a job of the original that it has in memory, if there
    is one; otherwise one of an original that no other worker uses; otherwise any.
    """

    def __init__(self, cells: Iterable[Cell], finished: Iterable[str], trained: Iterable[str]) -> None:
        cells, finished = list(cells), set(finished)
        names = {cell.name for cell in cells}
        self._done = finished | ({cell.original.name for cell in cells} & set(trained))
        self._open: dict[str, Job] = {}
        self._waits: dict[str, str] = {}
        for cell in cells:
            if cell.name not in finished:
                if cell.original.name not in self._done:
                    self._open.setdefault(cell.original.name, cell.original)
                self._open[cell.name] = cell
                if cell.retrained.name in names - {cell.name}:
                    self._waits[cell.name] = cell.retrained.name
        self._running: dict[str, Job] = {}

    @property
    def left(self) -> list[Job]:
        """All jobs that are not done, in order."""
        return [*self._running.values(), *self._open.values()]

    @property
    def open(self) -> Mapping[str, Job]:
        """The jobs that none of this bench's workers has, by name."""
        return self._open

    def take(
        self,
        last_original: str | None,
        claimed: Collection[str] = (),
        claim: Callable[[Job], bool] = lambda job: True,
    ) -> Job | None:
        """Return the next job for a worker that has this original in memory; `None` if none can start now.

        `claimed` are the jobs that workers of other benches have or had, and `claim` says whether a job can be had.
        """
        ready = [job for job in self._open.values() if self._can_start(job)]
        elsewhere = [job for name, job in self._open.items() if name in claimed]
        busy = {job.original.name for job in (*self._running.values(), *elsewhere)}
        ready.sort(key=lambda job: (job.original.name != last_original, job.original.name in busy))
        found = next(filter(claim, ready), None)
        if found is not None:
            self._running[found.name] = self._open.pop(found.name)
        return found

    def _can_start(self, job: Job) -> bool:
        awaited = self._waits.get(job.name)
        return self._done.issuperset(job.needs) and awaited not in self._open and awaited not in self._running

    def put_back(self, job: Job) -> None:
        """Take a job from its worker: another bench has it."""
        self._open[job.name] = self._running.pop(job.name)

    def done(self, job: Job) -> None:
        self._take_out(job)
        self._done.add(job.name)

    def failed(self, job: Job) -> list[Job]:
        """Take out, and return, the jobs that can never start because this one failed."""
        self._take_out(job)
        lost, impossible = {job.name}, []
        for other in list(self._open.values()):  # a job comes after the jobs that it needs
            if lost.intersection(other.needs):
                lost.add(other.name)
                impossible.append(self._open.pop(other.name))
        return impossible

    def _take_out(self, job: Job) -> None:
        self._running.pop(job.name, None)
        self._open.pop(job.name, None)
