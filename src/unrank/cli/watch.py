"""The command `watch`: a run or a bench as it moves, in the terminal, as a file or as a served page."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unrank.cli.option import NOT_REACHED, AsJson
from unrank.cli.show import notice, say, say_json
from unrank.disk import check_writable, open_regular
from unrank.errors import UnrankError, one_line

if TYPE_CHECKING:
    from unrank.report.watch import RunView, View

REFRESH = 5
"""Seconds after which a browser loads the page of a file again."""
SHOWN = 100
FOLDER = "The --out of a run or a bench; it need not exist yet."
PAGE = "Also write the page to this file, again and again; a browser that shows it loads it again."
SERVE = "Serve the page on this port of this machine instead; needs unrank[serve]."
NO_TEXTS = "Show rows of the collection and no text of it."


def watch(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help=FOLDER)],
    page: Annotated[Path | None, typer.Option("--page", metavar="FILE", help=PAGE)] = None,
    serve: Annotated[int | None, typer.Option("--serve", metavar="PORT", help=SERVE, min=1, max=65_535)] = None,
    every: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show the state now, and exit.")] = False,
    no_texts: Annotated[bool, typer.Option("--no-texts", help=NO_TEXTS)] = False,
    as_json: AsJson = False,
) -> None:
    """Watch a run or a bench as it moves: MRRs, distance to the places, losses, lists of a few queries, time left."""
    from unrank.report.watch import look

    if serve is not None and (page is not None or as_json or once):
        raise UnrankError("--serve shows the page until it is stopped: leave out --page, --json and --once")
    if page is not None:
        check_page(page)
    if serve is not None:
        from unrank.serve.watch import serve_watch

        look(folder)  # a folder of something else is refused before anything is served
        say(f"http://127.0.0.1:{serve}/ shows {folder}, to this machine alone; Ctrl-C ends it")
        serve_watch(folder, serve, not no_texts)
        return
    if as_json:
        view = look(folder, not no_texts)
        write_page(page, view, not no_texts)
        say_json(view.to_json())
    else:
        live = sys.stdout.isatty() and not once
        view = show_live(folder, page, every, not no_texts) if live else show_once(folder, page, not no_texts)
    if page is not None and not no_texts:
        from unrank.report.watch_page import texts_on

        if shown := texts_on(view):
            tell = notice if as_json else say
            tell(f"{page} shows {shown}: delete it after use; --no-texts leaves them out")
    if view.state in ("stopped", "failed", "died"):
        raise typer.Exit(NOT_REACHED)


def show_once(folder: Path, page: Path | None, texts: bool) -> View:
    """Print the state."""
    from rich.console import Console

    from unrank.report.watch import look

    view = look(folder, texts)
    write_page(page, view, texts)
    Console(highlight=False).print(drawn(view))
    return view


def show_live(folder: Path, page: Path | None, every: float, texts: bool) -> View:
    """Draw the state again and again until the run is over; the last drawing stays."""
    from rich.live import Live

    from unrank.report.watch import OVER, look

    view = look(folder, texts)
    with Live(drawn(view), auto_refresh=False, transient=False) as live, suppress(KeyboardInterrupt):
        while True:
            live.update(drawn(view), refresh=True)
            write_page(page, view, texts)
            if view.state in OVER:
                break
            sleep(every)
            view = look(folder, texts)
    return view


def check_page(page: Path) -> None:
    """Refuse a file that is not a page of this command: it would be overwritten."""
    check_writable(page)
    if page.exists():
        with open_regular(page) as file:
            if b'id="watch"' not in file.read():
                raise UnrankError(f"{page} exists already and is no page of 'unrank watch': choose another --page")


def write_page(page: Path | None, view: View, texts: bool) -> None:
    """Write the page whole, for its owner's eyes."""
    from unrank.report.watch_page import watch_page

    if page is None:
        return
    partial = page.with_name(f".{page.name}.partial-{os.getpid()}")
    try:
        partial.touch(mode=0o600)
        partial.write_text(watch_page(view, refresh=REFRESH, texts=texts), encoding="utf-8")
        partial.replace(page)
    finally:
        partial.unlink(missing_ok=True)


def drawn(view: View) -> Any:
    """Return the state as rich draws it."""
    from rich.console import Group
    from rich.text import Text

    from unrank.report.watch import RunView

    title = Text(one_line(view.name, SHOWN), style="bold")
    parts: list[Any] = [title, Text(one_line(view.words, 4 * SHOWN))]
    if isinstance(view, RunView):
        parts += _run(view)
    else:
        done = f"jobs: {view.jobs_done:,} of {view.jobs_of:,}" if view.jobs_of else ""
        parts += [Text(f"{done}{_left(view.seconds_left)}")] if done else []
        for job in view.jobs:
            parts += [Text(one_line(f"{job.name}  {job.title}: {job.words}", SHOWN), style="bold"), *_run(job)]
    return Group(*parts, *(Text(one_line(line, 2 * SHOWN), style="dim") for line in view.said))


def _run(view: RunView) -> list[Any]:
    """Return the figures, the last losses and the lists of a run."""
    from rich.table import Table
    from rich.text import Text

    from unrank.report.watch_page import figures

    under_way = f"{view.what}, {view.done:,} of {view.of:,}" if view.of else view.what
    parts: list[Any] = [Text(one_line(under_way, SHOWN))] if view.state == "running" and view.what else []
    shown = figures(view)
    if view.checks:
        losses = ", ".join(f"{phase} {loss:.4g}" for phase, loss in view.checks[-1].losses.items())
        shown |= {"Losses": (losses or "–", f"epoch {view.checks[-1].epoch:.3g}")}
    if view.checks or view.before:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for label, (figure, note) in shown.items():
            table.add_row(label, Text(figure, style="bold"), Text(note, style="dim"))
        parts.append(table)
    for each in view.lists:
        ranks = " → ".join(", ".join(map(str, ranks)) or "–" for ranks in (each.before, each.now))
        parts.append(Text(one_line(f"{each.part}: {each.query}", SHOWN), style="bold"))
        parts.append(Text(f"  rank {ranks} of {each.entries:,}", style="dim"))
        for entry in each.first:
            style = "bold red" if entry.marked and each.part == "forget" else "green" if entry.marked else ""
            parts.append(Text(f"  {entry.rank}. {one_line(entry.text, SHOWN)}", style=style))
    return parts


def _left(seconds: float | None) -> str:
    from unrank.report.wording import duration

    return f"; about {duration(seconds)} left" if seconds is not None else ""
