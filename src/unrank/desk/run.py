"""The run: forgets all open requests together, audits the new ranker, applies the gates, and records the result.

Each stage writes a folder that appears complete or not at all. The ledger is written at the end, in one transaction. A
run that was interrupted continues from the last folder. A fulfilled request is not open, so it is never done twice.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from unrank.audit.audit import AUDIT, audit_ranker
from unrank.audit.context import Thoroughness
from unrank.collection.collection import Collection, open_collection
from unrank.desk.batch import Batch, count_copies, open_batch
from unrank.desk.closing import scrub
from unrank.desk.copies import Copy, find_copies, without_names
from unrank.desk.gates import AuditResult, Gate, gates, request_results
from unrank.desk.history_index import Json
from unrank.desk.ledger import Ledger
from unrank.desk.request import RUNNABLE, State
from unrank.desk.run_options import RunOptions, file_hashes, folder_hash
from unrank.desk.service import ServiceRanker, ranker_at, replace_ranker, settle
from unrank.disk import check_free, half_written, read_json, sha256, sole_user, whole_path
from unrank.engine.runtime import Progress, Runtime
from unrank.errors import BadFile, UnrankError
from unrank.forgetting.forget import forget
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.outcome import Findings, Judgement
from unrank.forgetting.previous_requests import check_references, recognised, was_trained_on
from unrank.forgetting.validation import check_base, check_request, find_base
from unrank.forgetting.workspace import Workspace, usual_measure
from unrank.methods.base import Method
from unrank.rankers import load_ranker
from unrank.rankers.base import Ranker
from unrank.record import RECORD, RETRAIN, Record

SECRET_PARTS = ("removed", "removed_before", "history")
"""The parts of a ranker's record that the ledger does not keep: hashes of what was removed, and the checks."""


@dataclass(frozen=True)
class RunResult:
    """The result of a run."""

    run: int
    out: Path
    gates: list[Gate]
    """The conditions for all requests together."""
    requests: dict[int, Judgement]
    """The result of each request by itself."""
    result: Json
    """The result as the ledger stores it."""
    elsewhere: list[int]
    """Open requests that do not fit this collection."""

    @property
    def fulfilled(self) -> list[int]:
        """The requests that are fulfilled: all gates passed, and each passed by itself."""
        if not all(gate.passed for gate in self.gates):
            return []
        return [id for id, result in self.requests.items() if result.passed]

    @property
    def still_open(self) -> list[int]:
        return [id for id in self.requests if id not in self.fulfilled]

    @property
    def passed(self) -> bool:
        return not self.still_open


@dataclass(frozen=True)
class RunContext:
    """Everything that a run uses."""

    options: RunOptions
    target: str
    default_target: str
    """The target of a run without `--target`."""
    collection: Collection
    batch: Batch
    original: Ranker
    record: Record | None
    """The original's record."""
    references: list[Ranker]
    member: ServiceRanker | None = None
    """The ranker of the service that the run replaces; `None` if none is registered."""

    @property
    def forget_options(self) -> ForgetOptions:
        """How the original is made to forget."""
        given = self.options.forget
        return replace(given, target=self.target, measure=usual_measure(self.original, given.device))

    @property
    def method(self) -> Method:
        return self.forget_options.method_for(self.original.kind)


def run_open(
    ledger: Ledger, key_place: Path, options: RunOptions, out: Path | None = None, progress: Progress | None = None
) -> RunResult | None:
    """Run all open requests that fit a collection; return `None` if there are none."""
    key = ledger.key(key_place)
    options, out = options.absolute(), out and whole_path(out)
    with only_run(ledger.path):
        ledger.verify()
        scrub(ledger)
        collection = open_collection(options.collection)
        record = Record.read(Path(options.ranker))
        member = ranker_at(ledger, options.ranker)
        batch = open_batch(ledger, key, collection, record, member)
        if not batch.requests:
            return None
        check_references(options.references, collection, batch.removal)
        default = _default_target(options, batch, collection)
        target = options.target or default
        original = load_ranker(options.ranker, options.fast)
        references = [load_ranker(name, options.fast) for name in options.references]
        context = RunContext(
            replace(options, target=target), target, default, collection, batch, original, record, references, member
        )
        _check(context)
        for id, copies in batch.copies.items():
            ledger.add_copies(id, copies, key)
        run, place = _begin(ledger, context.options.asked(batch, collection), out)
        for folder in (place, audit_folder(place)):
            for left in half_written(folder):
                shutil.rmtree(left)
        _forget(context, place, progress)
        _audit(context, place, progress)
        return _finish(ledger, run, place, context)


