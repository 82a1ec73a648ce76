"""An unfinished run: what it keeps on disk while it is under way, so that it can go on after it was stopped.

Its folder lies beside the result and holds one checkpoint, the newest. After a step another may be due; a signal to
stop makes it due. The folder belongs to one job at a time, and is gone when the result is whole. Of several processes
on one job all read it, and the first writes: it is what all of them are at. A signal ends them where they are, because
none can end a step without the others.
"""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import Any

from unrank.disk import CHECKPOINT, beside, check_free, clear_checkpoints, follows, several_processes, sole_user
from unrank.engine.checkpoint import Checkpoint, Part
from unrank.engine.team import Team
from unrank.errors import NotFinite, Stopped, UnrankError

EVERY = 60.0
"""Seconds between checkpoints."""
MOST_OF_THE_TIME = 0.05
"""A share of a run's time: where checkpoints would take more, there are fewer."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Unfinished:
    """A run under way; without a folder, one that nobody keeps. Who only reads keeps nothing."""

    def __init__(self, folder: Path | None = None, every: float = EVERY, writes: bool = True) -> None:
        self.folder, self._writes = folder, writes
        self._every, self._cost, self._written = every, 0.0, perf_counter()
        self._job: dict[str, Any] = {}
        self._parts: dict[str, Part] = {}
        self._stepping = self._asked = False
        self._last: Checkpoint | None = None
        self._warned = False

    def claim(self, job: Callable[[], Mapping[str, Any]]) -> None:
        """Say what is to be done; a checkpoint of anything else is refused."""
        if self.folder is None:
            return
        self._job = dict(job())
        self._last = Checkpoint.load(self.folder / CHECKPOINT)
        if self._last is not None and (other := differences(self._last.facts["job"], self._job)):
            raise UnrankError(
                f"{self.folder} holds an unfinished run that is not this one: {other}; "
                "give what was given there, begin anew with --no-resume, or choose another --out"
            )

    def follow(self, say: Callable[[str], None], team: Team, **parts: Part) -> None:
        """Keep the state of these parts from now on; bring back what was kept of them."""
        self._parts, self._say = parts, say
        if not team.all_have(self._last.number if self._last else 0):
            raise UnrankError(
                f"the processes do not see the same checkpoint in {self.folder}: choose an --out where all can read"
            )
        if self._last is not None:
            for name, part in parts.items():
                part.restore(self._last.part(name))
            say(f"going on with the unfinished run in {self.folder}")
        self._last, self._written = None, perf_counter()

    @contextmanager
    def step(self) -> Iterator[None]:
        """A step is done whole: a signal waits for its end, and then for a checkpoint."""
        self._stepping = True
        try:
            yield
            if self.folder is not None and self._writes and (self._asked or self._is_due()):
                self._write(self.folder / CHECKPOINT)
        finally:
            self._stepping = False
        if self._asked:
            raise Stopped

    def stop(self, number: int, frame: FrameType | None) -> None:
        """What a signal does. Outside steps the checkpoint that is there is the newest that can be had."""
        if self._asked or not self._stepping:
            raise Stopped
        self._asked = True

    def _is_due(self) -> bool:
        return perf_counter() - self._written >= max(self._every, self._cost / MOST_OF_THE_TIME)

    def _write(self, path: Path) -> None:
        began = perf_counter()
        parts = {name: part.state() for name, part in self._parts.items()}
        try:
            Checkpoint.of({**parts, "job": Checkpoint(self._job)}).save(path)
        except UnrankError as error:  # a run of hours does not end because a disk is full now
            if not self._warned:
                self._say(f"{error}; going on without")
            self._warned = True
        self._written = perf_counter()
        self._cost = self._written - began


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """
    >>> differences({"seed": 1, "method": "cocol"}, {"seed": 0, "method": "cocol"})
    'seed is 1 there and 0 here'
    """
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    return ", ".join(f"{name} is {_shown(there.get(name))} there and {_shown(here.get(name))} here" for name in names)


def _shown(value: Any) -> str:
    """A hash by its beginning."""
    return f"{value[:8]}…" if isinstance(value, str) and len(value) == 64 else f"{value}"


@contextmanager
def unfinished(
    out: Path, folder: Path | None = None, every: float = EVERY, resume: bool = True
) -> Iterator[Unfinished]:
    """A run whose result will be `out`, kept in a folder until the block has ended well or cannot go on."""
    folder = folder or beside(out)
    if follows():
        yield Unfinished(folder if resume else None, writes=False)
        return
    with sole_user(folder, f"another job is at work on {out}: wait for it, or stop it"):
        folder.chmod(0o700)  # it holds what is to be forgotten
        if not resume:
            clear_checkpoints(folder)
        for half_written in out.parent.glob(f".{out.name}.partial-*"):
            shutil.rmtree(half_written, ignore_errors=True)
        run = Unfinished(folder, every)
        try:
            check_free(out)
            with nullcontext() if several_processes() else _told_by_signals(run.stop):
                yield run
        except (Stopped, KeyboardInterrupt) as stop:
            raise Stopped(_stopped(folder)) from stop
        except NotFinite:
            clear_checkpoints(folder)
            raise
        else:
            clear_checkpoints(folder)


def _stopped(folder: Path) -> str:
    if (folder / CHECKPOINT).exists():
        return f"stopped; the same command goes on from {folder}"
    return "stopped; nothing was left half written"


@contextmanager
def _told_by_signals(stop: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """While signals to stop are told to a run; those that a process ignores it goes on ignoring."""
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:
                    stack.callback(signal.signal, number, signal.signal(number, stop))
        yield
