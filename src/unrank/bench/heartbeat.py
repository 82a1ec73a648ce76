"""Heartbeats: which workers of a bench are alive, for workers that share nothing but a folder.

A worker writes its small file again and again. No two clocks are compared: a reader waits by its own clock for the file
to change. On its own machine it asks the system instead, and sees a dead worker at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import monotonic
from uuid import uuid4

from unrank.disk import open_regular, write_json
from unrank.journal import Process
from unrank.parse import parse

LEASE = 120.0
"""Seconds without a heartbeat after which a worker on another machine counts as dead."""
WORKER = ".worker"


def this_machine() -> str:
    """Return a name that processes share if each can see the others; if the system has none, a new one."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return uuid4().hex


@dataclass(frozen=True)
class Worker:
    """A worker, as its heartbeat describes it."""

    process: Process
    machine: str
    jobs: int
    """The number of jobs that it runs side by side."""
    lease: float = LEASE
    beat: int = 0

    @classmethod
    def this(cls, jobs: int, lease: float = LEASE) -> Worker:
        return cls(Process.this(), this_machine(), jobs, lease)


@dataclass
class Heartbeats:
    """The heartbeat of one worker, and its view of the others."""

    folder: Path
    worker: Worker
    name: str = field(default_factory=lambda: uuid4().hex[:12])
    _seen: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    """What was last read of each file, and when that was new, by this worker's clock."""

    def beat(self) -> None:
        """Write the next heartbeat. It need not survive a power cut, so no disk is waited for."""
        self.worker = replace(self.worker, beat=self.worker.beat + 1)
        write_json(self._partial(self.name), asdict(self.worker))
        self._partial(self.name).replace(self._path(self.name))

    def stop(self) -> None:
        """Delete the heartbeat."""
        self._path(self.name).unlink(missing_ok=True)

    def runners(self) -> int:
        """Return the number of jobs that this worker and the others run side by side."""
        return self.worker.jobs + sum(worker.jobs for worker in self.others())

    def others(self) -> list[Worker]:
        """Return the other workers that are not known to be dead."""
        return [worker for name, worker in _workers(self.folder) if name != self.name and self.is_alive(name)]

    def is_alive(self, name: str) -> bool:
        """Return whether a worker is not known to be dead. Delete the heartbeat of one that is."""
        text = read_small(self._path(name))
        if text is None:
            return False
        worker = _worker(text)
        if worker is not None and worker.machine == self.worker.machine:
            alive = worker.process.is_alive
        else:
            alive = not self.is_over(name, text, worker.lease if worker else self.worker.lease)
        if not alive:
            for path in (self._path(name), self._partial(name)):
                path.unlink(missing_ok=True)
        return alive

    def is_over(self, name: str, text: bytes, lease: float) -> bool:
        """Return whether a file has had the same text for the time of a lease, by this worker's clock."""
        before, since = self._seen.get(name, (None, 0.0))
        if before != text:
            self._seen[name] = text, monotonic()
            return False
        return monotonic() - since >= lease

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{WORKER}"

    def _partial(self, name: str) -> Path:
        return self.folder / f".{name}{WORKER}"


def runners_here(folder: Path) -> int:
    """Return the number of jobs that the workers on this machine run side by side."""
    machine = this_machine()
    here = [worker for _, worker in _workers(folder) if worker.machine == machine]
    return sum(worker.jobs for worker in here if worker.process.is_alive)


def read_small(path: Path) -> bytes | None:
    """Return what a file holds: `None` if there is no file, nothing if it cannot be read now."""
    try:
        with open_regular(path) as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError:  # a server that is away for a moment
        return b""


def _workers(folder: Path) -> Iterator[tuple[str, Worker]]:
    for path in folder.glob(f"[!.]*{WORKER}"):
        if (worker := _worker(read_small(path) or b"")) is not None:
            yield path.stem, worker


def _worker(text: bytes) -> Worker | None:
    try:
        worker: Worker = parse(Worker, json.loads(text), "worker")
    except ValueError:
        return None
    return worker
