"""The commands `bench` and `report`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unrank.cli.option import NOT_REACHED, RESOURCE, Quiet, RunFlags, Shard, read_resources, read_shard, with_flags
from unrank.cli.show import duration, say
from unrank.disk import JOURNAL, several_processes
from unrank.errors import UnrankError, count

if TYPE_CHECKING:
    from unrank.bench.run import GridStatus, Update
    from unrank.bench.runner import JobRunner
    from unrank.engine.runtime import Progress


GRID = "The grid file; docs/reference/bench.md explains it."
RECORDS = "The folder of the records; cells that are finished there are not run again."
INSTEAD = "A value to use instead of the grid's, such as collections=car. Repeatable."
PRIMARY = "Of a bench: the method to compare with all others, as tables name it; a grid says it beforehand."
MARGIN_HELP = "Of a bench: the share of the original's MRR that a method may lose; a grid says it beforehand."
JOBS = "Cells to run side by side; with several GPUs, each on one of them."
ON = "Start as many workers as --jobs says: as jobs of Slurm, on this machine as Slurm would (local), or in Ray."
LEASE = "Seconds without a sign of life after which the cell of a worker on another machine is taken over."


class Where(StrEnum):
    slurm = "slurm"
    local = "local"
    ray = "ray"


@dataclass(frozen=True)
class ShareFlags:
    """The options of a bench that is divided between machines."""

    shard: Shard = "1/1"
    on: Annotated[Where | None, typer.Option(help=ON)] = None
    resource: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help=RESOURCE)] = None
    lease: Annotated[float, typer.Option(help=LEASE, min=1)] = 120.0


RUN, SHARE = RunFlags(), ShareFlags()


@with_flags
def bench(
    grid: Annotated[Path, typer.Argument(metavar="GRID.toml", help=GRID)],
    out: Annotated[Path, typer.Option("--out", help=RECORDS)],
    instead: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=INSTEAD)] = None,
    jobs: Annotated[int, typer.Option(help=JOBS, min=1)] = 1,
    keep_rankers: Annotated[bool, typer.Option("--keep-rankers", help="Also keep the ranker of each cell.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells and the expected time only.")] = False,
    flags: RunFlags = RUN,
    share: ShareFlags = SHARE,
    quiet: Quiet = False,
) -> None:
    """Run every cell of a grid once: each collection, ranker, removal, share, method, destination and seed."""
    if several_processes():
        raise UnrankError("bench starts its own processes: start it without torchrun or accelerate, with --jobs N")
    from unrank.bench.grid import read_grid
    from unrank.bench.plan import plan_cells, shard_cells
    from unrank.bench.run import GridStatus
    from unrank.bench.runner import JobRunner
    from unrank.forgetting.trackers import check_trackers
    from unrank.methods import read_settings

    cells = plan_cells(read_grid(grid, read_settings(instead or ())))
    status = GridStatus.of(shard_cells(cells, *read_shard(share.shard)), out)
    if keep_rankers and not quiet and (bare := status.without_rankers):
        say(f"{count(len(bare), 'finished cell')} without a ranker: --keep-rankers keeps those of later cells")
    if dry_run:
        for cell in status.cells:
            say(f"{'done' if cell.name in status.finished else 'to do':<7}{cell.name}  {cell}")
        say(what_is_left(status, jobs))
        return
    trackers, command = tuple(flags.report_to or ()), command_of(grid, instead or ())
    check_trackers(trackers)
    how = (flags.deterministic, flags.checkpoint_every, flags.resume, flags.fast, command, trackers)
    runner = JobRunner(status.store, flags.device, keep_rankers, jobs if share.on is None else 1, *how)
    lost, total = run_shared(status, runner, jobs, share, quiet)
    if lost:
        say(f"{count(lost, 'job')} of {total:,} not done; the same command tries again. The records are in {out}")
        raise typer.Exit(NOT_REACHED)
    if not quiet:
        say(what_is_done(share.shard, len(status.cells), out))


def what_is_done(shard: str, cells: int, out: Path) -> str:
    """Return what a bench finished: its grid, or the part that is its shard.

    >>> what_is_done("1/1", 3, Path("bench")), what_is_done("2/5", 0, Path("bench"))
    ('the grid is done: 3 cells; the records are in bench', 'this part of the grid, shard 2/5, holds no cell')
    """
    part = "the grid" if read_shard(shard)[1] == 1 else f"this part of the grid, shard {shard},"
    return f"{part} is done: {count(cells, 'cell')}; the records are in {out}" if cells else f"{part} holds no cell"


def run_shared(status: GridStatus, runner: JobRunner, jobs: int, share: ShareFlags, quiet: bool) -> tuple[int, int]:
    """Run what is left of a grid, with the other benches in its folder; return how many jobs are lost, and of all."""
    from unrank.bench.fleet import make_launcher, open_fleet
    from unrank.bench.run import GridStatus, run_grid, shared
    from unrank.bench.worker_pool import open_pool
    from unrank.forgetting.progress import journalling, show_progress

    if share.resource and share.on is None:
        raise UnrankError("--resource describes the workers that --on starts: give --on, or leave it out")
    out, resources = status.store.out, read_resources(share.resource or ())
    launcher = make_launcher(share.on.value, out / "workers", resources) if share.on else None
    with shared(status.store, jobs if launcher is None else 0, share.lease) as claims, ExitStack() as stack:
        listener = stack.enter_context(show_progress(quiet))
        if not claims.heartbeats.others():  # one bench in a folder writes the journal
            listener = stack.enter_context(journalling(listener, out / JOURNAL, "bench"))
        status = GridStatus.of(status.cells, out)  # another bench may have run until now
        total = len(status.queue().left)
        listener.say(what_is_left(status, jobs))
        listener.begin("bench", total)
        pool = open_fleet(launcher, status, runner, claims, jobs) if launcher else open_pool(runner, jobs)
        lost = run_grid(status, claims, stack.enter_context(pool), lambda update: show_update(update, total, listener))
    return lost, total


def command_of(grid: Path, instead: Sequence[str]) -> str:
    """Return the command of a bench as records keep it: its grid and values, and folders by their last names alone.

    >>> command_of(Path("grids/mini.toml"), ["collections=/data/car", "shares=[0.25]"])
    'unrank bench mini.toml --set collections=car --set shares=[0.25]'
    """
    named = [re.sub(r"[^\s\"',\[\]=]*/", "", each.rstrip("/")) for each in instead]
    return " ".join(["unrank bench", grid.name, *(f"--set {each}" for each in named)])


def show_update(update: Update, total: int, progress: Progress) -> None:
    """Show the end of a job."""
    from unrank.forgetting.progress import journal_of

    progress.advance(1 + len(update.impossible))
    progress.done(1 - update.jobs_left / total)
    if (journal := journal_of(progress)) is not None and update.seconds_left is not None:
        journal.write("left", seconds=update.seconds_left)
    progress.say(f"{total - update.jobs_left} of {total}: {in_words(update)}")


def what_is_left(status: GridStatus, jobs: int) -> str:
    """Return how many cells are done, and how long the others will take."""
    left = status.queue().left
    cells = len(status.cells) - len(status.finished)
    rankers = count(len(left) - cells, "ranker")
    seconds = status.eta.left(left, jobs)
    time = f"about {duration(seconds)}" if seconds is not None else "none is done yet, so the time is not known"
    done = f"{count(len(status.cells), 'cell')}: {len(status.finished):,} done"
    lines = [f"{done}, {cells:,} to do, {rankers} to train first; {time}" if cells else done]
    for label, other in status.renamed.items():
        lines.append(
            f"{label!r} was run as {other!r}, the same method with the same settings; reports call it {other!r}"
        )
    if status.namesakes:
        others = count(len(status.namesakes), "cell")
        lines.append(
            f"{others} in {status.store.cells} made with other settings under the same names, {status.namesakes[0]} "
            "the first: 'unrank report' refuses a folder with both, so choose another --out or take them away"
        )
    return "\n".join(lines)


def in_words(update: Update) -> str:
    """Return the end of a job in one line."""
    result = update.result
    fate = "failed: " if result.failed else ""
    lost = f"; {count(len(update.impossible), 'cell')} cannot be run without it" if update.impossible else ""
    left = f"; about {duration(update.seconds_left)} left" if update.seconds_left else ""
    time = "" if result.elsewhere else f"; {duration(result.seconds)}"
    return f"{result.job}: {fate}{result.message}{time}{lost}{left}"


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="What 'unrank forget', 'unrank bench' or 'unrank pack' wrote.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The page to write; it must not exist.")] = Path("report.html"),
    details: Annotated[
        Path | None, typer.Option(help="The folder that 'unrank forget --details' wrote: lists before and after.")
    ] = None,
    no_texts: Annotated[
        bool, typer.Option("--no-texts", help="Leave out every removed id and text, so that others may see the page.")
    ] = False,
    figures: Annotated[
        Path | None, typer.Option(help="Also write the figures, as SVG, PDF and PNG, to this folder.")
    ] = None,
    tables: Annotated[
        Path | None, typer.Option(help="Also write the tables, as Markdown, CSV and LaTeX, to this folder.")
    ] = None,
    primary: Annotated[str | None, typer.Option(help=PRIMARY, metavar="METHOD")] = None,
    margin: Annotated[float | None, typer.Option(help=MARGIN_HELP)] = None,
    quiet: Quiet = False,
) -> None:
    """Write an HTML page about a run or a bench. It opens in any browser, offline."""
    from unrank.record import MARGIN, Said
    from unrank.report.write import write_report

    if margin is not None and not 0 < margin < 1:
        raise UnrankError(f"the margin must be between 0 and 1, such as {MARGIN}, not {margin:g}")
    given = None if primary is None and margin is None else Said(primary or "", margin)
    page = write_report(folder, out, details, not no_texts, figures, tables, given)
    say(page.verdict)
    if quiet:
        return
    for made in filter(None, (out, figures, tables)):
        say(f"written to {made}")
    if details is not None and not no_texts:
        say("the page contains what was removed: delete it after use; --no-texts writes one that others may see")
