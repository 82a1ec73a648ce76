"""Jobs: plans and runs as processes of their own, which go on when the server ends.

A job is a folder: what was started and by whom, how far it has come, and what it printed. The process holds a lock on a
file of its folder until it ends, however it ends. So a server that was started again finds its jobs, and no two people
start one thing twice. Another file is deleted when the process ends by itself: where it is left, the job was killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from threading import Thread

from unrank.desk.history_index import Json
from unrank.desk.progress_file import RunProgress
from unrank.errors import UnrankError, printable_line
from unrank.serve.messages import NotFound

ABOUT, LOCK, OUTPUT, ERRORS, PROGRESS = "job.json", "lock", "output", "errors", "progress.json"
UNFINISHED = "unfinished"
"""The file of a job that is there until its process has ended by itself."""
SHELL = ("/bin/sh", "-c", '"$@"; [ $? -lt 128 ] && rm -f "$0"')
"""Runs a command, and deletes a file unless the command was killed; the words after it are the file and the command."""
LONGEST = 64 << 20
"""The most bytes of a job's output that are read."""


class JobKind(StrEnum):
    """The kinds of jobs."""

    plan = "plan"
    run = "run"


@dataclass(frozen=True)
class Job:
    """A plan or a run that was started."""

    number: int
    kind: JobKind
    by: str
    begun: str
    requests: tuple[int, ...]
    folder: Path

    @property
    def is_running(self) -> bool:
        """Whether its process is there: it holds the lock until it ends."""
        try:
            with (self.folder / LOCK).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    @property
    def was_stopped(self) -> bool:
        """Whether it ended before its end, though it may have printed some results."""
        return (self.folder / UNFINISHED).exists() or not self.results

    @property
    def progress(self) -> RunProgress:
        return RunProgress.read(self.folder / PROGRESS)

    @property
    def results(self) -> list[Json]:
        """The objects that it printed, one for each ranker."""
        found = []
        for line in _text(self.folder / OUTPUT).splitlines():
            with suppress(ValueError):
                value = json.loads(line)
                found += [value] if isinstance(value, dict) else []
        return found

    @property
    def error(self) -> str | None:
        """Why it ended without a result, in a line; `None` if it said nothing of the kind."""
        lines = [line for line in _text(self.folder / ERRORS).splitlines() if line.startswith("unrank: ")]
        return printable_line(lines[-1].removeprefix("unrank: ")) if lines else None


class Jobs:
    """The jobs in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def all(self) -> list[Job]:
        """Return all jobs, the last one first."""
        numbers = [int(path.name) for path in self._folder.glob("*/") if path.name.isdigit()]
        found = (self._read(number) for number in sorted(numbers, reverse=True))
        return [job for job in found if job is not None]

    def find(self, number: int) -> Job:
        if (job := self._read(number)) is None:
            raise NotFound(f"there is no job {number}: it may have been deleted when a request was closed")
        return job

    def running(self, kind: JobKind) -> Job | None:
        return next((job for job in self.all() if job.kind is kind and job.is_running), None)

    def start(self, kind: JobKind, command: Sequence[str], by: str, requests: Sequence[int]) -> Job:
        """Start a job, unless one of its kind is at work. `{progress}` in the command becomes the progress file."""
        with self._starting():
            if (other := self.running(kind)) is not None:
                raise UnrankError(
                    f"{other.by} has started a {kind} already, and it is at work: wait until it has ended"
                )
            job = self._new(kind, by, requests)
            words = [word.replace("{progress}", str(job.folder / PROGRESS)) for word in command]
            with (
                (job.folder / LOCK).open("w") as lock,
                (job.folder / OUTPUT).open("wb") as output,
                (job.folder / ERRORS).open("wb") as errors,
            ):
                fcntl.flock(lock, fcntl.LOCK_EX)  # the process keeps it, because it inherits the open file
                _write(job)
                unfinished = job.folder / UNFINISHED
                unfinished.touch()
                process = subprocess.Popen(
                    [*SHELL, str(unfinished), *words],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors,
                    pass_fds=[lock.fileno()],
                    start_new_session=True,
                )
        Thread(target=process.wait, daemon=True).start()
        return job

    def clear(self, pending: set[int]) -> None:
        """Delete ended jobs of requests that are not pending any more: what they printed may name what is erased."""
        for job in self.all():
            if not pending.issuperset(job.requests) and not job.is_running:
                shutil.rmtree(job.folder, ignore_errors=True)

    @contextmanager
    def _starting(self) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self._folder / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _new(self, kind: JobKind, by: str, requests: Sequence[int]) -> Job:
        number = 1 + max((job.number for job in self.all()), default=0)
        while True:
            folder = self._folder / str(number)
            try:
                folder.mkdir(mode=0o700)
                break
            except FileExistsError:
                number += 1
        return Job(number, kind, by, datetime.now(UTC).isoformat(timespec="seconds"), tuple(requests), folder)

    def _read(self, number: int) -> Job | None:
        folder = self._folder / str(number)
        try:
            value = json.loads((folder / ABOUT).read_text())
            return Job(number, JobKind(value["kind"]), value["by"], value["begun"], tuple(value["requests"]), folder)
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _write(job: Job) -> None:
    value = {name: part for name, part in asdict(job).items() if name not in ("number", "folder")}
    partial = job.folder / f".{ABOUT}.partial-{os.getpid()}"
    partial.write_text(json.dumps(value))
    partial.replace(job.folder / ABOUT)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(LONGEST).decode(errors="replace")
    except OSError:
        return ""
