"""The run: forgets all open requests together, audits the new ranker, and judges each request by itself.

Each step writes a folder that appears complete or not at all, and is bound to its inputs. The ledger gets the result at
the end, in one transaction. A run that was interrupted goes on from the last checkpoint or the last folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from unrank.audit.audit import AUDIT, audit_ranker
from unrank.audit.context import Thoroughness
from unrank.collection.collection import open_collection
from unrank.desk.batch import count_copies, open_batch
from unrank.desk.closing import scrub
from unrank.desk.copies import Copy, find_copies, not_searched, without_names
from unrank.desk.gates import AuditResult, Gate, Limits, RequestPairs, findings, gates
from unrank.desk.history_index import Json
from unrank.desk.ledger import Ledger
from unrank.desk.paths import refuse_names
from unrank.desk.request import PENDING, RUNNABLE, State
from unrank.desk.run_context import RunContext
from unrank.desk.run_ledger import UnfinishedRun, begin_run, check_step, do_step, is_done, unfinished_run
from unrank.desk.run_options import RunOptions, file_hashes, folder_hash
from unrank.desk.service import ranker_at, replace_ranker, settle
from unrank.disk import check_outside, clear_unfinished, read_json, sha256, sole_user, whole_path
from unrank.engine.checkpoint import digest
from unrank.engine.resume import OtherRun, resumable
from unrank.engine.runtime import Progress, deterministic
from unrank.errors import BadFile, UnrankError
from unrank.forgetting.forget import forget_in
from unrank.forgetting.outcome import Findings, ForgetState, Judgement
from unrank.forgetting.progress import listening
from unrank.forgetting.validation import find_base
from unrank.forgetting.vocabulary import find_clearing
from unrank.forgetting.workspace import Workspace
from unrank.rankers import load_ranker
from unrank.record import RECORD, RETRAIN, Record

SECRET_PARTS = ("removed", "removed_before", "history")
"""The parts of a ranker's record that the ledger does not keep: hashes of what was removed, and the checks."""


@dataclass(frozen=True)
class RunResult:
    """The result of a run."""

    run: int
    out: Path | None
    """The folder of the new ranker; `None` if there was nothing to forget."""
    gates: list[Gate]
    """The conditions for all requests together."""
    requests: dict[int, Judgement]
    """The judgement of each request by itself."""
    result: Json
    """The result as the ledger stores it."""
    states: Mapping[int, State]
    """The state of each request after the run."""
    elsewhere: list[int]
    """Requests that do not fit this collection."""
    later: list[int]
    """Requests that came after the run had begun."""

    @property
    def usable(self) -> bool:
        """Whether the new ranker may be used: nothing came back, and no more was lost than allowed."""
        return not any(gate.bars_use for gate in self.gates)


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
        collection = open_collection(options.collection)
        record = Record.read(Path(options.ranker))
        batch = open_batch(ledger, key, collection, record, ranker_at(ledger, options.ranker))
        if not batch.requests:
            return None
        run, context = unfinished_run(ledger), None
        if run is not None and batch.holds(run.requests):
            context = RunContext.of(options, batch.only(run.requests), collection, record)
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
                return _finish_unchanged(ledger, run, context, found)
            _audit(ledger, run, context, listener)
        return _finish(ledger, run, context)


def only_run(ledger: Path) -> AbstractContextManager[None]:
    """Allow one run at a time on a ledger, by any path."""
    place = ledger.resolve()
    # No lock on the ledger itself: closing that file would release the locks of SQLite.
    return sole_user(
        place.with_name(f".{place.name}.run"), "another run is in progress on this ledger: wait until it has ended"
    )


