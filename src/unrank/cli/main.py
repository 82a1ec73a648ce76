"""The command `unrank`, and `unrank list`. A mistake of the user is one line on standard error and exit code 2."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields
from enum import StrEnum
from functools import cache
from typing import Annotated, Any

import typer

import unrank
from unrank.cli import (
    audit,
    bench,
    collection,
    demo,
    desk,
    encode,
    evaluate,
    forget,
    index,
    preview,
    proxies,
    ranker,
    records,
    tune,
    watch,
)
from unrank.cli.late import PANDAS, stay_late
from unrank.cli.option import Quiet, WithPairs
from unrank.cli.show import say
from unrank.disk import follows
from unrank.errors import LONGEST_LINE, Stopped, UnrankError, describe_error, one_line
from unrank.plugins import Catalogue, Known

# The error for a wrong option or argument; typer exports only its subclasses.
MISUSE: type[Any] = typer.BadParameter.__mro__[2]
STOPPED = 130
TRACKED = "--report-to"
"""The option that names trackers, which may use pandas."""
CHECKS = {
    r"Value error, ": "",
    r"Input should be a valid integer.*": "expected a whole number",
    r"Input should be a valid number.*": "expected a number",
    r"Input should be greater than or equal to (\S+)": r"must be \1 or more",
    r"Input should be less than or equal to (\S+)": r"must be \1 or less",
}
"""Phrases of the library that checks options, and what is printed instead."""

app = typer.Typer(
    name="unrank",
    help="Make a trained neural ranker forget chosen queries or documents, leave the rest alone, and show that it did.",
    add_completion=False,
    rich_markup_mode=None,
)


def _print_version(asked: bool) -> None:
    if asked:
        say(f"unrank {unrank.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Read the options that come before a command."""


class Listed(StrEnum):
    """The things that `unrank list` names."""

    methods = "methods"
    rankers = "rankers"
    sources = "sources"


def list_(
    what: Annotated[Listed, typer.Argument(metavar="WHAT", help="methods, rankers or sources.")], quiet: Quiet = False
) -> None:
    """List the methods and their settings, the rankers, or the sources; with --quiet their names alone."""
    from unrank.collection.sources import CATALOGUE as SOURCES
    from unrank.methods import CATALOGUE as METHODS
    from unrank.rankers import CATALOGUE as RANKERS

    names = {Listed.methods: METHODS.names, Listed.rankers: RANKERS.names, Listed.sources: SOURCES.names}
    if quiet:
        for name in names[what]():
            say(name)
    elif what is Listed.sources:
        for name, source in _entries(SOURCES):
            say(f"{name + (':' if source.takes_location else ''):<16}{source.summary}{_origin(SOURCES, name)}")
    elif what is Listed.rankers:
        for name, ranker in _entries(RANKERS):
            say(f"{name:<16}{ranker.summary}{_origin(RANKERS, name, ranker.alias)}")
            for method, recipe in ranker.recipes.items():
                say(f"    {method}: {', '.join(f'{name}={value}' for name, value in recipe.items())}")
    else:
        for name, entry in _entries(METHODS):
            say(f"{name:<16}{entry.summary}{_origin(METHODS, name, entry.alias)}")
            for setting in fields(entry.method):
                say(f"    --set {setting.name}={setting.default}")


def _entries(catalogue: Catalogue[Known]) -> Iterator[tuple[str, Known]]:
    """Yield all names with their entries. For one that cannot be used, print the reason instead."""
    for name in catalogue.names():
        try:
            yield catalogue.find(name)
        except UnrankError as error:
            say(f"{name:<16}{error}")


def _origin(catalogue: Catalogue[Known], name: str, alias: str = "") -> str:
    """Return the other name of an entry, and the package that it comes from."""
    package = catalogue.package_of(name)
    also = f" (also: {alias})" if alias else ""
    return also + (f" (from the package {package})" if package else "")


app.command("demo")(demo.demo)
app.command("import")(collection.import_)
app.command("inspect")(collection.inspect)
app.command("find")(collection.find)
app.command("split")(collection.split)
app.command("train")(ranker.train)
app.command("proxies")(proxies.proxies)
app.command("forget", cls=WithPairs)(forget.forget)
app.command("evaluate")(evaluate.evaluate)
app.command("encode")(encode.encode)
app.add_typer(index.app, name="index")
app.command("preview")(preview.preview)
app.command("bench")(bench.bench)
app.command("tune")(tune.tune)
app.command("report")(bench.report)
app.command("pack")(records.pack)
app.command("reproduce")(records.reproduce)
app.command("leaderboard")(records.leaderboard)
app.command("watch")(watch.watch)
app.command("audit")(audit.audit)
app.add_typer(desk.app, name="desk")
app.command("filter")(collection.filter_)
app.command("list")(list_)


def main() -> None:
    """Run the command of this process, and exit with its status."""
    if not any(word.startswith(TRACKED) for word in sys.argv):
        stay_late(PANDAS)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that SIGTERM leaves nothing half written either
    try:
        sys.exit(run(sys.argv[1:]))
    finally:
        gc.freeze()  # else Python looks for garbage among all objects of the libraries as it ends, for about a second


def run(arguments: Sequence[str]) -> int:
    """Run one command, and return its exit code."""
    if follows():
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - until the process ends
    try:
        status = _commands()(args=list(arguments) or ["--help"], prog_name="unrank", standalone_mode=False)
        if status == STOPPED:  # typer returns it after an interruption
            raise KeyboardInterrupt
        return status if isinstance(status, int) else 0
    except Stopped as stop:
        return _fail(str(stop), STOPPED)
    except MISUSE as error:
        return _fail(_usage_error(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("stopped; nothing was left half written", STOPPED)
    except SystemExit:  # unrank's own code ends in no such way
        return _fail("a package that was used called exit before the command was done", 1)
    except Exception as error:
        return _fail(describe_error(error), 2 if isinstance(error, UnrankError | OSError) else 1)


@cache
def _commands() -> Any:
    """Make the parser of all commands, once in a process: it takes longer than many commands do."""
    return typer.main.get_command(app)


def _usage_error(error: Any) -> str:
    """Return the message for a wrong option or argument, without the phrases of the library that checked it."""
    message = error.format_message().rstrip(".")
    for pattern, plain in CHECKS.items():
        message = re.sub(pattern, plain, message)
    return f"{message} (see '{error.ctx.command_path} --help')" if error.ctx is not None else message


def _fail(message: str, status: int) -> int:
    if follows() and status == 2:
        return status  # the first process prints the same line
    print(f"unrank: {one_line(message, LONGEST_LINE)}", file=sys.stderr)
    return status
