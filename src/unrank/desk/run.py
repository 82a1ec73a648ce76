"""The run: forgets all open requests together, audits the new ranker, and judges each request by itself.

Each step writes a folder that appears complete or not at all, and is bound to its inputs. The ledger gets the result at
the end, in one transaction. A run that was interrupted goes on from the last checkpoint or the last folder.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from unrank.audit.audit import audit_ranker, open_audit
from unrank.audit.comparison import PerRanker
from unrank.audit.equivalence import say_margins
from unrank.collection.collection import open_collection
from unrank.desk.batch import open_batch
from unrank.desk.closing import scrub
from unrank.desk.gates import RequestPairs
from unrank.desk.ledger import Ledger
from unrank.desk.paths import refuse_names
from unrank.desk.request import PENDING
from unrank.desk.run_context import RunContext
from unrank.desk.run_ledger import (
    UnfinishedRun,
    begin_run,
    clear_ended,
    do_step,
    is_done,
    only_run,
    said_margins,
    unfinished_run,
    write_margins,
)
from unrank.desk.run_options import RunOptions
from unrank.desk.run_places import keep_places
from unrank.desk.run_result import RunResult, finish_run, finish_unchanged
from unrank.desk.service import ranker_at
from unrank.disk import check_outside, clear_unfinished, whole_path
from unrank.engine.kept import KeptState
from unrank.engine.resume import OtherRun, resumable
from unrank.engine.runtime import Progress, deterministic
from unrank.evaluation.scorecard import Scorecard
from unrank.forgetting.forget import Forgotten, forget_in
from unrank.forgetting.goals import check_beyond
from unrank.forgetting.outcome import Findings, ForgetState, Judgement
from unrank.forgetting.progress import listening
from unrank.forgetting.target import PLACES
from unrank.forgetting.validation import find_base
from unrank.forgetting.vocabulary import find_clearing
from unrank.forgetting.workspace import Workspace
from unrank.rankers import load_ranker, record_of
from unrank.record import PlacesFound, Record


class Unchanged(NamedTuple):
    """The finding that there is nothing to forget, and how places were found, if the target was places."""

    judged: dict[int, Judgement]
    places: PlacesFound | None = None


def run_open(
    ledger: Ledger, key_place: Path, options: RunOptions, out: Path | None = None, progress: Progress | None = None
) -> RunResult | None:
    """Run all requests that a run takes and that fit a collection; return `None` if there are none.

    An unfinished run goes on with the requests that it began with; later ones wait for the next run.
    """
    key = ledger.key(key_place)
    options, out = options.absolute(), out and whole_path(out)
    with only_run(ledger.path):
        ledger.verify()
        scrub(ledger)
        clear_ended(ledger)
        collection = open_collection(options.collection)
        record = record_of(options.ranker)
        batch = open_batch(ledger, key, collection, record, ranker_at(ledger, options.ranker))
        if not batch.requests:
            return None
        run, context = unfinished_run(ledger), None
        if run is not None and batch.holds(run.requests):
            same = replace(options, target=options.target or run.former_default)
            context = RunContext.of(same, batch.only(run.requests), collection, record)
        if context is None or run is None or not run.is_asked_again(context.asked, out):
            run, context = None, RunContext.of(options, batch, collection, record)
        pending = [item for request in ledger.requests(PENDING) for item in ledger.items(request.id)]
        if out is not None:
            check_outside(out, *options.paths)
        refuse_names([*options.paths, *([out] if out else [])], pending)
        context.check()
        for id, copies in context.batch.copies.items():
            ledger.add_copies(id, copies, key)
        run = run or begin_run(ledger, context.asked, out)
        with listening(progress) as listener:
            found = _forget(ledger, run, context, listener)
            if found is not None:
                return finish_unchanged(ledger, run, context, *found)
            _audit(ledger, run, context, listener)
        return finish_run(ledger, run, context)


def _forget(ledger: Ledger, run: UnfinishedRun, context: RunContext, progress: Progress) -> Unchanged | None:
    """Write the new ranker. If no request has anything to forget, write nothing and return that finding."""
    if is_done(ledger, run, "ranker", run.out, context.inputs):
        clear_unfinished(run.out)
        return None
    try:
        return _forget_from(ledger, run, context, progress, resume=True)
    except OtherRun:
        progress.say("the checkpoint is of another version or of other files: beginning again")
        return _forget_from(ledger, run, context, progress, resume=False)


def _forget_from(
    ledger: Ledger, run: UnfinishedRun, context: RunContext, progress: Progress, resume: bool
) -> Unchanged | None:
    original, options = context.original, context.forget_options
    with (
        deterministic(options.deterministic),
        resumable(run.out, every=options.checkpoint_every, resume=resume) as checkpoints,
    ):
        workspace = Workspace.for_removal(
            original,
            context.collection,
            context.batch.removal,
            context.record,
            device=options.device,
            progress=progress,
            measure=options.measure,
            cache=KeptState.open(context.collection),
        )
        before = workspace.scorecard(original)
        if found := _never_seen(context, workspace):
            return Unchanged(found)
        check_beyond(context.target, before)
        if context.target != PLACES and (found := _below_mean(context, workspace, before)):
            return Unchanged(found)
        _say_margins(ledger, run, context, progress)
        forgotten = forget_in(
            workspace,
            original,
            options,
            reference=context.reference,
            record=context.record,
            run=checkpoints,
            before=before,
            apart=context.batch.pairs_apart(context.collection),
        )
        if found := _at_places(context, workspace, forgotten):
            return Unchanged(found, forgotten.record.places)
        kept = keep_places(run.out, forgotten.places)
        do_step(ledger, run, "ranker", run.out, context.inputs, forgotten.save, **kept)
    return None


def _never_seen(context: RunContext, workspace: Workspace) -> dict[int, Judgement] | None:
    """Return the finding that the ranker was trained without any request; `None` if it was not, or if nobody knows."""
    pairs = RequestPairs.of(context.collection, context.batch.items)
    all_of_them = len(context.never_seen) == len(context.batch.items)
    return _all_nothing(context, workspace, pairs, Findings(weights_changed=False), 1.0) if all_of_them else None


def _below_mean(context: RunContext, workspace: Workspace, before: Scorecard) -> dict[int, Judgement] | None:
    """Return the finding that no request is ranked above unseen; `None` if one is, or if that cannot be measured."""
    target, default = context.targets(workspace, before)
    if default is None:
        return None
    base = find_base(context.original, context.method, context.options.forget.base, context.record)
    seed, recorded = context.forget_options.seed, base.is_named_by(context.record)
    clearing = find_clearing(context.original, workspace, base.place, seed, recorded)
    found = Findings(weights_changed=bool(clearing.moved), rows_left=clearing.record.left)
    pairs = RequestPairs.of(context.collection, context.batch.items, context.target)
    return _all_nothing(context, workspace, pairs, found, min(target, default))


def _at_places(context: RunContext, workspace: Workspace, forgotten: Forgotten) -> dict[int, Judgement] | None:
    """Return the finding that no request is ranked above its places; `None` if one is, or if a weight was changed."""
    record, places = forgotten.record, forgotten.places
    if places is None:
        return None
    found = Findings(
        weights_changed=record.changed,
        rows_left=record.rows_left,
        has_reference=bool(places.found.proxies),
        unseen_mrr=forgotten.before.mrrs.get("test"),
        unseen_above=places.found.above,
    )
    pairs = RequestPairs.of(context.collection, context.batch.items, places=places)
    return _all_nothing(context, workspace, pairs, found, forgotten.target)


def _all_nothing(
    context: RunContext, workspace: Workspace, pairs: RequestPairs, found: Findings, target: float
) -> dict[int, Judgement] | None:
    """Judge all requests by the original alone; return `None` unless there is nothing to forget in any of them."""
    if context.batch.again or found.weights_changed:
        return None
    score = workspace.scorer(context.original)
    judged = pairs.judge(score, score, target, found, (), context.never_seen)
    return judged if all(one.state is ForgetState.NOTHING for one in judged.values()) else None


def _say_margins(ledger: Ledger, run: UnfinishedRun, context: RunContext, progress: Progress) -> None:
    """Write to the history how far the audit lets the new ranker differ, before there is one."""
    if said_margins(ledger, run) is not None or not (context.references or context.audit_options.proxies):
        return
    rankers = PerRanker(context.original, context.original, tuple(context.references))
    removal, options = context.batch.removal, context.audit_options
    said = say_margins(open_audit(rankers, context.collection, removal, context.record, options, progress))
    if said is not None:
        write_margins(ledger, run, said)
        progress.say(f"the audit: {said}")


def _audit(ledger: Ledger, run: UnfinishedRun, context: RunContext, progress: Progress) -> None:
    """Audit the new ranker, unless this very ranker was audited before."""
    inputs = context.audit_inputs(run.out)
    if is_done(ledger, run, "audit", run.audit_out, inputs):
        return
    found = audit_ranker(
        load_ranker(run.out, context.options.fast),
        context.collection,
        context.batch.removal,
        original=context.original,
        references=context.references,
        record=Record.read(run.out),
        options=replace(context.audit_options, said=said_margins(ledger, run)),
        progress=progress,
    )
    do_step(ledger, run, "audit", run.audit_out, inputs, found.save)
