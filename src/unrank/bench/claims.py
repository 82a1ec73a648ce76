"""Claims: which worker has which job of a bench, for workers that share nothing but a folder.

The claim to a job is a file `JOB.1`, made exclusively, so that one worker alone gets it. No other worker changes it. If
its worker is dead, or gave the job back, the next one makes `JOB.2`, again exclusively: the highest number counts. The
claims to a job are deleted when its result is there.

Claims save work, and no result depends on them. A worker that was only paused may go on beside the one that took its
job over. The result appears once, from the one that ends first.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from unrank.bench.heartbeat import Heartbeats, Worker, read_small
from unrank.disk import replace_json
from unrank.errors import UnrankError
from unrank.parse import parse

BEATS = 8
"""Heartbeats in the time of a lease."""
MOST_DEATHS = 5
"""If this number of workers die on a job, one after the other, it has failed."""


@dataclass(frozen=True)
class Claim:
    """A worker's claim to a job."""

    worker: str
    since: str
    """The time by the worker's clock, for people."""
    deaths: int = 0
    """The number of workers of the same bench that died on the job, one after the other, before this one."""
    ended: str | None = None
    """`None` while the worker has the job; empty if it gave the job back; otherwise why the job failed."""


@dataclass
class Claims:
    """The claims of one worker, and its view of those of others."""

    folder: Path
    heartbeats: Heartbeats
    old: Mapping[str, int] = field(default_factory=dict)
    """The last claim to each job when the bench began. Failures and deaths until then do not count."""
    last: Mapping[str, int] = field(default_factory=dict)
    """The number of the last claim to each job that has one, as of the last look."""
    _mine: dict[str, int] = field(default_factory=dict)
    """The jobs that this worker has, with the numbers of its claims."""

    def look(self) -> None:
        """Look at the claims that there are now."""
        found: dict[str, int] = {}
        for path in self.folder.glob("[!.]*"):
            if path.suffix[1:].isdecimal():
                found[path.stem] = max(int(path.suffix[1:]), found.get(path.stem, 0))
        self.last = found

    def take(self, job: str) -> bool:
        """Claim a job that nobody has; return whether this worker has it now."""
        if job in self._mine:
            return True
        number, claim = self.last.get(job, 0), self._read(job)
        if self._is_held(job, claim) or self.failure(job):
            return False
        died = claim is not None and claim.ended is None and number > self.old.get(job, 0)
        deaths = claim.deaths + 1 if claim is not None and died else 0
        why = f"{deaths} workers died on it, one after the other; was there enough memory?"
        new = Claim(self.heartbeats.name, _now(), deaths, why if deaths >= MOST_DEATHS else None)
        if not _make(self._path(job, number + 1), new) or new.ended:
            return False
        self._mine[job] = number + 1
        return True

    def failure(self, job: str) -> str:
        """Return why a job failed since the bench began; empty if it did not."""
        if self.last.get(job, 0) <= self.old.get(job, 0):
            return ""
        claim = self._read(job)
        return (claim.ended or "") if claim is not None else ""

    def done(self, job: str) -> None:
        """Delete the claims to a job whose result is on disk."""
        last = max(self._mine.pop(job, 0), self.last.get(job, 0))
        for number in range(1, last + 1):
            self._path(job, number).unlink(missing_ok=True)

    def end(self, job: str, why: str = "") -> bool:
        """Give a job back, or say why it failed; return whether this worker still had it."""
        number = self._mine.pop(job)
        if self._path(job, number + 1).exists() or not self._path(job, number).exists():
            return False
        with suppress(OSError):  # the job is free as soon as the heartbeat ends
            replace_json(self._path(job, number), asdict(Claim(self.heartbeats.name, _now(), ended=why)))
        return True

    def leave(self) -> None:
        """Give every job back, and end the heartbeat."""
        for job in list(self._mine):
            self.end(job)
        self.heartbeats.stop()
        with suppress(OSError):  # the folder is not empty
            self.folder.rmdir()

    def _path(self, job: str, number: int) -> Path:
        return self.folder / f"{job}.{number}"

    def _read(self, job: str) -> Claim | None:
        """Return the last claim to a job; `None` if there is none, or it is only half written."""
        text = read_small(self._path(job, self.last[job])) if job in self.last else None
        try:
            claim: Claim = parse(Claim, json.loads(text or b""), "claim")
        except ValueError:
            return None
        return claim

    def _is_held(self, job: str, claim: Claim | None) -> bool:
        if claim is not None:
            return claim.ended is None and self.heartbeats.is_alive(claim.worker)
        path = self._path(job, self.last.get(job, 0))  # half written: its worker may have died just then
        return path.exists() and not self.heartbeats.is_over(path.name, b"", self.heartbeats.worker.lease)


@contextmanager
def joined(folder: Path, worker: Worker, old: Mapping[str, int] | None = None) -> Iterator[Claims]:
    """Take part in the work on a bench: keep a heartbeat, and give back at the end the jobs that are not done.

    `old` is what another worker of the same bench found when it began; `None` if this worker begins.
    """
    claims, left = Claims(folder, Heartbeats(folder, worker)), threading.Event()
    _enter(claims)
    claims.look()
    claims.old = claims.last if old is None else old
    thread = threading.Thread(target=_keep_beating, args=(claims.heartbeats, left), daemon=True)
    thread.start()
    try:
        yield claims
    finally:
        left.set()
        thread.join()
        with suppress(OSError):  # the others find out without it
            claims.leave()


def _enter(claims: Claims, tries: int = 3) -> None:
    """Make the folder and write the first heartbeat; again if another worker deletes the empty folder just then."""
    try:
        claims.folder.mkdir(parents=True, exist_ok=True)
        claims.heartbeats.beat()
    except OSError as error:
        if tries and isinstance(error, FileNotFoundError):
            _enter(claims, tries - 1)
        else:
            raise UnrankError(f"cannot write to {claims.folder}: {error.strerror}") from error


def _keep_beating(heartbeats: Heartbeats, left: threading.Event) -> None:
    while not left.wait(heartbeats.worker.lease / BEATS):
        with suppress(OSError):  # a full disk, or a server that is away: the next one may be written
            heartbeats.beat()


def _make(path: Path, claim: Claim) -> bool:
    """Write a claim; return whether this worker was the first to do so."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(json.dumps(asdict(claim)))
    except FileExistsError:
        return False
    return True


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
