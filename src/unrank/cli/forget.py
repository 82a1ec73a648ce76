"""The command `forget`."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unrank.cli import ahead
from unrank.cli.closing import closing, index_state
from unrank.cli.late import import_libraries
from unrank.cli.option import (
    NOT_REACHED,
    OUT,
    AsJson,
    CacheFolder,
    CollectionFolder,
    Fast,
    Quiet,
    RankerName,
    RemovalOptions,
    ReportTo,
    WholeIndexOption,
    exit_status,
    open_cache,
    with_copies,
    with_flags,
)
from unrank.cli.show import (
    between,
    notice,
    say,
    say_json,
    show_agreement,
    show_change,
    show_cleared,
    show_earlier,
    show_entries,
    show_partition,
    show_recovery,
    show_sampled,
    show_substitutes,
    show_worst_pair,
    tell_other_collection,
    tell_unrecognised,
)
from unrank.cli.whole_index import check_whole_index, over_index
from unrank.disk import check_free, check_outside, check_result, follows
from unrank.errors import UnrankError
from unrank.forgetting.options import ForgetOptions
from unrank.report.wording import ASK_FOR_INDEX, NOT_A_RANK, over_whole_index

if TYPE_CHECKING:
    from unrank.collection.collection import Collection
    from unrank.collection.removal import Removal
    from unrank.forgetting.estimate import Seconds
    from unrank.forgetting.forget import Forgotten
    from unrank.forgetting.provenance import Reference
    from unrank.forgetting.workspace import Workspace
    from unrank.rankers.base import Ranker
    from unrank.record import Record

DETAILS = "Also write every query's list before and after, to this folder; it still holds what was removed."
TOLD = "told"
"""The kind of the facts, in the owner's state folder, that say what an owner was told once."""
REFERENCE = "A ranker that was retrained without what is removed, to compare with."


@dataclass(frozen=True)
class JobOptions:
    """The files of a run, and what the command prints."""

    out: Annotated[Path | None, OUT] = None
    reference: Annotated[str | None, typer.Option("--reference", help=REFERENCE)] = None
    details: Annotated[Path | None, typer.Option("--details", help=DETAILS)] = None
    index: WholeIndexOption = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False
    cache: CacheFolder = None
    fast: Fast = True
    report_to: ReportTo = None
    quiet: Quiet = False
    as_json: AsJson = False


@with_flags
def forget(
    ranker: RankerName, collection: CollectionFolder, named: RemovalOptions, options: ForgetOptions, job: JobOptions
) -> None:
    """Make a ranker forget queries, documents or pairs, and leave the rest alone."""
    check_folders(job)
    for out, option in ((job.out, "--out"), (job.details, "--details")):
        if out is not None:
            check_outside(out, ranker, collection, option=option)
    ahead.begin(partial(ahead.hash_files, ranker))
    gpu = ahead.begin(ahead.open_gpu) if options.device != "cpu" and not options.deterministic else None
    cache, removal = open_cache(job.cache, job.out), named.read()

    from unrank.collection.collection import open_collection
    from unrank.collection.partition import make_partition

    if gpu is not None:
        ahead.begin(gpu.join, ahead.warm_up_gpu)

    opened = open_collection(collection)
    removal = with_copies(removal, opened, named.copies, named.source)
    partition = make_partition(opened, removal, named.source)
    import_libraries()

    from unrank.engine.kept import KeptState
    from unrank.engine.runtime import deterministic
    from unrank.forgetting.progress import show_progress
    from unrank.forgetting.target import check_target
    from unrank.forgetting.trackers import check_trackers
    from unrank.forgetting.validation import check_base, layers_of
    from unrank.forgetting.workspace import Workspace, usual_measure
    from unrank.rankers import load_ranker, record_of

    if not (job.quiet or job.as_json):
        tell_of_places(options.target)
    options.method_for(None)  # wrong names are refused before anything is loaded
    layers_of(options)
    check_trackers(job.report_to or ())
    check_target(options.target, opened, partition, job.reference is not None)
    loaded, record = load_ranker(ranker, job.fast), record_of(ranker)
    tell_unrecognised(record, job.quiet or job.as_json)
    tell_other_collection(record, opened)
    if options.measure is None:
        options = replace(options, measure=usual_measure(loaded, options.device))
    check_base(loaded.kind, options.base)
    reference = load_reference(job, opened, removal, record, options.base)
    if job.index is not None:
        check_whole_index(job.index, loaded, options)
    with deterministic(options.deterministic), show_progress(job.quiet or job.as_json) as listener:
        workspace = Workspace.for_removal(
            loaded,
            opened,
            removal,
            record,
            device=options.device,
            progress=listener,
            measure=options.measure,
            cache=cache or KeptState.open(opened),
        )
        result = _run(workspace, loaded, options, job, reference, record)
    if result is not None:
        report(result, workspace, job, options.keep_at_least)


def load_reference(
    job: JobOptions, collection: Collection, removal: Removal, record: Record | None, base: str | None
) -> Reference:
    """Load the ranker to compare with, if one is named; refuse one that saw what is removed."""
    from unrank.forgetting.provenance import Reference, unknown_provenance
    from unrank.rankers import load_ranker, record_of

    if job.reference is None:
        return Reference()
    unknown = unknown_provenance(job.reference, collection, removal, record, base)
    theirs = record_of(job.reference)
    return Reference(load_ranker(job.reference, job.fast), known=not unknown, record=theirs)


