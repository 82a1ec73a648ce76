"""Resuming: a run that is stopped goes on from its last checkpoint.

The folder of an unfinished run lies beside its result and holds the newest checkpoint. One is written after a step, at
intervals or when a signal asks the run to stop. The folder belongs to one job at a time and is deleted when the result
is complete. If several processes share a job, all read the checkpoint and the first one writes it. A signal then ends
them at once, because no process can finish a step without the others.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from time import perf_counter
from types import FrameType

from unrank.disk import (
    CHECKPOINT,
    beside,
    check_free,
    clear_checkpoints,
    clear_half_written,
    follows,
    several_processes,
    sole_user,
)
from unrank.engine.checkpoint import Checkpoint, Facts, Stateful
from unrank.engine.distributed import ProcessGroup
from unrank.errors import NotFinite, Stopped, UnrankError
from unrank.record import current_settings

EVERY = 60.0
"""Seconds between checkpoints."""
LARGEST_SHARE = 0.05
"""The largest share of a run's time that checkpoints may take."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class OtherRun(UnrankError):
    """A checkpoint that belongs to another run."""


class ResumableRun:
    """A run that can be resumed. Without a folder, or with `writes=False`, it writes no checkpoint."""

    def __init__(self, folder: Path | None = None, every: float = EVERY, writes: bool = True) -> None:
        self.folder, self._writes = folder, writes
        self._every, self._cost, self._written = every, 0.0, perf_counter()
        self._job: Facts = {}
        self._parts: dict[str, Stateful] = {}
        self._stepping = self._asked = False
        self._last: Checkpoint | None = None
        self._warned = False

    def claim(self, job: Callable[[], Facts]) -> None:
        """Declare the job, and refuse a checkpoint of another one."""
        if self.folder is None:
            return
        self._job = dict(job())
        self._last = Checkpoint.load(self.folder / CHECKPOINT)
        if self._last is not None and (other := differences(_renamed(self._last.facts["job"]), self._job)):
            raise OtherRun(
                f"{self.folder} holds an unfinished run that is not this one: {other}; "
                "use the same options and files, start again with --no-resume, or choose another --out"
            )

    def stored(self, name: str) -> Checkpoint | None:
        """Return a part of the last checkpoint, before it is followed; `None` if there is none."""
        return self._last.part(name) if self._last is not None and name in self._last.facts else None

    def follow(self, say: Callable[[str], None], processes: ProcessGroup, **parts: Stateful) -> None:
        """Restore these parts from the last checkpoint, if there is one, and save their state from now on."""
        self._parts, self._say = parts, say
        if not processes.all_have(self._last.number if self._last else 0):
            raise UnrankError(
                f"the processes do not see the same checkpoint in {self.folder}: choose an --out where all can read"
            )
        if self._last is not None:
            for name, part in parts.items():
                part.restore(self._last.part(name))
            say(f"continuing the unfinished run in {self.folder}")
        self._last, self._written = None, perf_counter()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Run a step. A signal takes effect at its end, after a checkpoint."""
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
        """Handle a signal: during a step at its end, else at once."""
        if self._asked or not self._stepping:
            raise Stopped
        self._asked = True

    def _is_due(self) -> bool:
        return perf_counter() - self._written >= max(self._every, self._cost / LARGEST_SHARE)

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


def differences(there: Facts, here: Facts) -> str:
    """List the facts in which two jobs differ.

    >>> differences({"seed": 1, "method": "cocol"}, {"seed": 0, "method": "cocol"})
    'seed is 1 there and 0 here'
    """
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    return ", ".join(f"{name} is {_shown(there.get(name))} there and {_shown(here.get(name))} here" for name in names)


def _renamed(job: Facts) -> Facts:
    """Return the facts of a job with the present names of its method's settings."""
    return current_settings(str(job.get("method")), job)


def _shown(value: object) -> str:
    """Shorten a hash to its first characters."""
    return f"{value[:8]}…" if isinstance(value, str) and len(value) == 64 else f"{value}"


@contextmanager
def resumable(
    out: Path, folder: Path | None = None, every: float = EVERY, resume: bool = True
) -> Iterator[ResumableRun]:
    """Open a run whose result will be `out`. Its checkpoint is deleted when the block ends well or cannot go on."""
    folder = folder or beside(out)
    if follows():
        yield ResumableRun(folder if resume else None, writes=False)
        return
    with sole_user(folder, f"another job is at work on {out}: wait for it, or stop it"):
        folder.chmod(0o700)  # a checkpoint still knows what is to be forgotten
        if not resume:
            clear_checkpoints(folder)
        clear_half_written(out)
        run = ResumableRun(folder, every)
        try:
            check_free(out)
            with nullcontext() if several_processes() else _on_signals(run.stop):
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
def _on_signals(stop: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call `stop` on a signal while the block runs. A signal that the process ignores stays ignored."""
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:
                    stack.callback(signal.signal, number, signal.signal(number, stop))
        yield
