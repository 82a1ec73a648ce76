"""Commands on the records of a bench: pack, reproduce and leaderboard."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from unrank.cli.option import NOT_REACHED, DeviceOption, Quiet
from unrank.cli.show import say
from unrank.disk import check_free
from unrank.errors import count

BENCH = "The folder that 'unrank bench' wrote, or a packed file."


def pack(
    bench: Annotated[list[Path], typer.Argument(metavar="BENCH...", help=BENCH)],
    out: Annotated[Path, typer.Option("--out", help="The file to write, which ends with .jsonl.gz.")],
    quiet: Quiet = False,
) -> None:
    """Pack the finished cells of a bench in one file, which 'unrank report' reads and which others can be given."""
    from unrank.bench.packed import pack_benches

    check_free(out)
    cells = pack_benches(bench, out)
    if not quiet:
        say(f"{count(cells, 'cell')} in {out}")


CELL = "A cell: its folder in a bench, or FILE.jsonl.gz/NAME for one of a packed file."
COLLECTION = "The collection of the cell, imported as its record says."
REPRODUCE_BASE = "The base of the cell: an encoder's folder or hub id, or word vectors; by default the package's."
NEW_BENCH = "The folder of a new bench to keep the cell that is run; by default it is deleted."


def reproduce(
    cell: Annotated[Path, typer.Argument(metavar="CELL", help=CELL)],
    collection: Annotated[Path, typer.Option("--collection", help=COLLECTION)],
    base: Annotated[str | None, typer.Option("--base", help=REPRODUCE_BASE)] = None,
    out: Annotated[Path | None, typer.Option("--out", help=NEW_BENCH)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what differs, and run nothing.")] = False,
    device: DeviceOption = "auto",
    quiet: Quiet = False,
) -> None:
    """Run a finished cell again, and compare the ranks of every query bit by bit."""
    if out is not None:
        check_free(out)
    from unrank.bench.packed import find_cell
    from unrank.bench.reproduce import Reproduction

    plan = Reproduction.plan(find_cell(cell), collection, base, device)
    if not quiet:
        say(f"{plan.stored.name}: {plan.cell}")
        for line in plan.differences:
            say(f"not as it was: {line}")
        if plan.unknown:
            say(f"not recorded: {', '.join(plan.unknown)}")
        if not plan.differences:
            say("all else is as it was" if plan.unknown else "code, versions, device and data are as they were")
    if dry_run:
        return
    with TemporaryDirectory() as nowhere:
        _, differing = plan.run(out or Path(nowhere) / "bench", device)
    if differing:
        say(f"other ranks: {', '.join(differing)}")
        raise typer.Exit(NOT_REACHED)
    ranks = sum(len(of[side]) for of in plan.stored.ranks.values() if of for side in ("before", "after"))
    say(f"the ranks are the same, bit by bit: {count(ranks, 'rank')} in all sets, before and after")


FILES = "Files that 'unrank pack' wrote, or folders of benches."
SPLITS = "A file of frozen splits, as runs/splits.py writes it; by default those of the published grids."


def leaderboard(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help=FILES)],
    out: Annotated[Path, typer.Option("--out", help="The page to write; it must not exist.")] = Path(
        "leaderboard.html"
    ),
    splits: Annotated[Path | None, typer.Option("--splits", metavar="FILE", help=SPLITS)] = None,
    quiet: Quiet = False,
) -> None:
    """Check records that others hand in, and write a page that compares them. A file with a wrong record is refused."""
    from unrank.report.leaderboard import write_leaderboard

    page = write_leaderboard(files, out, splits)
    if not quiet:
        say(f"{page.verdict} Written to {out}")
