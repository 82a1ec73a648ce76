"""Who does the work: this process alone, or several beside it.

A worker that dies takes its task down and no other; another one is hired in its place. Workers die with the process
that hired them, so that a killed grid leaves nobody at work.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from time import perf_counter
from typing import Protocol

import torch

from unrank.bench.job import Bench, Task
from unrank.bench.schedule import original_of
from unrank.errors import UnrankError


@dataclass(frozen=True)
class Result:
    """What became of a task."""

    task: Task
    seconds: float
    said: str
    failed: bool = False


def attempt(bench: Bench, task: Task) -> Result:
    """Do a task; what goes wrong is told, not raised."""
    started = perf_counter()
    try:
        said, failed = bench.work(task), False
    except UnrankError as error:
        said, failed = str(error), True
    except Exception as error:
        if os.environ.get("UNRANK_DEBUG"):
            traceback.print_exc()
        said, failed = f"a bug in unrank: {type(error).__name__}: {error} (UNRANK_DEBUG=1 shows where)", True
    return Result(task, perf_counter() - started, said, failed)


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


class Hired:
    """A worker in a process of its own, hired when it is first given something to do."""

    def __init__(self, bench: Bench, threads: int) -> None:
        self._bench = bench
        self._threads = threads
        self._process: SpawnProcess | None = None
        self.connection: Connection | None = None
        self.task: Task | None = None
        self.at_hand: str | None = None

    def give(self, task: Task) -> None:
        if self.connection is None:
            context = multiprocessing.get_context("spawn")  # a GPU does not survive a fork
            self.connection, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, self._bench, self._threads), daemon=True)
            self._process.start()
            theirs.close()
        self.task, self.at_hand, self._began = task, original_of(task).name, perf_counter()
        self.connection.send(task)

    def result(self) -> Result:
        """What became of the task; of one whose worker died, that it did."""
        assert self.connection is not None and self.task is not None
        task, self.task = self.task, None
        try:
            result: Result = self.connection.recv()
        except (EOFError, OSError):
            self.leave()
            return Result(task, perf_counter() - self._began, "its process died; was there enough memory?", failed=True)
        return result

    def leave(self) -> None:
        if self.connection is not None and self._process is not None:
            self.connection.close()
            self._process.terminate()
            self._process.join()
        self.connection = self._process = self.at_hand = None


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


def _serve(connection: Connection, bench: Bench, threads: int) -> None:
    """A worker's life: task after task, until there is nobody left to work for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever hired it is told, and lets it go
    threading.Thread(target=_die_with_the_hirer, daemon=True).start()
    torch.set_num_threads(threads)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(attempt(bench, task))


def _die_with_the_hirer() -> None:
    hirer = multiprocessing.parent_process()
    assert hirer is not None
    hirer.join()
    os._exit(1)
