"""The journal of a run: a small file beside its checkpoints to which lines are only added, for `unrank watch`.

Each line is a JSON object with its `event` and the time of day, `at`. It holds rows of the collection and no id and no
text. It is deleted with the checkpoints when the result is complete.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, time
from typing import Any, Literal

from unrank.disk import open_regular
from unrank.parse import parse
from unrank.record import Check

MOST_BYTES = 64 * 2**20
"""A longer file is not the journal of a run."""
LEAST_WAIT = 1.0
WAIT_SHARE = 0.002
"""Lines about steps are this many seconds apart, or this share of the time since the start: a long run writes few."""
KEPT_LINES = 200
"""The most lines about steps, and the most sentences, that are read; the last ones."""

Ending = Literal["done", "stopped", "failed"]


class Journal:
    """Adds lines to the journal of a run, and counts the seconds that this takes."""

    def __init__(self, path: Path) -> None:
        self.seconds = 0.0
        self._started, self._steps_written = perf_counter(), -math.inf
        self._handle: int | None = None
        try:
            self._handle = os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600)
            size = os.fstat(self._handle).st_size
            if size and os.pread(self._handle, 1, size - 1) != b"\n":  # a killed run left half a line
                os.write(self._handle, b"\n")
        except OSError:
            self.close()

    @property
    def elapsed(self) -> float:
        """The seconds since the journal was opened."""
        return perf_counter() - self._started

    def is_due(self) -> bool:
        """Return whether it is time for another line about steps."""
        return perf_counter() - self._steps_written >= max(LEAST_WAIT, WAIT_SHARE * self.elapsed)

    def write(self, event: str, **facts: Any) -> None:
        """Add a line. A full disk ends the journal, and not the run."""
        if self._handle is None:
            return
        began = perf_counter()
        if event == "steps":
            self._steps_written = began
        line = json.dumps({"event": event, "at": round(time(), 3), **facts}, separators=(",", ":"))
        try:
            os.write(self._handle, f"{line}\n".encode())
        except OSError:
            self.close()
        self.seconds += perf_counter() - began

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
        self._handle = None


@dataclass(frozen=True)
class Process:
    """The process of a run."""

    pid: int
    host: str
    born: str | None = None
    """When it began, by the system's clock; another process may get the same number later."""

    @classmethod
    def this(cls) -> Process:
        return cls(os.getpid(), platform.node(), _born(os.getpid()))

    @property
    def is_here(self) -> bool:
        """Whether it ran on this machine."""
        return self.host == platform.node()

    @property
    def is_alive(self) -> bool:
        """Whether a process on this machine is still there."""
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):  # no process has such a number
            return False
        except PermissionError:  # somebody else's
            pass
        return self.born is None or _born(self.pid) in (None, self.born)


@dataclass(frozen=True)
class Start:
    """The first line of a run: what it is."""

    at: float
    process: Process
    kind: str
    method: str = ""
    ranker: str = ""
    collection: str = ""
    """The folder of the collection, from the root."""
    fingerprint: str = ""


@dataclass(frozen=True)
class Before:
    """The four MRRs before a run that forgets, and what they should come to."""

    mrrs: Mapping[str, float]
    target: float | None = None
    places: bool = False
    """Whether each pair has a place of its own."""
    distance: float | None = None
    """How far the pairs are from their places; `None` without places."""


@dataclass(frozen=True)
class Steps:
    """How far the piece of work under way is."""

    at: float
    what: str
    done: int
    of: int
    taken: int = 0
    """The steps and chunks since the run began."""


@dataclass(frozen=True)
class QueryList:
    """The list of a chosen query at a check: rows of the collection, best first."""

    query: int
    part: str
    """The set that the query belongs to."""
    entries: int
    first: tuple[int, ...]
    ranks: Mapping[str, int] = field(default_factory=dict)
    """The rank of each document that answers the query, by its row."""


@dataclass(frozen=True)
class Lines:
    """The journal of a run, read: its last start, and everything since the first one that still counts."""

    start: Start
    before: Before | None = None
    epochs: float | None = None
    """The epochs that the run takes, or takes at most."""
    exact: bool = False
    """Whether it takes that many, unless it is done or stopped before."""
    checks: tuple[Check, ...] = ()
    times: tuple[float, ...] = ()
    """The time of each check since the last start."""
    steps: tuple[Steps, ...] = ()
    """The last lines about steps since the last start."""
    lists: tuple[tuple[QueryList, ...], ...] = ()
    """The lists of the chosen queries: at first, and at the last check that scored them."""
    said: tuple[str, ...] = ()
    seconds_left: float | None = None
    """What a bench expects."""
    ending: Ending | None = None
    why: str = ""
    last: float = 0.0
    """The time of the last line."""


def read_journal(path: Path) -> Lines | None:
    """Return the journal of a run; `None` if there is none, or no line of it can be read."""
    try:
        with open_regular(path) as file:
            text = file.read(MOST_BYTES).decode(errors="replace")
    except OSError:
        return None
    found: Lines | None = None
    for line in text.splitlines():
        try:
            value = json.loads(line)
            found = _with(found, value["event"], value)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):  # half a line, or a stranger's
            continue
    return found


def _with(lines: Lines | None, event: str, value: Mapping[str, Any]) -> Lines | None:
    """Return a journal with one more line."""
    at = float(value["at"])
    if event == "start":
        start = parse(Start, value, "start")
        return (
            _changed(lines, at, start=start, steps=(), times=(), ending=None, why="")
            if lines
            else Lines(start, last=at)
        )
    if lines is None:
        return None
    read = READERS.get(event)
    return _changed(lines, at, **read(lines, value)) if read else lines


def _changed(lines: Lines, at: float, **changes: Any) -> Lines:
    return Lines(**{**vars(lines), **changes, "last": at})


def _checks(lines: Lines, value: Mapping[str, Any]) -> dict[str, Any]:
    """Add a check. A run that goes on from a checkpoint repeats the checks after it."""
    new = parse(Check, value["check"], "check")
    earlier = tuple(check for check in lines.checks if check.epoch < new.epoch)
    return {"checks": (*earlier, new), "times": (*lines.times, float(value["at"]))}


def _lists(lines: Lines, value: Mapping[str, Any]) -> dict[str, Any]:
    new = tuple(parse(QueryList, each, "list") for each in value["lists"])
    return {"lists": (*lines.lists[:1], new)}


def _steps(lines: Lines, value: Mapping[str, Any]) -> dict[str, Any]:
    return {"steps": (*lines.steps, parse(Steps, value, "steps"))[-KEPT_LINES:]}


READERS: Mapping[str, Any] = {
    "before": lambda lines, value: {"before": parse(Before, value["before"], "before")},
    "plan": lambda lines, value: {"epochs": float(value["epochs"]), "exact": bool(value["exact"])},
    "check": _checks,
    "steps": _steps,
    "lists": _lists,
    "say": lambda lines, value: {"said": (*lines.said, str(value["line"]))[-KEPT_LINES:]},
    "left": lambda lines, value: {"seconds_left": float(value["seconds"])},
    "end": lambda lines, value: {"ending": str(value["how"]), "why": str(value.get("why", ""))},
}
"""For each event, what it changes in the journal that was read so far."""


def _born(pid: int) -> str | None:
    """Return when a process began, in the system's ticks; `None` if the system does not say."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
