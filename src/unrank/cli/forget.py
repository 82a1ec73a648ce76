"""The command `forget`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unrank.cli.option import (
    NOT_REACHED,
    OUT,
    CacheFolder,
    CollectionFolder,
    Fast,
    KeepAtLeast,
    Quiet,
    RankerName,
    RemovalOptions,
    open_cache,
    with_flags,
)
from unrank.cli.show import (
    between,
    duration,
    epochs_of,
    say,
    show_change,
    show_earlier,
    show_partition,
    show_recovery,
    show_sampled,
    show_worst_query,
)
from unrank.disk import check_free, check_result
from unrank.errors import UnrankError, count
from unrank.forgetting.options import ForgetOptions

if TYPE_CHECKING:
    from unrank.forgetting.forget import Forgotten
    from unrank.forgetting.workspace import Workspace
    from unrank.rankers.base import Ranker
    from unrank.record import Record

DETAILS = "Also write every query's list before and after, to this folder; it still holds what was removed."
REFERENCE = "A ranker that was retrained without what is removed, to compare with."


@dataclass(frozen=True)
class JobOptions:
    """The files of a run, and what the command prints."""

    out: Annotated[Path | None, OUT] = None
    reference: Annotated[str | None, typer.Option("--reference", help=REFERENCE)] = None
    keep_at_least: KeepAtLeast = None
    details: Annotated[Path | None, typer.Option("--details", help=DETAILS)] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False
    cache: CacheFolder = None
    fast: Fast = True
    quiet: Quiet = False


@with_flags
def forget(
    ranker: RankerName, collection: CollectionFolder, named: RemovalOptions, options: ForgetOptions, job: JobOptions
) -> None:
    """Make a ranker forget queries, documents or pairs, and leave the rest alone."""
    check_folders(job)
    cache, removal = open_cache(job.cache, job.out), named.read()

    from unrank.collection.collection import open_collection
    from unrank.collection.partition import make_partition

    opened = open_collection(collection)
    partition = make_partition(opened, removal, named.source)

    from unrank.engine.runtime import deterministic
    from unrank.forgetting.previous_requests import check_references
    from unrank.forgetting.progress import show_progress
    from unrank.forgetting.target import check_target
    from unrank.forgetting.validation import check_base, layers_of
    from unrank.forgetting.workspace import Workspace, usual_measure
    from unrank.rankers import load_ranker
    from unrank.record import Record

    options.method_for(None), layers_of(options)  # wrong names are refused before anything is loaded
    check_target(options.target, opened, partition, job.reference is not None)
    loaded, record = load_ranker(ranker, job.fast), Record.read(Path(ranker))
    if options.measure is None:
        options = replace(options, measure=usual_measure(loaded, options.device))
    check_references([job.reference] if job.reference else [], opened, removal)
    check_base(loaded.kind, options.base)
    compared = load_ranker(job.reference, job.fast) if job.reference else None
    with deterministic(options.deterministic), show_progress(job.quiet) as listener:
        workspace = Workspace.for_removal(
            *(loaded, opened, removal, record),
            device=options.device,
            progress=listener,
            measure=options.measure,
            cache=cache,
        )
        result = _run(workspace, loaded, options, job, compared, record)
    if result is None:
        return
    tell_what_remembers(job)
    report(result, workspace, job)


def _run(
    workspace: Workspace,
    ranker: Ranker,
    options: ForgetOptions,
    job: JobOptions,
    reference: Ranker | None,
    record: Record | None,
) -> Forgotten | None:
    """Forget, and write the ranker and its details; or say what would be done, and return `None`."""
    from unrank.engine.resume import resumable
    from unrank.forgetting.estimate import estimate
    from unrank.forgetting.forget import forget_in, validate
    from unrank.forgetting.rankings import save_details

    if job.dry_run:
        request = validate(workspace, ranker, options, reference, record)
        show_partition(workspace.partition)
        show_plan(request.method.name, between(*estimate(workspace, ranker, options, base=request.base, record=record)))
        return None
    assert job.out is not None
    with resumable(job.out, every=options.checkpoint_every, resume=options.resume) as run:
        result = forget_in(workspace, ranker, options, reference=reference, record=record, run=run)
        result.save(job.out)
    if job.details is not None:
        save_details(workspace, ranker, result, job.details)
    return result


def show_plan(method: str, time: str) -> None:
    say(f"with {method} it takes {time} here, depending on how many epochs it needs to reach the target")
    say("nothing was done")


def tell_what_remembers(job: JobOptions) -> None:
    """Name what was written beside the ranker and still holds what it forgot."""
    if job.details is not None:
        say(f"{job.details} still holds what was removed: delete it when you have read it")
    if job.cache is not None:
        say(f"{job.cache} still holds the old ranker's scores of what was removed: delete it when you are done")


def check_folders(job: JobOptions) -> None:
    """Refuse folders that cannot be written, or that would hold what must be kept apart."""
    out, details = job.out, job.details
    if out is None and not job.dry_run:
        raise UnrankError("--out is missing: name the folder to write, or ask for a --dry-run")
    if out is not None:
        check_result(out)
    if details is not None:
        check_free(details)
    if out is not None and details is not None and details.resolve().is_relative_to(out.resolve()):
        raise UnrankError(f"--details {details} is inside --out, and holds what was removed: choose a folder outside")


def report(result: Forgotten, workspace: Workspace, job: JobOptions) -> None:
    """Print the result; exit with status 3 if less was reached, or more was lost, than was asked for."""
    out, least = job.out, job.keep_at_least
    show_change(result)
    show_sampled(result)
    show_recovery(result.record)
    show_earlier(result.record)
    if result.record.epochs:
        show_worst_query(result, workspace.collection)
    say(_outcome(result, out))
    if result.record.epochs and result.ranker.separable:
        say(_index_state(result))
    lost = {name: share for name, share in result.kept.items() if least is not None and share < least}
    for name, share in lost.items():
        say(f"{name} kept {share:.3f} of its MRR, less than --keep-at-least {least:g}; the model is in {out}")
    if result.came_back:
        say(f"what was forgotten before has come back: use cocol, which holds it, or retrain; the model is in {out}")
    if lost or result.came_back or not result.reached:
        raise typer.Exit(NOT_REACHED)


def _index_state(result: Forgotten) -> str:
    if not result.record.index_valid:
        return "document vectors that were stored with the old ranker are stale: encode the collection again"
    return (
        "document vectors that were stored with the old ranker stay valid: only the query side has moved; "
        "use encode_query() for queries and encode_document() for documents, never plain encode()"
    )


def _outcome(result: Forgotten, out: Path | None) -> str:
    record, goal = result.record, f"the target of {result.target:.3f}"
    epochs, took = epochs_of(record.epochs), duration(record.seconds)
    assert result.after.forget is not None
    mrr, queries = result.after.forget.mean, len(result.after.forget.queries)
    if result.fulfilled:
        return f"nothing to do: this ranker has forgotten all of it before; saved unchanged to {out}"
    if record.reached is None:
        return f"{record.method} has no target; {epochs}, {took}; written to {out}"
    if result.reached and not record.epochs:
        return f"nothing to do: the forget MRR is at or below {goal} already; saved unchanged to {out}"
    if not result.reached:
        return f"{goal} was not reached in {epochs}, {took}; the best model was written to {out}"
    if mrr > result.target:
        allowed = f"for {count(queries, 'forget query')} the tolerance is {result.tolerance:.3f}"
        goal = f"{mrr:.3f}, which counts as {goal} ({allowed}),"
    return f"the forget MRR was brought to {goal} in {epochs}, {took}; written to {out}"