def _run(
    workspace: Workspace,
    ranker: Ranker,
    options: ForgetOptions,
    job: JobOptions,
    reference: Reference,
    record: Record | None,
) -> Forgotten | None:
    """Forget, and write the ranker and its details; or say what would be done, and return `None`."""
    from unrank.engine.resume import resumable
    from unrank.forgetting.estimate import estimate
    from unrank.forgetting.forget import forget_in
    from unrank.forgetting.proxies import foresee_proxies
    from unrank.forgetting.trackers import reporting
    from unrank.forgetting.unlearn import validate

    if job.dry_run:
        request = validate(workspace, ranker, options, reference, record)
        given = Path(options.proxies) if options.proxies else None
        proxies = foresee_proxies(
            workspace, ranker.kind, request.base, given=given, known_reference=request.reference.known
        )
        seconds = estimate(workspace, ranker, options, base=request.base.place, record=record, proxies=proxies)
        fixed = request.options.target == "places" and request.method.takes_goals
        show_plan(workspace, request.method.name, seconds, job.as_json, fixed)
        return None
    assert job.out is not None
    about = {"job": "forget", "ranker": ranker.kind, "collection": workspace.collection.name, "target": options.target}
    about |= {"seed": options.seed, **asdict(options.method_for(ranker.kind))}
    reported = reporting(workspace.runtime.progress, job.report_to or (), job.out, options.device, about)
    checkpoints = resumable(job.out, every=options.checkpoint_every, resume=options.resume)
    with checkpoints as run, reported as listener:
        workspace = replace(workspace, runtime=replace(workspace.runtime, progress=listener))
        result = forget_in(workspace, ranker, options, reference=reference, record=record, run=run)
        if job.index is not None:
            result = over_index(result, ranker, workspace, job.index)
        save(result, workspace, ranker, job.out, job.details)
    return result


def save(result: Forgotten, workspace: Workspace, ranker: Ranker, out: Path, details: Path | None) -> None:
    """Write the details of a run, and then its ranker. If that is stopped, the same command writes both again."""
    from unrank.forgetting.rankings import save_details

    if details is None:
        result.save(out)
        return
    save_details(workspace, ranker, result, details)
    try:
        result.save(out)
    except BaseException:
        if not follows():
            shutil.rmtree(details, ignore_errors=True)
        raise


def tell_of_places(target: float | str) -> None:
    """Say once to each owner that the default target has changed."""
    from unrank.owner import recall, remember

    if target == "places" and recall(TOLD, "places") is None and remember(TOLD, "places", "told"):
        notice("the default target is now each pair's own place (places, or unseen); what unseen was is now test-mrr")


def show_plan(workspace: Workspace, method: str, seconds: Seconds, as_json: bool, fixed: bool) -> None:
    """Print how many pairs are touched, and the time that it takes; `fixed` if the epochs are known."""
    partition = workspace.partition
    if as_json:
        sizes = {f"{name}_pairs": len(getattr(partition, name)) for name in ("forget", "entangled", "disjoint")}
        say_json({"state": None, "dry_run": True, "method": method, **sizes, "seconds": [*seconds]})
        return
    show_partition(partition)
    why = "" if fixed else ", depending on how many epochs it needs to reach the target"
    say(f"with {method} it takes {between(*seconds)} here{why}")
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
        if details.exists():
            raise UnrankError(f"--details {details} exists already: choose another folder, or remove it first")
        check_free(details)
    if out is not None and details is not None and details.resolve().is_relative_to(out.resolve()):
        raise UnrankError(f"--details {details} is inside --out, and holds what was removed: choose a folder outside")


def report(result: Forgotten, workspace: Workspace, job: JobOptions, least: float | None) -> None:
    """Print the result; exit code 3 if it is not forgotten or too much was lost, 4 if it cannot be verified."""
    lost = [name for name, share in result.kept.items() if least is not None and share < least]
    status = NOT_REACHED if lost or result.came_back else exit_status([result.state])
    if job.as_json:
        say_json({**_as_json(result, job), "lost": lost, "exit_status": status})
    else:
        _tell(result, workspace, job)
        for name in lost:
            kept = f"{name} kept {result.kept[name]:.3f} of its MRR"
            say(f"{kept}, less than --keep-at-least {least:g}; the model is in {job.out}")
    if status:
        raise typer.Exit(status)


def _tell(result: Forgotten, workspace: Workspace, job: JobOptions) -> None:
    """Print the state first, then the figures, the worst pair, and what was and was not achieved."""
    tell_what_remembers(job)
    say(f"{result.state}: {result.judgement.why}")
    show_change(result)
    show_substitutes(result.before.substitutes, result.after.substitutes, workspace.removal)
    found = result.record.whole_index
    say(f"{NOT_A_RANK}; {over_whole_index(found)}" if found else ASK_FOR_INDEX)
    show_sampled(result)
    show_agreement(result.record)
    show_recovery(result.record)
    show_cleared(result.record)
    show_entries(result.record)
    show_earlier(result.record)
    show_worst_pair(result, workspace.collection, workspace.partition.forget)
    say(closing(result, job.out))
    if result.record.epochs and result.ranker.separable:
        say(index_state(result.record))
    if result.came_back:
        say(
            f"what was forgotten before has come back: use cocol, which holds it, or retrain; the model is in {job.out}"
        )


def _as_json(result: Forgotten, job: JobOptions) -> dict[str, object]:
    record, judged = result.record, result.judgement
    return {
        "state": str(judged.state),
        "words": judged.words,
        "out": str(job.out),
        **{name: record[name] for name in ("method", "target", "target_name", "reached", "epochs", "seconds")},
        "pairs": judged.ranks.to_json(),
        "before": result.before.to_json(),
        "after": result.after.to_json(),
        "kept": result.kept,
        **{name: record.to_json().get(name) for name in ("places", "agreement", "substitutes", "whole_index")},
        "limited": result.limited or None,
        "came_back": result.came_back,
        "still_holds": [str(place) for place in (job.details, job.cache) if place is not None],
    }
