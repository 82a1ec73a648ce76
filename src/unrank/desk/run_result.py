"""The result of a run: the digests of its steps compared, each request judged by itself, and the ledger written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from unrank.audit.audit import AUDIT
from unrank.collection.collection import open_collection
from unrank.desk.batch import count_copies
from unrank.desk.copies import (
    Copy,
    adapters_beside,
    find_copies,
    not_searched,
    of_other_collections,
    without_names,
)
from unrank.desk.erasing import Names
from unrank.desk.gates import AuditResult, Gate, Limits, RequestPairs, findings, gates
from unrank.desk.history_index import Json
from unrank.desk.ledger import Ledger
from unrank.desk.remains import held_nothing, past_runs, settling_runs
from unrank.desk.request import PENDING, RUNNABLE, State
from unrank.desk.run_context import RunContext
from unrank.desk.run_ledger import UnfinishedRun, check_step, clear_places
from unrank.desk.run_places import kept_places
from unrank.desk.service import replace_ranker, settle
from unrank.desk.substitutes import RequestSubstitutes, as_json, substitutes_of_each
from unrank.disk import beside, exists, file_hashes, folder_hash, hash_of_files, read_json, sha256
from unrank.engine.checkpoint import digest
from unrank.errors import BadFile, UnrankError
from unrank.forgetting.outcome import Judgement
from unrank.forgetting.proxies import remembered_proxies
from unrank.forgetting.workspace import Workspace
from unrank.parse import parse
from unrank.rankers import load_ranker
from unrank.rankers.adapter_folder import has_adapter
from unrank.record import RECORD, RETRAIN, PlacesFound, Record

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
    def places(self) -> PlacesFound | None:
        """How places were found; `None` if the target was another one."""
        found = (self.result["record"] or self.result).get("places")
        return parse(PlacesFound, found, "places") if found else None

    @property
    def substitutes(self) -> dict[int, RequestSubstitutes]:
        """The substitutes of each request that names some."""
        return {
            int(id): parse(RequestSubstitutes, each, "substitutes") for id, each in self.result["substitutes"].items()
        }

    @property
    def usable(self) -> bool:
        """Whether the new ranker may be used: nothing came back, and no more was lost than allowed."""
        return not any(gate.bars_use for gate in self.gates)


def finish_unchanged(
    ledger: Ledger,
    run: UnfinishedRun,
    context: RunContext,
    found: dict[int, Judgement],
    places: PlacesFound | None = None,
) -> RunResult:
    """Record that no request has anything to forget: no weight was changed, and there is no new ranker.

    `places` say how places were found, if the target was places.
    """
    now = (folder_hash(Path(context.options.ranker)), open_collection(context.options.collection).fingerprint)
    if now != (run.asked["ranker_files"], run.asked["collection_fingerprint"]):
        raise UnrankError(f"{context.options.ranker} or its collection was changed during this run: run again")
    partition = context.batch.partition(context.collection)
    workspace = Workspace.open(context.original, context.collection, partition, context.options.forget.device)
    score = workspace.scorer(context.original)
    names = Names(item for request in ledger.requests(PENDING) for item in ledger.items(request.id))
    result: Json = {
        "record": None,
        "substitutes": as_json(substitutes_of_each(context.batch, context.collection, score, score)),
        "places": {**asdict(places), "by": list(places.by)} if places else None,
        "unknown_references": len(context.doubts),
        "kept": {},
        "audit": None,
        "gates": [],
        "files": {"old ranker": now[0]},
        "ranker_files": names.erased_files(file_hashes(Path(context.options.ranker))),
    }
    return _record(ledger, run, context, [], found, result)


def finish_run(ledger: Ledger, run: UnfinishedRun, context: RunContext) -> RunResult:
    """Compare the digests of all steps, judge the new ranker and each request, and record the result."""
    options = context.options
    ranker_digest = check_step(ledger, run, "ranker", run.out, _inputs_now(context))
    check_step(ledger, run, "audit", run.audit_out, context.audit_inputs(run.out))
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
    facts = replace(facts, apart=facts.apart or has_adapter(run.out))
    scorers = workspace.scorer(context.original), workspace.scorer(new.to(workspace.runtime.device))
    places = kept_places(ledger, run, partition.forget)
    judged = RequestPairs.of(context.collection, context.batch.items, record.target_name, places).judge(
        *scorers,
        record.target if default is None else min(record.target, default),
        facts,
        [workspace.scorer(each.to(workspace.runtime.device)) for each in context.references]
        if record.method == RETRAIN and context.has_known_references
        else [],
        context.never_seen,
    )
    ranker_files = file_hashes(run.out)
    if hash_of_files(ranker_files) != ranker_digest:
        raise UnrankError(f"{run.out} was changed while it was judged: remove it, and run again")
    limits = Limits(options.keep_at_least, options.strict)
    shown = gates(record, AuditResult.of(audit), default, limits, context.doubts)
    result = {
        "record": {name: value for name, value in record.to_json().items() if name not in SECRET_PARTS},
        "substitutes": as_json(substitutes_of_each(context.batch, context.collection, *scorers)),
        "run_name": record.removed.salt if record.removed else "",
        "kept": record.kept,
        "audit": audit,
        "gates": [asdict(gate) for gate in shown],
        "unknown_references": len(context.doubts),
        "unseen_measured": default is not None,
        "files": {
            "ranker": ranker_digest,
            "old ranker": folder_hash(Path(options.ranker)),
            AUDIT: sha256(audit_file),
        },
        "ranker_files": ranker_files,
    }
    done = _record(ledger, run, context, shown, judged, result)
    clear_places(run.out)
    return done


def _inputs_now(context: RunContext) -> dict[str, object]:
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


def _copies(
    ledger: Ledger, run: UnfinishedRun, context: RunContext, has_new_ranker: bool
) -> tuple[list[Copy], list[Copy]]:
    """Find copies beside the ranker and the collection, in earlier runs and proxies, and where the user looks.

    Return the copies that still are to be deleted, and the places of which that is not known.
    """
    runs, options, items = past_runs(ledger), context.options, context.batch.all_items
    old = [Path(place) for each in runs if each.id < run.id for place in (each.ranker, str(each.out)) if place]
    places = [Path(options.ranker), options.collection, *old, *options.look]
    places += [*adapters_beside(places), *adapters_beside([run.out])]
    places = [place for place in places if exists(place)]
    own = str(beside(run.out))  # it is deleted when the result is written
    # A ranker in which there was nothing to forget stays in use.
    spared = {own} if has_new_ranker else {own, options.ranker}
    spared |= set.intersection(*(held_nothing(runs, settling_runs(ledger, id)) for id in context.batch.items))
    found = [
        copy
        for copy in find_copies([*places, *remembered_proxies()], items, context.collection, ledger.path)
        if copy.path not in spared and (copy.kind, copy.path) != ("adapter", str(run.out))
    ]
    strange = [copy for copy in of_other_collections(places, [context.collection]) if copy.path not in spared]
    return without_names(found, items), without_names([*strange, *not_searched(options.look)], items)


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
    holders, unsure = _copies(ledger, run, context, result["record"] is not None)
    result |= {
        "requests": {str(id): one.to_json() for id, one in judged.items()},
        "never_seen": context.never_seen,
        "copies": {str(id): copies for id in batch.items if (copies := count_copies(ledger, batch, id))},
        "holders": [asdict(copy) for copy in holders],
        "not_searched": [asdict(copy) for copy in unsure],
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
