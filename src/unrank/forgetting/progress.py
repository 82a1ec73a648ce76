"""Progress: one bar for a whole job with a line at every check, and the journal that `unrank watch` reads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Protocol, runtime_checkable

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from unrank.collection.collection import Collection
from unrank.disk import CHECKPOINT, JOURNAL, follows
from unrank.engine.resume import ResumableRun
from unrank.engine.runtime import Progress, Silence
from unrank.errors import Stopped, UnrankError, printable, printable_line
from unrank.journal import Before, Journal, Process
from unrank.record import Check


class Bar:
    """One bar for a whole job. It moves when the job says which share of it is done; until then it pulses.

    The piece of work under way is named beside it, with the percentage of that piece.
    """

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task = bars.add_task("starting", total=None)
        self._what, self._steps, self._advanced = "starting", 0, 0
        self._share = 0.0

    def begin(self, what: str, steps: int) -> None:
        self._what, self._steps, self._advanced = escape(printable(what)), steps, 0
        self._describe()

    def advance(self, steps: int = 1) -> None:
        self._advanced += steps
        self._describe()

    def done(self, share: float) -> None:
        self._share = max(self._share, min(share, 1.0))
        self._bars.update(self._task, total=1.0, completed=self._share)

    def say(self, line: str) -> None:
        self._bars.console.print(printable_line(line), markup=False, highlight=False, soft_wrap=True)

    def _describe(self) -> None:
        percent = f" {min(1.0, self._advanced / self._steps):4.0%}" if self._steps else ""
        self._bars.update(self._task, description=f"{self._what}{percent}")


@contextmanager
def show_progress(quiet: bool = False) -> Iterator[Progress]:
    """Yield a bar on standard error; only its lines if that is not a terminal; or a listener that shows nothing."""
    if quiet:
        yield Silence()
        return
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True)
    with Bars(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        yield Bar(bars)


@contextmanager
def listening(progress: Progress | None) -> Iterator[Progress]:
    """Yield the given listener. If there is none, yield a bar on a terminal and silence elsewhere."""
    if progress is not None:
        yield progress
    else:
        with show_progress(quiet=not sys.stderr.isatty()) as shown:
            yield shown


@runtime_checkable
class Follower(Progress, Protocol):
    """A listener that follows the figures of a run too."""

    def before(self, figures: Before) -> None:
        """Take the figures before the run."""

    def plan(self, epochs: float, exact: bool) -> None:
        """Take the number of epochs; at most that many if it is not exact."""

    def check(self, check: Check) -> None:
        """Take the figures of a check."""


class Relay:
    """Several listeners as one. Figures go to those that follow them."""

    def __init__(self, *listeners: Progress) -> None:
        self.listeners = listeners

    def begin(self, what: str, steps: int) -> None:
        for listener in self.listeners:
            listener.begin(what, steps)

    def advance(self, steps: int = 1) -> None:
        for listener in self.listeners:
            listener.advance(steps)

    def done(self, share: float) -> None:
        for listener in self.listeners:
            listener.done(share)

    def say(self, line: str) -> None:
        for listener in self.listeners:
            listener.say(line)

    def before(self, figures: Before) -> None:
        for follower in followers(*self.listeners):
            follower.before(figures)

    def plan(self, epochs: float, exact: bool) -> None:
        for follower in followers(*self.listeners):
            follower.plan(epochs, exact)

    def check(self, check: Check) -> None:
        for follower in followers(*self.listeners):
            follower.check(check)


class Recorder:
    """A listener that writes the journal of a run."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._what, self._of, self._done, self._taken = "starting", 0, 0, 0

    def begin(self, what: str, steps: int) -> None:
        self._what, self._of, self._done = what, steps, 0
        self._write_steps()

    def advance(self, steps: int = 1) -> None:
        self._done, self._taken = self._done + steps, self._taken + steps
        self._write_steps()

    def done(self, share: float) -> None:
        return

    def say(self, line: str) -> None:
        self.journal.write("say", line=line)

    def before(self, figures: Before) -> None:
        self.journal.write("before", before=asdict(figures))

    def plan(self, epochs: float, exact: bool) -> None:
        self.journal.write("plan", epochs=epochs, exact=exact)

    def check(self, check: Check) -> None:
        self.journal.write("check", check=check.to_json())

    def _write_steps(self) -> None:
        if self.journal.is_due():
            self.journal.write("steps", what=self._what, done=self._done, of=self._of, taken=self._taken)


def followers(*listeners: Progress) -> list[Follower]:
    """Return the listeners that follow the figures of a run."""
    return [listener for listener in listeners if isinstance(listener, Follower)]


def journal_of(progress: Progress) -> Journal | None:
    """Return the journal that a listener writes; `None` if it writes none."""
    listeners = progress.listeners if isinstance(progress, Relay) else (progress,)
    return next((each.journal for each in listeners if isinstance(each, Recorder)), None)


def journal_names(collection: Collection) -> dict[str, str]:
    """Return what a journal says of a collection, so that its texts can be shown."""
    return {"collection": str(collection.folder.resolve()), "fingerprint": collection.fingerprint}


@contextmanager
def journalling(progress: Progress, path: Path, kind: str, **about: str) -> Iterator[Progress]:
    """Yield a listener that also writes a journal, from what the job is to how it ended."""
    journal = Journal(path)
    journal.write("start", process=vars(Process.this()), kind=kind, **about)
    try:
        yield Relay(progress, Recorder(journal))
    except BaseException as error:
        how = "stopped" if isinstance(error, (Stopped, KeyboardInterrupt)) else "failed"
        journal.write("end", how=how, why=str(error) if isinstance(error, UnrankError) else type(error).__name__)
        raise
    else:
        journal.write("end", how="done", seconds=round(journal.seconds, 4), elapsed=round(journal.elapsed, 3))
    finally:
        journal.close()


@contextmanager
def recording(progress: Progress, run: ResumableRun | None, kind: str, **about: str) -> Iterator[Progress]:
    """Yield a listener that also writes the journal of a run, if the run has a folder for its checkpoints.

    If the run ends early and can go on later, the journal says how it ended. Otherwise it is deleted.
    """
    if run is None or run.folder is None or follows():
        yield progress
        return
    path = run.folder / JOURNAL
    try:
        with journalling(progress, path, kind, **about) as listener:
            yield listener
    except BaseException:
        if not (run.folder / CHECKPOINT).exists():
            path.unlink(missing_ok=True)
        raise
