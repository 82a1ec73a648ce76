"""The run: forgets all that is open in one go, audits it, applies the gates, and records it.

Each stage leaves a folder that appears whole or not at all, and the ledger is told at the end, in one transaction. A
run that was stopped, however hard, goes on from the last folder; a request that was fulfilled is not open, and so
never done twice.
"""

from __future__ import annotations

import glob
import hashlib
import json
import re
import shutil
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from unrank.audit.audit import AUDIT, audit_ranker
from unrank.audit.context import Thoroughness
from unrank.collection.collection import Collection, open_collection
from unrank.desk.batch import Batch, open_batch
from unrank.desk.closing import scrub
from unrank.desk.gates import Gate, gates
from unrank.desk.holders import holders, without_names
from unrank.desk.ledger import Ledger
from unrank.desk.orders import Orders, folder_hash
from unrank.desk.request import State
from unrank.desk.results import RequestResult, request_results
from unrank.disk import check_free, read_json, sha256, sole_user, whole_path
from unrank.engine.runtime import Progress, Runtime
from unrank.errors import BadFile, UnrankError
from unrank.forgetting.earlier import check_references, has_seen
from unrank.forgetting.forget import forget
from unrank.forgetting.hashes import recognised
from unrank.forgetting.run import Pace
from unrank.forgetting.start import check_base, check_request, find_base
from unrank.forgetting.workspace import Workspace, usual_measure
from unrank.methods import make_method
from unrank.methods.base import Method
from unrank.rankers import load_ranker
from unrank.rankers.base import Ranker
from unrank.record import RECORD, RETRAIN, Record

SECRET_PARTS = ("removed", "removed_before", "history")
"""Of a ranker's record the ledger keeps all but these: hashes of what was removed, and the line a check."""


@dataclass(frozen=True)
class Done:
    """What a run came to."""

    run: int
    out: Path
    gates: list[Gate]
    """What all requests had to show together."""
    requests: dict[int, RequestResult]
    """What came of each request by itself."""
    result: dict[str, Any]
    elsewhere: list[int]
    """Requests that are open and could not be fulfilled on this collection."""

    @property
    def fulfilled(self) -> list[int]:
        """The requests that are fulfilled: all gates passed, and their own pairs moved as far as they had to."""
        if not all(gate.passed for gate in self.gates):
            return []
        return [id for id, result in self.requests.items() if result.forgotten]

    @property
    def still_open(self) -> list[int]:
        return [id for id in self.requests if id not in self.fulfilled]

    @property
    def passed(self) -> bool:
        return not self.still_open


@dataclass(frozen=True)
class Work:
    """All that a run goes by."""

    orders: Orders
    target: str
    default_target: str
    """The target of a run for which none is named."""
    collection: Collection
    batch: Batch
    original: Ranker
    record: Record | None
    """The original's record."""
    references: list[Ranker]

    @property
    def method(self) -> Method:
        return make_method(self.orders.method, self.orders.settings, self.original.kind)


def run_open(
    ledger: Ledger, key_place: Path, orders: Orders, out: Path | None = None, progress: Progress | None = None
) -> Done | None:
    """Fulfil all that is open on a collection; None where nothing is."""
    key = ledger.key(key_place)
    orders, out = orders.from_anywhere(), out and whole_path(out)
    with only_run(ledger.path):
        ledger.verify()
        scrub(ledger)
        collection = open_collection(orders.collection)
        record = Record.read(Path(orders.ranker))
        batch = open_batch(ledger, key, collection, record)
        if not batch.requests:
            return None
        check_references(orders.references, collection, batch.removal)
        default = _default_target(orders, batch, collection)
        target = orders.target or default
        original, references = (
            load_ranker(orders.ranker, orders.fast),
            [load_ranker(name, orders.fast) for name in orders.references],
        )
        work = Work(replace(orders, target=target), target, default, collection, batch, original, record, references)
        _check(work)
        run, place = _begun(ledger, work.orders.asked(batch, collection), out)
        for folder in (place, audit_folder(place)):
            for partial in place.parent.glob(f".{glob.escape(folder.name)}.partial-*"):
                shutil.rmtree(partial)
        _forget(work, place, progress)
        _audit(work, place, progress)
        return _finish(ledger, run, place, work)


def _check(work: Work) -> None:
    """Refuse what cannot be, before the ledger is told of a run."""
    Runtime.on(work.orders.device)
    partition = work.batch.partition(work.collection)
    compared: list[Ranker | None] = [*work.references]
    for reference in compared or [None]:
        check_request(work.original, reference, work.method, work.target, Pace(), work.collection, partition)
    check_base(work.original.kind, work.orders.base)
    find_base(work.original, work.method, work.orders.base, work.record)


def _default_target(orders: Orders, batch: Batch, collection: Collection) -> str:
    record = Record.read(Path(orders.references[0])) if orders.references else None
    return "destination-1" if has_seen(collection, record, batch.removal) is False else "unseen"


def only_run(ledger: Path) -> AbstractContextManager[None]:
    """One run at a time on a ledger, whatever path leads to it."""
    place = ledger.resolve()
    # Not a lock on the ledger itself: SQLite's own on it would be lost when the file is closed.
    return sole_user(
        place.with_name(f".{place.name}.run"), "another run is under way on this ledger: wait until it has ended"
    )


def audit_folder(out: Path) -> Path:
    return out.with_name(f"{out.name}-audit")


