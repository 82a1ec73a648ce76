"""The command `tune`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unrank.cli.bench import JOBS, show_update, what_is_left
from unrank.cli.option import NOT_REACHED, CollectionFolder, Quiet, RunFlags, Seed, with_flags
from unrank.cli.ranker import BASE
from unrank.cli.show import say
from unrank.errors import count
from unrank.record import MARGIN

if TYPE_CHECKING:
    from unrank.bench.search_space import Searched
    from unrank.bench.tune import Trial, Tuning

OUT = "The file of frozen settings; other methods in it stay. The trials are kept in a folder beside it."
TRIALS = (
    "The number of trials, the same for every method in the file; fewer for one with fewer different settings to try. "
    "The first has the method's own settings."
)
TARGET = "Where the method stops; by default places if it takes goals, else destination-1."
MARGIN_HELP = "The share of the original's MRR on entangled, disjoint and test that settings may lose by a removal."
TRAINING = "Settings of training, as a grid writes them, such as epochs=4,negatives=2."
REMOVE = "Remove queries, documents, or both, one after the other. Repeatable."


@dataclass(frozen=True)
class TuneFlags:
    """The options that say what is tuned, and how."""

    ranker: Annotated[str, typer.Option(help="The kind of ranker; see 'unrank list rankers'.")] = "bi-encoder"
    base: Annotated[str | None, typer.Option("--base", help=BASE)] = None
    trials: Annotated[int, typer.Option(help=TRIALS, min=1)] = 20
    target: Annotated[str | None, typer.Option(help=TARGET)] = None
    remove: Annotated[list[str] | None, typer.Option(help=REMOVE)] = None
    share: Annotated[float, typer.Option(help="The share of the training pairs to remove.")] = 0.25
    removal_seed: Annotated[int, typer.Option(help="The seed of what is removed.", min=0)] = 0
    training: Annotated[str, typer.Option(help=TRAINING)] = ""
    epochs: Annotated[int | None, typer.Option(help="The most epochs of a trial.", min=1)] = None
    margin: Annotated[float, typer.Option(help=MARGIN_HELP)] = MARGIN
    seed: Seed = 0


TUNE, RUN = TuneFlags(), RunFlags()


@with_flags
def tune(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="The method; see 'unrank list methods'.")],
    collection: CollectionFolder,
    out: Annotated[Path, typer.Option("--out", help=OUT)],
    search: TuneFlags = TUNE,
    jobs: Annotated[int, typer.Option(help=JOBS, min=1)] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is searched and what is left to do.")] = False,
    flags: RunFlags = RUN,
    quiet: Quiet = False,
) -> None:
    """Search the settings of a method on development data, with a fixed number of trials, and freeze the best."""
    from unrank.bench.store import Store
    from unrank.bench.tune import TuneOptions, Tuning, check_alike, freeze

    given = {each.name: getattr(search, each.name) for each in fields(search) if each.name != "remove"}
    removals = tuple(dict.fromkeys(search.remove or ("documents", "queries")))
    tuning = Tuning.of(TuneOptions(method, str(collection), removals=removals, **given))
    check_alike(out, tuning.terms)
    folder = out.with_name(f"{out.stem}-trials")
    if dry_run or not quiet:
        _say_search(tuning)
    done = run_trials(tuning, folder, jobs, flags, quiet, dry_run)
    if dry_run:
        return
    if not done:
        say(f"some trials are not done; the same command tries again. The trials are in {folder}")
        raise typer.Exit(NOT_REACHED)
    found = tuning.outcomes(Store(folder))
    freeze(tuning, found, out)
    if not quiet:
        _say_best(tuning, found, out)


def run_trials(tuning: Tuning, folder: Path, jobs: int, flags: RunFlags, quiet: bool, dry_run: bool) -> bool:
    """Run the retrained rankers, then the trials; return whether all are done. Say the time that is left."""
    from unrank.bench.run import GridStatus, run_grid, shared
    from unrank.bench.runner import JobRunner
    from unrank.bench.worker_pool import open_pool
    from unrank.forgetting.progress import show_progress

    status = GridStatus.of(tuning.cells, folder)
    if dry_run:
        say(what_is_left(status, jobs))
        return False
    how = (flags.deterministic, flags.checkpoint_every, flags.resume, flags.fast)
    runner = JobRunner(status.store, flags.device, False, jobs, *how)
    lost = 0
    with (
        shared(status.store, jobs) as claims,
        open_pool(runner, jobs) as pool,
        show_progress(quiet) as listener,
    ):
        for cells in (tuning.retrained, tuning.cells):
            status = GridStatus.of(cells, folder)
            total = len(status.queue().left)
            listener.say(what_is_left(status, jobs))
            listener.begin("tune", total)
            if total and not lost:
                lost = run_grid(status, claims, pool, partial(show_update, total=total, progress=listener))
    return not lost


def _say_search(tuning: Tuning) -> None:
    cell, trials, asked = tuning.cells[-1], count(len(tuning.settings), "trial"), tuning.options.trials
    if len(tuning.settings) < asked:
        trials += f" (not {asked}: no other settings were drawn)"
    ranges = ", ".join(f"{name} {_range(values)}" for name, values in tuning.space.items())
    say(f"{cell.method.name} to {tuning.target} on {cell.original.collection}, {trials}: {ranges}")


def _range(values: Searched) -> str:
    first, last = values[0], values[-1]
    return " or ".join(map(str, values)) if isinstance(first, str) else f"{first:.12g} to {last:.12g}"


def _say_best(tuning: Tuning, trials: Sequence[Trial], out: Path) -> None:
    best, name = tuning.best(trials), tuning.cells[-1].method.name
    kept = ", ".join(f"{of} {share:.3f}" for of, share in best.kept.items())
    chosen = ", ".join(f"{key}={value}" for key, value in best.settings.items()) or "the method's own settings"
    say(f"best: {chosen}; {best.distance:.3f} from retrain; kept at least: {kept}")
    say(f"the method's own settings: {trials[0].distance:.3f} from retrain")
    if best.beyond(margin := tuning.options.margin):
        say(f"no trial kept {1 - margin:.12g} of every set after every removal: this one loses least beyond the margin")
    say(f'frozen in {out}; a grid reads it with settings_from = "{out}" and the method "{name}:tuned"')