def _check(context: RunContext) -> None:
    """Refuse a run that cannot work before anything is written to the ledger."""
    partition, options = context.batch.partition(context.collection), context.forget_options
    Runtime.on(options.device)
    workspace = Workspace.open(context.original, context.collection, partition, options.device)
    compared: list[Ranker | None] = [*context.references]
    for reference in compared or [None]:
        check_request(workspace, context.original, context.method, options, reference)
    check_base(context.original.kind, options.base)
    find_base(context.original, context.method, options.base, context.record)


def _default_target(options: RunOptions, batch: Batch, collection: Collection) -> str:
    record = Record.read(Path(options.references[0])) if options.references else None
    return "destination-1" if was_trained_on(collection, record, batch.removal) is False else "unseen"


def only_run(ledger: Path) -> AbstractContextManager[None]:
    """Allow one run at a time on a ledger, by any path."""
    place = ledger.resolve()
    # No lock on the ledger itself: closing that file would release the locks of SQLite.
    return sole_user(
        place.with_name(f".{place.name}.run"), "another run is in progress on this ledger: wait until it has ended"
    )


def audit_folder(out: Path) -> Path:
    return out.with_name(f"{out.name}-audit")


def _begin(ledger: Ledger, asked: Json, out: Path | None) -> tuple[int, Path]:
    """Return the interrupted run if its options are the same; otherwise begin a new one."""
    with ledger.transaction():
        written = json.dumps(asked, sort_keys=True)
        for id, place, before in ledger.ask("SELECT id, out, asked FROM run WHERE state = 'begun'"):
            if before == written and out in (None, Path(place)):
                return id, Path(place)
            ledger.ask("UPDATE run SET state = 'abandoned' WHERE id = ?", [id])
            ledger.write_of_run("abandoned", id)
        [[id]] = ledger.ask("SELECT coalesce(max(id), 0) + 1 FROM run")
        place = out or _beside(asked["ranker"], id)
        for folder in (place, audit_folder(place)):
            check_free(folder)
        ledger.ask("INSERT INTO run (id, state, out, asked) VALUES (?, 'begun', ?, ?)", [id, str(place), written])
        ledger.write_of_run("begun", id, requests=asked["requests"])
        return id, place


def _beside(ranker: str, run: int) -> Path:
    old = Path(ranker)
    folder = old.parent if old.is_dir() else Path()
    return whole_path(folder / f"{re.sub(r'-run[0-9]+$', '', old.name)}-run{run}")


def _forget(context: RunContext, out: Path, progress: Progress | None) -> None:
    if out.exists():
        record = Record.read(out)
        if (
            record is None
            or not record.removed
            or recognised(context.collection, [record.removed]) != context.batch.removal
        ):
            raise UnrankError(f"{out} exists and was not written by this run: remove it, or name another --out")
        return
    result = forget(
        context.original,
        context.collection,
        context.batch.removal,
        context.forget_options,
        reference=next(iter(context.references), None),
        record=context.record,
        progress=progress,
    )
    result.save(out)


def _audit(context: RunContext, out: Path, progress: Progress | None) -> None:
    if audit_folder(out).exists():
        return
    found = audit_ranker(
        load_ranker(out, context.options.fast),
        context.collection,
        context.batch.removal,
        original=context.original,
        references=context.references,
        record=Record.read(out),
        thoroughness=Thoroughness(queries=context.options.audit_queries),
        seed=context.options.forget.seed,
        device=context.options.forget.device,
        progress=progress,
    )
    found.save(audit_folder(out))


