"""Progress on the terminal: a bar with the time left, and a line at every check."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from unrank.engine.runtime import Progress, Silence
from unrank.errors import printable


class Bar:
    """One bar for the stretch of work that is under way."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task = bars.add_task("starting", total=None)

    def begin(self, what: str, steps: int) -> None:
        self._bars.reset(self._task, description=escape(printable(what)), total=steps)

    def advance(self, steps: int = 1) -> None:
        self._bars.advance(self._task, steps)

    def say(self, line: str) -> None:
        self._bars.console.print(printable(line), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress(quiet: bool) -> Iterator[Progress]:
    """Who listens to a job: a bar on standard error (lines alone where that is no terminal), or nobody."""
    if quiet:
        yield Silence()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Bars(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        yield Bar(bars)