def _begun(ledger: Ledger, asked: dict[str, Any], out: Path | None) -> tuple[int, Path]:
    """The run that was interrupted, if the same is asked for again; else a new one."""
    with ledger.transaction():
        told = json.dumps(asked, sort_keys=True)
        for id, place, before in ledger.ask("SELECT id, out, asked FROM run WHERE state = 'begun'"):
            if before == told and out in (None, Path(place)):
                return id, Path(place)
            ledger.ask("UPDATE run SET state = 'abandoned' WHERE id = ?", [id])
            ledger.write_of_run("abandoned", id)
        [[id]] = ledger.ask("SELECT coalesce(max(id), 0) + 1 FROM run")
        place = out or _beside(asked["ranker"], id)
        for folder in (place, audit_folder(place)):
            check_free(folder)
        ledger.ask("INSERT INTO run (id, state, out, asked) VALUES (?, 'begun', ?, ?)", [id, str(place), told])
        ledger.write_of_run("begun", id, requests=asked["requests"])
        return id, place


def _beside(ranker: str, run: int) -> Path:
    old = Path(ranker)
    folder = old.parent if old.is_dir() else Path()
    return whole_path(folder / f"{re.sub(r'-run[0-9]+$', '', old.name)}-run{run}")


def _forget(work: Work, out: Path, progress: Progress | None) -> None:
    if out.exists():
        record = Record.read(out)
        if record is None or not record.removed or recognised(work.collection, [record.removed]) != work.batch.removal:
            raise UnrankError(
                f"{out} exists and is not what this run would have written: remove it, or name another --out"
            )
        return
    result = forget(
        work.original,
        work.collection,
        work.batch.removal,
        method=work.method,
        target=work.target,
        base=work.orders.base,
        reference=next(iter(work.references), None),
        record=work.record,
        measure=usual_measure(work.original, work.orders.device),
        seed=work.orders.seed,
        device=work.orders.device,
        progress=progress,
    )
    result.save(out)


def _audit(work: Work, out: Path, progress: Progress | None) -> None:
    if audit_folder(out).exists():
        return
    found = audit_ranker(
        load_ranker(out, work.orders.fast),
        work.collection,
        work.batch.removal,
        original=work.original,
        references=work.references,
        record=Record.read(out),
        thoroughness=Thoroughness(queries=work.orders.audit_queries),
        seed=work.orders.seed,
        device=work.orders.device,
        progress=progress,
    )
    found.save(audit_folder(out))


def _default_mrr(work: Work, record: Record, workspace: Workspace) -> float | None:
    """Return the forget MRR that the default target means here; `None` if there is no test query to measure it on."""
    if work.target == work.default_target:
        return record.target
    if work.default_target == "destination-1":
        reference = work.references[0].to(workspace.runtime.device)
        return workspace.evaluator.forget_mrr(workspace.scorer(reference))
    return record.before["test"].mrr if "test" in record.before else None


def _finish(ledger: Ledger, run: int, out: Path, work: Work) -> Done:
    """Tell the ledger what came of it, all at once."""
    orders, batch = work.orders, work.batch
    record, audit_file = Record.read(out), audit_folder(out) / AUDIT
    if record is None:
        raise BadFile(out / RECORD, "missing, though this run wrote it")
    audit = read_json(audit_file)
    workspace = Workspace.open(work.original, work.collection, batch.partition(work.collection), orders.device)
    new = load_ranker(out, orders.fast).to(workspace.runtime.device)
    scorers = (workspace.scorer(work.original), workspace.scorer(new))
    anew = record.method == RETRAIN
    each = request_results(work.collection, batch.items, *scorers, record["target"], anew)
    passed = gates(record, audit, _default_mrr(work, record, workspace), orders.keep_at_least, orders.strict)
    old = [Path(place) for (place,) in ledger.ask("SELECT out FROM run WHERE id < ?", [run])]
    look = [Path(orders.ranker), orders.collection, *old, *orders.look]
    held = holders([place for place in look if place.exists()], batch.all_items, work.collection, ledger.path)
    result = {
        "record": {name: value for name, value in record.to_json().items() if name not in SECRET_PARTS},
        "kept": record.kept,
        "audit": audit,
        "gates": [asdict(gate) for gate in passed],
        "requests": {str(id): one.to_json() for id, one in each.items()},
        "holders": [asdict(holder) for holder in without_names(held, batch.all_items)],
        "files": {
            "ranker": folder_hash(out),
            "old ranker": folder_hash(Path(orders.ranker)),
            AUDIT: sha256(audit_file),
        },
    }
    done = Done(run, out, passed, each, result, [request.id for request in batch.elsewhere])
    _record(ledger, done)
    return done


def _record(ledger: Ledger, done: Done) -> None:
    told = json.dumps(done.result, ensure_ascii=False)
    proof = {"result": hashlib.sha256(told.encode()).hexdigest()}
    with ledger.transaction():
        state = "passed" if done.fulfilled else "failed"
        ledger.ask("UPDATE run SET state = ?, result = ? WHERE id = ?", [state, told, done.run])
        failed = [gate.name for gate in done.gates if not gate.passed]
        ledger.write_of_run(state, done.run, **proof, requests=list(done.requests), gates=failed, open=done.still_open)
        for id in done.fulfilled:
            if ledger.request(id).state is not State.OPEN:
                raise UnrankError(f"request {id} was ended while the run was under way: run again for the others")
            ledger.ask("UPDATE request SET run = ? WHERE id = ?", [done.run, id])
            ledger.move(id, State.FULFILLED, run=done.run, **proof)