def _default_mrr(context: RunContext, record: Record, workspace: Workspace) -> float | None:
    """Return the forget MRR of the default target; `None` if there is no test query to measure it on."""
    if context.target == context.default_target:
        return record.target
    if context.default_target == "destination-1":
        reference = context.references[0].to(workspace.runtime.device)
        return workspace.evaluator.forget_mrr(workspace.scorer(reference))
    return record.before["test"].mrr if "test" in record.before else None


def _finish(ledger: Ledger, run: int, out: Path, context: RunContext) -> RunResult:
    """Judge the new ranker, and record the result in the ledger."""
    options, batch = context.options, context.batch
    record, audit_file = Record.read(out), audit_folder(out) / AUDIT
    if record is None or record.target is None:
        raise BadFile(out / RECORD, "missing, or without a target, though this run wrote it")
    audit = read_json(audit_file)
    partition = batch.partition(context.collection)
    workspace = Workspace.open(context.original, context.collection, partition, options.forget.device)
    new = load_ranker(out, options.fast).to(workspace.runtime.device)
    scorers = (workspace.scorer(context.original), workspace.scorer(new))
    default = _default_mrr(context, record, workspace)
    findings = Findings(
        weights_changed=bool(record.epochs),
        retrained=record.method == RETRAIN,
        has_reference=bool(context.references),
    )
    each = request_results(context.collection, batch.items, *scorers, record.target, findings)
    passed = gates(record, AuditResult.of(audit), default, options.keep_at_least, options.strict)
    result = {
        "record": {name: value for name, value in record.to_json().items() if name not in SECRET_PARTS},
        "kept": record.kept,
        "audit": audit,
        "gates": [asdict(gate) for gate in passed],
        "requests": {str(id): one.to_json() for id, one in each.items()},
        "copies": {str(id): copies for id in batch.items if (copies := count_copies(ledger, batch, id))},
        "holders": [asdict(copy) for copy in _copies(ledger, run, context)],
        "files": {
            "ranker": folder_hash(out),
            "old ranker": folder_hash(Path(options.ranker)),
            AUDIT: sha256(audit_file),
        },
        "ranker_files": file_hashes(out),
    }
    done = RunResult(run, out, passed, each, result, [request.id for request in batch.elsewhere])
    _record(ledger, done, context.member)
    return done


def _copies(ledger: Ledger, run: int, context: RunContext) -> list[Copy]:
    """Find copies beside the ranker and the collection, in the folders of earlier runs, and where the user looks."""
    old = [Path(place) for (place,) in ledger.ask("SELECT out FROM run WHERE id < ?", [run])]
    places = [Path(context.options.ranker), context.options.collection, *old, *context.options.look]
    items = context.batch.all_items
    found = find_copies([place for place in places if place.exists()], items, context.collection, ledger.path)
    return without_names(found, items)


def _record(ledger: Ledger, done: RunResult, member: ServiceRanker | None) -> None:
    """Write the result and the new states of the requests in one transaction."""
    written = json.dumps(done.result, ensure_ascii=False)
    proof = {"result": hashlib.sha256(written.encode()).hexdigest()}
    with ledger.transaction():
        state = "passed" if done.fulfilled else "failed"
        ledger.ask("UPDATE run SET state = ?, result = ? WHERE id = ?", [state, written, done.run])
        failed = [gate.name for gate in done.gates if not gate.passed]
        ledger.write_of_run(state, done.run, **proof, requests=list(done.requests), gates=failed, open=done.still_open)
        for id in done.fulfilled:
            if ledger.request(id).state not in RUNNABLE:
                raise UnrankError(f"request {id} was ended during the run: run again for the others")
            settle(ledger, id, State.FORGOTTEN, done.run, member, **proof)
        if member is not None and done.fulfilled:
            replace_ranker(ledger, member, done.run, done.out)
