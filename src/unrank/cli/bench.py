"""The command `bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unrank.cli.option import (
    CHECKPOINTS,
    NOT_REACHED,
    CheckpointEvery,
    Deterministic,
    DeviceName,
    DeviceOption,
    Quiet,
    Resume,
)
from unrank.cli.show import duration, say
from unrank.disk import several_processes
from unrank.errors import UnrankError, count

if TYPE_CHECKING:
    from unrank.bench.run import Step, Survey


def bench(
    grid: Annotated[
        Path, typer.Argument(metavar="GRID.toml", help="The grid; docs/reference/bench.md says how to write one.")
    ],
    out: Annotated[
        Path, typer.Option("--out", help="The folder of the records; what is done there is not done again.")
    ],
    instead: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="In place of what the grid says, such as collections=car."),
    ] = None,
    jobs: Annotated[int, typer.Option(help="How many cells to run side by side.", min=1)] = 1,
    keep_rankers: Annotated[
        bool, typer.Option("--keep-rankers", help="Keep what comes out of each cell, not its record alone.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the cells and the time they need; do nothing.")
    ] = False,
    checkpoint_every: CheckpointEvery = CHECKPOINTS,
    resume: Resume = True,
    device: DeviceOption = DeviceName.auto,
    same_bits: Deterministic = False,
    quiet: Quiet = False,
) -> None:
    """Run every cell of a grid once: collections, rankers, removals, shares, methods, destinations, seeds."""
    if several_processes():
        raise UnrankError("a bench has workers of its own: start it in one process, with --jobs")
    from unrank.bench.grid import read_grid
    from unrank.bench.job import Bench
    from unrank.bench.plan import plan_cells
    from unrank.bench.run import Survey, at_work, run_grid
    from unrank.cli.progress import progress
    from unrank.methods import read_settings

    cells = plan_cells(read_grid(grid, read_settings(instead or ())))
    survey = Survey.of(cells, out)
    if keep_rankers and (bare := survey.without_rankers):
        say(f"{count(len(bare), 'finished cell')} without a ranker: --keep-rankers keeps what is run from now on alone")
    if dry_run:
        for cell in survey.cells:
            say(f"{'done' if cell.name in survey.finished else 'to do':<7}{cell.name}  {cell}")
        say(what_is_ahead(survey, jobs))
        return
    with at_work(survey.shelf), progress(quiet) as listener:
        survey = Survey.of(cells, out)  # another run may have gone on until now
        total = len(survey.schedule().left)
        listener.say(what_is_ahead(survey, jobs))
        listener.begin("bench", total)

        def tell(step: Step) -> None:
            listener.advance(1 + len(step.fallen))
            listener.say(f"{total - step.tasks_left} of {total}: {in_words(step)}")

        worker = Bench(survey.shelf, device.value, keep_rankers, jobs, same_bits, checkpoint_every, resume)
        lost = run_grid(survey, worker, jobs, tell)
    if lost:
        say(f"{count(lost, 'task')} of {total:,} not done; the same command tries again. Records are in {out}")
        raise typer.Exit(NOT_REACHED)
    say(f"the grid is done: {count(len(survey.cells), 'cell')}; the records are in {out}")


def what_is_ahead(survey: Survey, jobs: int) -> str:
    """How many cells are done, and how long the rest takes."""
    tasks = survey.schedule().left
    cells = len(survey.cells) - len(survey.finished)
    rankers = count(len(tasks) - cells, "ranker")
    seconds = survey.times.left(tasks, jobs)
    time = f"about {duration(seconds)}" if seconds is not None else "none is done yet, so the time is not known"
    done = f"{count(len(survey.cells), 'cell')}: {len(survey.finished):,} done"
    ahead = f"{done}, {cells:,} to do, {rankers} to train first; {time}" if cells else done
    for label, other in survey.renamed.items():
        ahead += f"\n{label!r} was run as {other!r}, the same method, settings and all: 'unrank report' calls it that"
    if not survey.namesakes:
        return ahead
    first, others = survey.namesakes[0], count(len(survey.namesakes), "cell")
    return (
        f"{ahead}\n{others} in {survey.shelf.cells} made with other settings under the same names, {first} the first: "
        "'unrank report' takes no folder with both, so choose another --out or take them away"
    )


def in_words(step: Step) -> str:
    result = step.result
    fate = "failed: " if result.failed else ""
    fallen = f"; {count(len(step.fallen), 'cell')} cannot be run without it" if step.fallen else ""
    left = f"; about {duration(step.seconds_left)} left" if step.seconds_left else ""
    return f"{result.task}: {fate}{result.said}; {duration(result.seconds)}{fallen}{left}"
