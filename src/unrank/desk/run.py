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
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from unrank.audit.audit import AUDIT, audit_ranker
from unrank.audit.case import Thoroughness
from unrank.collection.collection import Collection, open_collection
from unrank.desk.batch import Batch, open_batch
from unrank.desk.closing import scrub
from unrank.desk.gates import Gate, gates, shares_kept
from unrank.desk.holders import holders, without_names
from unrank.desk.ledger import Ledger
from unrank.desk.request import State
from unrank.disk import check_free, exists, read_json, sha256, sole_user
from unrank.engine.runtime import Device, Progress, Runtime
from unrank.errors import BadFile, UnrankError
from unrank.forgetting.earlier import check_references, has_seen
from unrank.forgetting.forget import forget
from unrank.forgetting.hashes import recognised
from unrank.forgetting.record import RECORD, read_record
from unrank.forgetting.run import Pace
from unrank.forgetting.start import check_request, find_base
from unrank.forgetting.workshop import usual_measure
from unrank.methods import make_method
from unrank.rankers import load_ranker
from unrank.rankers.base import Ranker

SECRET_PARTS = ("removed", "removed_before", "history")
"""Of a ranker's record the ledger keeps all but these: hashes of what was removed, and the line a check."""


@dataclass(frozen=True)
class Orders:
    """How a run is to forget, and what it must show."""

    ranker: str
    collection: Path
    method: str = "cocol"
    settings: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None
    """By default where the first reference is, if its record says that it never saw what is removed; else `unseen`."""
    base: str | None = None
    references: tuple[str, ...] = ()
    keep_at_least: float | None = None
    strict: bool = False
    audit_queries: int = 1_000
    seed: int = 0
    device: Device = "auto"
    look: tuple[Path, ...] = ()

    def from_anywhere(self) -> Orders:
        """The same with whole paths, which mean the same in every working directory."""
        return replace(
            self,
            ranker=_named(self.ranker),
            collection=_whole(self.collection),
            base=self.base and _named(self.base),
            references=tuple(map(_named, self.references)),
            look=tuple(map(_whole, self.look)),
        )

    def asked(self, batch: Batch, collection: Collection) -> dict[str, Any]:
        """All that the result follows from, by which an interrupted run is known again."""
        told = asdict(self) | {"collection": str(self.collection)}
        del told["look"]  # where copies were looked for, which may be named like what is removed
        requests = [request.id for request in batch.requests]
        removed = {"queries": len(batch.removal.queries), "documents": len(batch.removal.documents)}
        return {
            **told,
            "references": list(self.references),
            "ranker_files": folder_hash(Path(self.ranker)),
            "collection_fingerprint": collection.fingerprint,
            "requests": requests,
            "removed": {**removed, "pairs": len(batch.removal.pairs)},
        }


@dataclass(frozen=True)
class Done:
    """What a run came to."""

    run: int
    out: Path
    requests: list[int]
    gates: list[Gate]
    result: dict[str, Any]

    @property
    def passed(self) -> bool:
        return all(gate.passed for gate in self.gates)


def run_open(
    ledger: Ledger, key_place: Path, orders: Orders, out: Path | None = None, progress: Progress | None = None
) -> Done | None:
    """Fulfil all that is open on a collection; None where nothing is."""
    key = ledger.key(key_place)
    orders, out = orders.from_anywhere(), out and _whole(out)
    with only_run(ledger.path):
        ledger.verify()
        scrub(ledger)
        collection = open_collection(orders.collection)
        known = read_record(Path(orders.ranker)) or {}
        batch = open_batch(ledger, key, collection, known)
        if not batch.requests:
            return None
        check_references(orders.references, collection, batch.removal)
        orders = replace(orders, target=orders.target or _usual_target(orders, batch, collection))
        original = load_ranker(orders.ranker)
        _check(original, known, collection, batch, orders)
        asked = orders.asked(batch, collection)
        run, place = _begun(ledger, asked, out)
        for folder in (place, audit_folder(place)):
            for partial in place.parent.glob(f".{glob.escape(folder.name)}.partial-*"):
                shutil.rmtree(partial)
        _forget(original, known, collection, batch, orders, place, progress)
        _audit(original, collection, batch, orders, place, progress)
        return _finish(ledger, run, place, orders, batch, collection)


def _check(original: Ranker, known: Mapping[str, Any], collection: Collection, batch: Batch, orders: Orders) -> None:
    """Refuse what cannot be, before the ledger is told of a run."""
    Runtime.on(orders.device)
    method = make_method(orders.method, orders.settings, original.kind)
    parts, target = batch.parts(collection), orders.target or "unseen"
    for reference in map(load_ranker, orders.references):
        check_request(original, reference, method, target, Pace(), collection, parts)
    if not orders.references:
        check_request(original, None, method, target, Pace(), collection, parts)
    find_base(original, method, orders.base, known)


