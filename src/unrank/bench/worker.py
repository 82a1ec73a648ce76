"""A worker in a process of its own, and what becomes of a task in any.

A worker that dies takes its task down and no other; another is hired in its place. It dies with the process that hired
it, so that a killed grid leaves nobody at work.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from time import perf_counter

import torch

from unrank.bench.job import Bench, Task
from unrank.bench.schedule import original_of
from unrank.errors import Stopped, told


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
    except Exception as error:
        said, failed = told(error), True
    return Result(task, perf_counter() - started, said, failed)


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
        if self._process is not None and not self._process.is_alive():
            self.leave()
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


def _serve(connection: Connection, bench: Bench, threads: int) -> None:
    """A worker's life: task after task, until there is nobody left to work for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever hired it is told, and lets it go
    threading.Thread(target=_die_with_the_hirer, daemon=True).start()
    torch.set_num_threads(threads)
    while True:
        try:
            task = connection.recv()
            result = attempt(bench, task)
        except (EOFError, Stopped):
            return
        connection.send(result)


def _die_with_the_hirer() -> None:
    hirer = multiprocessing.parent_process()
    assert hirer is not None
    hirer.join()
    os._exit(1)
