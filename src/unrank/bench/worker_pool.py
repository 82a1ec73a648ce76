"""Workers that run jobs: this process alone, or several processes.

A worker process that dies loses its job and no other; a new process replaces it. It ends with the process that started
it, so a killed bench leaves none behind. Each worker process uses one GPU, if there are several.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from time import perf_counter, sleep
from typing import Protocol

import torch

from unrank.bench.cell import Job
from unrank.bench.runner import JobRunner
from unrank.engine.runtime import Device
from unrank.errors import Stopped, describe_error

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class JobResult:
    """The outcome of a job, in words."""

    job: Job
    seconds: float
    message: str
    failed: bool = False
    elsewhere: bool = False
    """Whether another bench had the job."""


class Worker(Protocol):
    """Runs one job at a time."""

    last_original: str | None
    """The original of its last job, which it still has in memory."""

    def start(self, job: Job) -> None:
        """Start a job."""


class WorkerPool(Protocol):
    """A number of workers."""

    def idle(self) -> Sequence[Worker]:
        """Return the workers without a job."""

    def wait(self, seconds: float) -> list[JobResult]:
        """Wait for a job to end, at most these seconds if other workers may be done first, and return the results."""

    @property
    def is_over(self) -> bool:
        """Whether its workers have ended and take no more jobs."""


class ThisProcess:
    """The pool of one worker that runs its jobs in this process."""

    is_over = False

    def __init__(self, runner: JobRunner) -> None:
        self._runner = runner
        self._job: Job | None = None
        self.last_original: str | None = None

    def idle(self) -> Sequence[Worker]:
        return [self]

    def start(self, job: Job) -> None:
        self._job, self.last_original = job, job.original.name

    def wait(self, seconds: float) -> list[JobResult]:
        job, self._job = self._job, None
        if job is None:
            sleep(seconds)
        return [_attempt(self._runner, job)] if job is not None else []


class WorkerProcess:
    """A worker in a process of its own, which is started with its first job."""

    def __init__(self, runner: JobRunner, threads: int, gpu: str | None = None) -> None:
        self._runner = runner
        self._threads = threads
        self.gpu = gpu
        self._process: SpawnProcess | None = None
        self.connection: Connection | None = None
        self.job: Job | None = None
        self.last_original: str | None = None

    def start(self, job: Job) -> None:
        if self._process is not None and not self._process.is_alive():
            self.stop()
        if self.connection is None:
            context = multiprocessing.get_context("spawn")  # CUDA does not work after a fork
            self.connection, theirs = context.Pipe()
            arguments = (theirs, self._runner, self._threads, self.gpu)
            self._process = context.Process(target=_serve, args=arguments, daemon=True)
            self._process.start()
            theirs.close()
        self.job, self.last_original, self._started = job, job.original.name, perf_counter()
        self.connection.send(job)

    def result(self) -> JobResult:
        """Return the result of the job; if the process died, that it did."""
        assert self.connection is not None and self.job is not None
        job, self.job = self.job, None
        try:
            result: JobResult = self.connection.recv()
        except (EOFError, OSError):
            self.stop()
            seconds = perf_counter() - self._started
            return JobResult(job, seconds, "its process died; was there enough memory?", failed=True)
        return result

    def stop(self) -> None:
        """End the process."""
        if self.connection is not None and self._process is not None:
            self.connection.close()
            self._process.terminate()
            self._process.join()
        self.connection = self._process = self.last_original = None


class Processes:
    """Worker processes, which share the cores of the machine and its GPUs."""

    is_over = False

    def __init__(self, runner: JobRunner, jobs: int) -> None:
        threads, gpus = max(1, torch.get_num_threads() // jobs), visible_gpus(runner.device)
        own = [gpus[number % len(gpus)] if gpus else None for number in range(jobs)]
        self.workers = [WorkerProcess(runner, threads, gpu) for gpu in own]

    def idle(self) -> Sequence[Worker]:
        return [worker for worker in self.workers if worker.job is None]

    def wait(self, seconds: float) -> list[JobResult]:
        busy = {worker: worker.connection for worker in self.workers if worker.job is not None and worker.connection}
        ready = wait(busy.values(), seconds)
        return [worker.result() for worker, connection in busy.items() if connection in ready]

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()


@contextmanager
def open_pool(runner: JobRunner, jobs: int) -> Iterator[WorkerPool]:
    """Yield a pool of `jobs` workers, and end its processes afterwards."""
    if jobs == 1:
        yield ThisProcess(runner)
        return
    processes = Processes(runner, jobs)
    try:
        yield processes
    finally:
        processes.stop()


def visible_gpus(device: Device) -> list[str]:
    """Return the GPUs to compute on, as CUDA_VISIBLE_DEVICES names them; none if jobs run on the CPU."""
    if device == "cpu":
        return []
    number, named = torch.cuda.device_count(), os.environ.get(VISIBLE)
    return (named.split(",") if named else [str(gpu) for gpu in range(number)])[:number]


def _attempt(runner: JobRunner, job: Job) -> JobResult:
    """Run a job; an error becomes its result."""
    started = perf_counter()
    try:
        message, failed = runner.run(job), False
    except Exception as error:
        message, failed = describe_error(error), True
    return JobResult(job, perf_counter() - started, message, failed)


def _serve(connection: Connection, runner: JobRunner, threads: int, gpu: str | None) -> None:
    """Run one job after another, until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets the signal too, and ends this process
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    if gpu is not None:
        os.environ[VISIBLE] = gpu  # before CUDA is used
    torch.set_num_threads(threads)
    while True:
        try:
            job = connection.recv()
            result = _attempt(runner, job)
        except (EOFError, Stopped):
            return
        connection.send(result)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