def _usual_target(orders: Orders, batch: Batch, collection: Collection) -> str:
    record = read_record(Path(orders.references[0])) if orders.references else None
    return "destination-1" if has_seen(collection, record, batch.removal) is False else "unseen"


def only_run(ledger: Path) -> AbstractContextManager[None]:
    """One run at a time on a ledger, whatever path leads to it."""
    place = ledger.resolve()
    # Not a lock on the ledger itself: SQLite's own on it would be lost when the file is closed.
    return sole_user(
        place.with_name(f".{place.name}.run"), "another run is under way on this ledger: wait until it has ended"
    )


def _whole(path: Path) -> Path:
    """From the root, without `..`; a link keeps its name."""
    return path.parent.resolve() / path.name


def _named(name: str) -> str:
    """A folder by its whole path, a hub id as it is."""
    return str(_whole(Path(name))) if exists(Path(name)) else name


def folder_hash(folder: Path) -> str | None:
    """One hash for all files of a ranker's folder; None for a hub id."""
    if not folder.is_dir():
        return None
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    told = [[str(path.relative_to(folder)), sha256(path)] for path in files]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


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
    return folder / f"{re.sub(r'-run[0-9]+$', '', old.name)}-run{run}"


def _forget(
    original: Ranker,
    known: Mapping[str, Any],
    collection: Collection,
    batch: Batch,
    orders: Orders,
    out: Path,
    progress: Progress | None,
) -> None:
    if out.exists():
        removed = (read_record(out) or {}).get("removed")
        if removed is None or recognised(collection, [removed]) != batch.removal:
            raise UnrankError(
                f"{out} exists and is not what this run would have written: remove it, or name another --out"
            )
        return
    reference = load_ranker(orders.references[0]) if orders.references else None
    result = forget(
        original,
        collection,
        batch.removal,
        method=make_method(orders.method, orders.settings, original.kind),
        target=orders.target or "unseen",
        base=orders.base,
        reference=reference,
        known=known,
        measure=usual_measure(original, orders.device),
        seed=orders.seed,
        device=orders.device,
        progress=progress,
    )
    result.save(out)


def _audit(
    original: Ranker, collection: Collection, batch: Batch, orders: Orders, out: Path, progress: Progress | None
) -> None:
    if audit_folder(out).exists():
        return
    found = audit_ranker(
        load_ranker(out),
        collection,
        batch.removal,
        original=original,
        references=[load_ranker(name) for name in orders.references],
        known=read_record(out),
        thoroughness=Thoroughness(queries=orders.audit_queries),
        seed=orders.seed,
        device=orders.device,
        progress=progress,
    )
    found.save(audit_folder(out))


def _finish(ledger: Ledger, run: int, out: Path, orders: Orders, batch: Batch, collection: Collection) -> Done:
    """Tell the ledger what came of it, all at once."""
    record, audit_file = read_record(out), audit_folder(out) / AUDIT
    if record is None:
        raise BadFile(out / RECORD, "missing, though this run wrote it")
    audit = read_json(audit_file)
    passed = gates(record, audit, orders.keep_at_least, orders.strict)
    old = [Path(place) for (place,) in ledger.ask("SELECT out FROM run WHERE id < ?", [run])]
    look = [Path(orders.ranker), orders.collection, *old, *orders.look]
    held = holders([place for place in look if place.exists()], batch.all_items, collection)
    result = {
        "record": {name: value for name, value in record.items() if name not in SECRET_PARTS},
        "kept": shares_kept(record),
        "audit": audit,
        "gates": [asdict(gate) for gate in passed],
        "holders": [asdict(holder) for holder in without_names(held, batch.all_items)],
        "files": {
            "ranker": folder_hash(out),
            "old ranker": folder_hash(Path(orders.ranker)),
            AUDIT: sha256(audit_file),
        },
    }
    done = Done(run, out, [request.id for request in batch.requests], passed, result)
    _record(ledger, done)
    return done


def _record(ledger: Ledger, done: Done) -> None:
    told = json.dumps(done.result, ensure_ascii=False)
    proof = {"result": hashlib.sha256(told.encode()).hexdigest()}
    with ledger.transaction():
        state = "passed" if done.passed else "failed"
        ledger.ask("UPDATE run SET state = ?, result = ? WHERE id = ?", [state, told, done.run])
        if not done.passed:
            failed = [gate.name for gate in done.gates if not gate.passed]
            ledger.write_of_run("failed", done.run, **proof, requests=done.requests, gates=failed)
            return
        ledger.write_of_run("passed", done.run, **proof, requests=done.requests)
        for id in done.requests:
            if ledger.request(id).state is not State.OPEN:
                raise UnrankError(f"request {id} was ended while the run was under way: run again for the others")
            ledger.ask("UPDATE request SET run = ? WHERE id = ?", [done.run, id])
            ledger.move(id, State.FULFILLED, run=done.run, **proof)
