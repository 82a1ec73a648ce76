"""Progress on the terminal: one bar for the whole job, and a line at every check."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from unrank.engine.runtime import Progress, Silence
from unrank.errors import printable, printable_line


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
