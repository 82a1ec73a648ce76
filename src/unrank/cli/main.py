"""`unrank`: one command a job. A mistake of the user's is one line on standard error and exit 2."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import typer

from unrank.cli import audit, bench, collection, demo, desk, filter, forget, names, ranker, report
from unrank.disk import follows
from unrank.errors import LONGEST_LINE, Stopped, UnrankError, one_line, told

# What the command line raises at a wrong word; typer names only its children.
MISUSE: type[Any] = typer.BadParameter.__mro__[2]
STOPPED = 130

app = typer.Typer(
    name="unrank",
    help="Make a trained neural ranker forget chosen queries or documents, leave the rest alone, and show that it did.",
    add_completion=False,
    rich_markup_mode=None,
)
app.command("demo")(demo.demo)
app.command("import")(collection.import_)
app.command("inspect")(collection.inspect)
app.command("find")(collection.find)
app.command("split")(collection.split)
app.command("train")(ranker.train)
app.command("forget")(forget.forget)
app.command("evaluate")(ranker.evaluate)
app.command("bench")(bench.bench)
app.command("report")(report.report)
app.command("audit")(audit.audit)
app.add_typer(desk.app, name="desk")
app.command("filter")(filter.filter_)
app.command("list")(names.list_)


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends us leaves nothing half written either
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit status."""
    if follows():
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - until the process ends
    try:
        status = app(args=list(arguments) or ["--help"], prog_name="unrank", standalone_mode=False)
        if status == STOPPED:  # what typer makes of an interruption
            raise KeyboardInterrupt
        return status if isinstance(status, int) else 0
    except Stopped as stop:
        return _fail(str(stop), STOPPED)
    except MISUSE as error:
        return _fail(error.format_message(), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("stopped; nothing was left half written", STOPPED)
    except Exception as error:
        return _fail(told(error), 2 if isinstance(error, UnrankError | OSError) else 1)


def _fail(message: str, status: int) -> int:
    if follows() and status == 2:
        return status  # the first process says the same
    print(f"unrank: {one_line(message, LONGEST_LINE)}", file=sys.stderr)
    return status
