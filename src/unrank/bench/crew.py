"""Who does the work: this process alone, or several beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Protocol

import torch

from unrank.bench.job import Bench, Task
from unrank.bench.schedule import original_of
from unrank.bench.worker import Hired, Result, attempt


class Worker(Protocol):
    """Somebody who does one task at a time."""

    at_hand: str | None
    """The original that it worked on last."""

    def give(self, task: Task) -> None: ...


class Crew(Protocol):
    def idle(self) -> Sequence[Worker]:
        """Those who have nothing to do."""

    def wait(self) -> list[Result]:
        """What has been done meanwhile; empty where nobody is at work."""


class Alone:
    """This process is its only worker."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._task: Task | None = None
        self.at_hand: str | None = None

    def idle(self) -> Sequence[Worker]:
        return [self]

    def give(self, task: Task) -> None:
        self._task, self.at_hand = task, original_of(task).name

    def wait(self) -> list[Result]:
        task, self._task = self._task, None
        return [attempt(self._bench, task)] if task is not None else []


class Several:
    """Processes side by side, which share the cores of the machine."""

    def __init__(self, bench: Bench, jobs: int) -> None:
        threads = max(1, torch.get_num_threads() // jobs)
        self._workers = [Hired(bench, threads) for _ in range(jobs)]

    def idle(self) -> Sequence[Worker]:
        return [worker for worker in self._workers if worker.task is None]

    def wait(self) -> list[Result]:
        busy = {worker: worker.connection for worker in self._workers if worker.task is not None and worker.connection}
        ready = wait(busy.values()) if busy else []
        return [worker.result() for worker, connection in busy.items() if connection in ready]

    def leave(self) -> None:
        for worker in self._workers:
            worker.leave()


@contextmanager
def crew_of(bench: Bench, jobs: int) -> Iterator[Crew]:
    if jobs == 1:
        yield Alone(bench)
        return
    several = Several(bench, jobs)
    try:
        yield several
    finally:
        several.leave()