def _forget(ledger: Ledger, run: UnfinishedRun, context: RunContext, progress: Progress) -> dict[int, Judgement] | None:
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
) -> dict[int, Judgement] | None:
    original, options = context.original, context.forget_options
    with (
        deterministic(options.deterministic),
        resumable(run.out, every=options.checkpoint_every, resume=resume) as checkpoints,
    ):
        workspace = Workspace.for_removal(
            *(original, context.collection, context.batch.removal, context.record),
            device=options.device,
            progress=progress,
            measure=options.measure,
        )
        before = workspace.scorecard(original)
        if found := _nothing_to_forget(context, workspace, *context.targets(workspace, before)):
            return found
        forgotten = forget_in(
            *(workspace, original, options),
            reference=next(iter(context.references), None),
            record=context.record,
            run=checkpoints,
            before=before,
        )
        do_step(ledger, run, "ranker", run.out, context.inputs, forgotten.save)
    return None


def _nothing_to_forget(
    context: RunContext, workspace: Workspace, target: float, default: float | None
) -> dict[int, Judgement] | None:
    """Return the finding that no request is ranked above unseen; `None` if one is, or if that cannot be measured."""
    if context.batch.again or default is None:
        return None
    score = workspace.scorer(context.original)
    pairs = RequestPairs.of(context.collection, context.batch.items, context.target)
    base = find_base(context.original, context.method, context.options.forget.base, context.record)
    clearing = find_clearing(context.original, workspace, base.place, context.forget_options.seed)
    if clearing.moved:
        return None
    rows_left = clearing.record.left
    found = pairs.judge(score, score, min(target, default), Findings(weights_changed=False, rows_left=rows_left))
    return found if all(one.state is ForgetState.NOTHING for one in found.values()) else None


def _audit(ledger: Ledger, run: UnfinishedRun, context: RunContext, progress: Progress) -> None:
    """Audit the new ranker, unless this very ranker was audited before."""
    inputs = _audit_inputs(run, context)
    if is_done(ledger, run, "audit", run.audit_out, inputs):
        return
    found = audit_ranker(
        load_ranker(run.out, context.options.fast),
        context.collection,
        context.batch.removal,
        original=context.original,
        references=context.references,
        record=Record.read(run.out),
        thoroughness=Thoroughness(queries=context.options.audit_queries),
        seed=context.options.forget.seed,
        device=context.options.forget.device,
        base=context.options.forget.base,
        progress=progress,
    )
    do_step(ledger, run, "audit", run.audit_out, inputs, found.save)


def _audit_inputs(run: UnfinishedRun, context: RunContext) -> Json:
    return {"audited ranker": folder_hash(run.out), **context.inputs}


def _finish_unchanged(
    ledger: Ledger, run: UnfinishedRun, context: RunContext, found: dict[int, Judgement]
) -> RunResult:
    """Record that no request has anything to forget: no weight was changed, and there is no new ranker."""
    result: Json = {
        "record": None,
        "kept": {},
        "audit": None,
        "gates": [],
        "files": {"old ranker": folder_hash(Path(context.options.ranker))},
        "ranker_files": file_hashes(Path(context.options.ranker)),
    }
    return _record(ledger, run, context, [], found, result)


def _finish(ledger: Ledger, run: UnfinishedRun, context: RunContext) -> RunResult:
    """Compare the digests of all steps, judge the new ranker and each request, and record the result."""
    options = context.options
    ranker_digest = check_step(ledger, run, "ranker", run.out, _inputs_now(context))
    check_step(ledger, run, "audit", run.audit_out, _audit_inputs(run, context))
    record, audit_file = Record.read(run.out), run.audit_out / AUDIT
    if record is None or record.target is None:
        raise BadFile(run.out / RECORD, "missing, or without a target, though this run wrote it")
    partition = context.batch.partition(context.collection)
    workspace = Workspace.open(context.original, context.collection, partition, options.forget.device)
    new = load_ranker(run.out, options.fast)
    audit = read_json(audit_file)
    if audit["rankers"]["ranker"]["weights"] != digest(new.state_dict()):
        raise UnrankError(f"{run.audit_out} is the audit of other weights than {run.out} has: remove it, and run again")
    default = _default_mrr(context, record, workspace)
    facts = findings(record, AuditResult.of(audit), default, context.doubts, context.has_known_references)
    judged = RequestPairs.of(context.collection, context.batch.items, record.target_name).judge(
        workspace.scorer(context.original),
        workspace.scorer(new.to(workspace.runtime.device)),
        record.target if default is None else min(record.target, default),
        facts,
        [workspace.scorer(each.to(workspace.runtime.device)) for each in context.references]
        if record.method == RETRAIN and context.has_known_references
        else [],
    )
    limits = Limits(options.keep_at_least, options.strict)
    shown = gates(record, AuditResult.of(audit), default, limits, context.doubts)
    result = {
        "record": {name: value for name, value in record.to_json().items() if name not in SECRET_PARTS},
        "kept": record.kept,
        "audit": audit,
        "gates": [asdict(gate) for gate in shown],
        "files": {
            "ranker": ranker_digest,
            "old ranker": folder_hash(Path(options.ranker)),
            AUDIT: sha256(audit_file),
        },
        "ranker_files": file_hashes(run.out),
    }
    return _record(ledger, run, context, shown, judged, result)


