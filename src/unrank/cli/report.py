"""The command `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unrank.cli.show import say


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What 'unrank forget' or 'unrank bench' wrote.")],
    out: Annotated[Path, typer.Option("--out", help="The page to write; it must not exist.")] = Path("report.html"),
    details: Annotated[
        Path | None, typer.Option(help="What 'unrank forget --details' wrote: every query's list before and after.")
    ] = None,
    no_texts: Annotated[
        bool,
        typer.Option("--no-texts", help="Leave out every id and text that was removed, to show the page to others."),
    ] = False,
    figures: Annotated[
        Path | None, typer.Option(help="Also write the figures, as SVG, PDF and PNG, to this folder.")
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(help="Also write the tables, as Markdown, CSV and LaTeX, to this folder.")
    ] = None,
) -> None:
    """Make a page of a run or a bench that opens in any browser, offline."""
    from unrank.report.write import write_report

    page = write_report(folder, out, details, not no_texts, figures, tables)
    say(page.verdict)
    for made in filter(None, (out, figures, tables)):
        say(f"written to {made}")
    if details is not None and not no_texts:
        say("the page holds what was removed: delete it when you are done; --no-texts makes one to show to others")