def _inputs_now(context: RunContext) -> Json:
    """Return digests of the files as they are now: somebody may have changed them since they were loaded."""
    now = open_collection(context.options.collection).fingerprint
    return {**context.inputs, "ranker": folder_hash(Path(context.options.ranker)), "collection": now}


def _default_mrr(context: RunContext, record: Record, workspace: Workspace) -> float | None:
    """Return the forget MRR of the default target; `None` if there is no test query to measure it on."""
    if context.target == context.default_target:
        return record.target
    if context.default_target == "destination-1":
        reference = context.references[0].to(workspace.runtime.device)
        return workspace.evaluator.forget_mrr(workspace.scorer(reference))
    return record.before["test"].mrr if "test" in record.before else None


def _copies(ledger: Ledger, run: UnfinishedRun, context: RunContext) -> list[Copy]:
    """Find copies beside the ranker and the collection, in the folders of earlier runs, and where the user looks."""
    old = [Path(place) for (place,) in ledger.ask("SELECT out FROM run WHERE id < ?", [run.id])]
    places = [Path(context.options.ranker), context.options.collection, *old, *context.options.look]
    items = context.batch.all_items
    found = find_copies([place for place in places if place.exists()], items, context.collection, ledger.path)
    return without_names(found, items)


def _record(
    ledger: Ledger,
    run: UnfinishedRun,
    context: RunContext,
    shown: list[Gate],
    judged: dict[int, Judgement],
    result: Json,
) -> RunResult:
    """Write the result and the new states of the requests in one transaction.

    If the ranker is not for use, all requests keep their states. A request that was ended during the run keeps its too.
    """
    batch = context.batch
    result |= {
        "requests": {str(id): one.to_json() for id, one in judged.items()},
        "copies": {str(id): copies for id in batch.items if (copies := count_copies(ledger, batch, id))},
        "holders": [asdict(copy) for copy in _copies(ledger, run, context)],
        "not_searched": [asdict(copy) for copy in without_names(not_searched(context.options.look), batch.all_items)],
    }
    written = json.dumps(result, ensure_ascii=False)
    proof = {"result": hashlib.sha256(written.encode()).hexdigest()}
    usable = not any(gate.bars_use for gate in shown)
    out = run.out if result["record"] is not None else None
    with ledger.transaction():
        state = "passed" if usable and any(one.passed for one in judged.values()) else "failed"
        ledger.ask("UPDATE run SET state = ?, result = ? WHERE id = ?", [state, written, run.id])
        failed = [gate.name for gate in shown if not gate.passed]
        ledger.write_of_run(state, run.id, **proof, requests=[*judged], gates=failed)
        for id, one in judged.items():
            if usable and ledger.request(id).state in RUNNABLE:
                settle(ledger, id, State(one.state), run.id, context.batch.member, **proof)
        if state == "passed" and out is not None and context.batch.member is not None:
            replace_ranker(ledger, context.batch.member, run.id, out)
        states = {id: ledger.request(id).state for id in judged}
    waiting = [[request.id for request in some] for some in (context.batch.elsewhere, context.batch.later)]
    return RunResult(run.id, out, shown, judged, result, states, *waiting)
