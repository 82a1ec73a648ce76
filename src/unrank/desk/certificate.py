"""The certificate: what was asked, done and measured, what else must be deleted, and what is not claimed.

It names nothing that was removed, and no path. Its figures are of this request by itself, and of the sets that were
kept. If a run took other requests too, figures over all of them are left out, so that nobody reads one request from the
certificate of another.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import unrank
from unrank.desk.commitment import commit
from unrank.desk.erasing import result_hash
from unrank.desk.history_index import COPIES, Entry, Json
from unrank.desk.key import Key
from unrank.desk.ledger import Ledger
from unrank.desk.page import certificate_page
from unrank.desk.predicate import (
    Audited,
    Closing,
    Done,
    EntryPart,
    Measured,
    OwnFigures,
    PlacesPart,
    Predicate,
    RankerPart,
    SetFigures,
)
from unrank.desk.request import Request, State
from unrank.desk.service import ServiceRanker, service_rankers
from unrank.desk.signature import seal, write_seal
from unrank.disk import check_free
from unrank.errors import UnrankError
from unrank.forgetting.target import is_of_request
from unrank.record import KEPT, SETS, current_target
from unrank.report.page import page_html

CERTIFICATE_VERSION = 3
CERTIFIED = (
    State.FORGOTTEN,
    State.NOT_VERIFIABLE,
    State.NOT_CLEARED,
    State.WHILE_ADAPTED,
    State.NOTHING_TO_FORGET,
)
ALSO_DELETE = (
    "every ranker that was trained on it, including the one before this run, wherever it is used or stored",
    "indexes and stored vectors that were made from it",
    "caches, logs, reports and details that quote it",
    "the raw data and the collections that hold it; 'unrank filter' takes it out of new training data",
    "backups, when their retention period ends",
)
NOT_CLAIMED = (
    "That every trace is gone from the weights: the tests can miss differences that are smaller than their power.",
    "That rankers, indexes, caches, logs or backups elsewhere were deleted: this machine cannot see them.",
    "That paraphrases of the texts were found: only what the request named, and copies of it, were looked for.",
    "That the law is satisfied: people must judge that. This page is evidence, not advice.",
)
PLACES_CLAIMS = (
    "That a ranker trained anew without it would rank each pair exactly at its place: a place is where other rankers "
    "that never saw the pair put it, or an estimate of that, and two such rankers differ.",
    "That the base, the model that the ranker was trained from, never saw it: proxies begin from the base too.",
)
"""What is not claimed if pairs were brought to places."""
TRAINED_WITHOUT_CLAIMS = ("That the base, the model that the ranker was trained from, never saw it.",)
"""What is not claimed if the record of the old ranker shows that it was trained without the request."""
ADAPTER_CLAIMS = (
    "That the request is fulfilled: the ranker below the adapter remembers it, and is in service wherever the adapter "
    "is off.",
)
"""What is not claimed if the change is an adapter apart."""
ALSO_ADAPTER = "every copy of the adapter: a merged ranker less its adapter is the ranker that remembers"
SUBSTITUTE_CLAIMS = (
    "That a document which takes the place of a removed one is right, or is found first: only its rank was measured, "
    "among documents that do not answer the query.",
)
"""What is not claimed if removed documents have substitutes."""
FOUND_NOTHING = (
    "That the ranker holds no trace of it: only the ranks of its pairs were measured for this finding.",
    *NOT_CLAIMED[1:],
)
"""What is not claimed if there was nothing to forget."""
HOW = ("method", "settings", "target", "target_name", "epochs", "seconds", "seed", "device", "index_valid", "versions")
"""The fields of a record that say how a ranker was made to forget. None of them names a file."""
OF_ALL = ("mrr", "level", "distance_before", "distance_after")
"""The figures of places that depend on all pairs of a run."""
CLOSING = ("deleted", "left", "reason", "not_checked")
FOUND = ("verdict", "measures", "figure", "low", "high", "threshold", "queries", "words")


@dataclass(frozen=True)
class Certificate:
    """The content of a certificate, and the hashes of the files that it is about."""

    value: Predicate
    subjects: dict[str, str]


@dataclass(frozen=True)
class Settlement:
    """The run that settled a request in one ranker."""

    run: int
    state: State
    ranker: str | None = None
    """The name of the ranker in the service; `None` if none is registered."""
    since: str | None = None
    """The day since when the new ranker is in service; `None` if nobody has recorded it."""


def write_certificate(ledger: Ledger, key: Key, id: int, out: Path) -> Predicate:
    """Write the certificate of a settled request as a folder; the history records it before the folder appears."""
    check_free(out)
    ledger.verify()
    with ledger.snapshot():
        ledger.check_signer(key)
        made, history = certificate(ledger, key, id), ledger.history(id)
    sealed = seal(made.value, made.subjects, page_html(certificate_page(made.value, key.public)), key)

    def record() -> None:
        with ledger.transaction():
            if ledger.history(id) != history:
                raise UnrankError(f"request {id} was changed while its certificate was written: try again")
            ledger.write("certificate", id, content=sealed.digest)

    write_seal(out, sealed, record)
    return made.value


def certificate(ledger: Ledger, key: Key, id: int) -> Certificate:
    """Return the certificate of a settled request; refuse one that no run has settled."""
    request, history = ledger.request(id), ledger.history(id)
    state = request.outcome or request.state
    _check_certifiable(request, state)
    runs = [_run_part(ledger, settled, request, history) for settled in settlements(ledger, request, state)]
    number, head = ledger.head()
    nothing = state is State.NOTHING_TO_FORGET
    apart = any(part["state"] == State.WHILE_ADAPTED for part, _ in runs)
    adapted = any("adapt" in part["done"].get("settings", {}) for part, _ in runs)
    substituted = SUBSTITUTE_CLAIMS if any("substitutes" in part["measured"] for part, _ in runs) else ()
    places: tuple[str, ...] = PLACES_CLAIMS if any("places" in part["done"] for part, _ in runs) else ()
    if not places and any(part["done"].get("never_seen") for part, _ in runs):
        places = TRAINED_WITHOUT_CLAIMS
    hashes = ledger.ask("SELECT kind, hash FROM keyed_hash WHERE request = ?", [id])
    value: Predicate = {
        "certificate_version": CERTIFICATE_VERSION,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "made_by": f"unrank {unrank.__version__}",
        "state": str(state),
        "request": {
            "id": id,
            "received": request.received.isoformat(),
            "due": request.due.isoformat(),
            "basis": request.basis,
            "closing": _closing_part(history),
            "named": history[0].values["names"],
            "commitment": commit(key, hashes),
        },
        "rankers": [part for part, _ in runs],
        "also_delete": [*(ALSO_DELETE[1:] if nothing else ALSO_DELETE), *([ALSO_ADAPTER] if adapted else [])],
        "not_claimed": [
            *(ADAPTER_CLAIMS if apart else ()),
            *(FOUND_NOTHING if nothing else NOT_CLAIMED),
            *places,
            *substituted,
        ],
        "history": {"entries": number, "last_hash": head, "of_request": [_entry_part(entry) for entry in history]},
    }
    if substitutes := history[0].values.get("substitutes"):
        value["request"]["substitutes"] = substitutes
    several = len(runs) > 1
    subjects = {
        f"{part['name']}/{name}" if several else name: hashed for part, files in runs for name, hashed in files.items()
    }
    return Certificate(value, subjects)


def _closing_part(history: list[Entry]) -> Closing | None:
    """Return when the request was closed, and how many places were then deleted, left or not checked."""
    for entry in history:
        if entry.event == State.CLOSED:
            values = entry.values
            return cast("Closing", {"at": entry.when, **{name: values[name] for name in CLOSING if name in values}})
    return None


def settlements(ledger: Ledger, request: Request, state: State) -> list[Settlement]:
    """Return the run that settled a request in each ranker of the service; without a service, the one that did."""
    rows = ledger.ask("SELECT run, state, ranker FROM state_by_ranker WHERE request = ? ORDER BY ranker", [request.id])
    if not rows and request.run is not None:
        return [Settlement(request.run, state)]
    served = {ranker.name: ranker for ranker in service_rankers(ledger)}
    found = [Settlement(run, State(there), name, _since(served.get(name), run)) for run, there, name in rows if run]
    if not found:
        raise UnrankError(f"{ledger.path}: request {request.id} is {state}, but no run of the ledger settled it")
    return found


def _since(ranker: ServiceRanker | None, run: int) -> str | None:
    """Return the day since when the ranker of a run is in service; `None` if it is not, or nobody recorded it."""
    return str(ranker.since) if ranker and ranker.since and ranker.run == run else None


def _check_certifiable(request: Request, state: State) -> None:
    if state in CERTIFIED:
        return
    if state is State.FULFILLED:
        raise UnrankError(
            f"request {request.id} was fulfilled by an earlier version, which did not judge it by itself: the "
            "certificate of that version still verifies; for a new one, add the request again and run it"
        )
    raise UnrankError(f"request {request.id} is {state}: only a request that a run has settled has a certificate")


def _run_part(
    ledger: Ledger, settled: Settlement, request: Request, history: list[Entry]
) -> tuple[RankerPart, dict[str, str]]:
    """Return the part of a certificate about one ranker, and the hashes of its files."""
    entry = next(e for e in reversed(history) if e.values.get("run") == settled.run and "result" in e.values)
    [[asked, written]] = ledger.ask("SELECT asked, result FROM run WHERE id = ?", [settled.run])
    if hashlib.sha256(written.encode()).hexdigest() != result_hash(ledger, settled.run):
        raise UnrankError(f"{ledger.path}: the result of run {settled.run} was changed after it was recorded")
    options, result = json.loads(asked), json.loads(written)
    alone = len(options["requests"]) == 1 and sum(options["removed"].values()) == _number_named(history)
    part: RankerPart = {
        "name": settled.ranker,
        "state": str(settled.state),
        "in_service_since": settled.since,
        "settled": entry.when,
        "run": settled.run,
        "requests": len(options["requests"]),
        "alone": alone,
        "done": _done_part(options, result, request.id, alone),
        "measured": _measured_part(result, request.id, alone),
        "audited": _audit_part(result["audit"], alone),
        "gates": {gate["name"]: gate["passed"] for gate in result["gates"]},
        "copies": _copies_part(result["holders"], alone),
        "files": result["files"],
    }
    return part, result.get("ranker_files", {})


def _done_part(options: Json, result: Json, id: int, alone: bool) -> Done:
    """Return how the ranker was made to forget, from the options and the result of its run."""
    record = result["record"] or {}
    how = {name: record[name] for name in HOW if record}
    if record:
        how["target_name"] = current_target(record["target_name"])
        if not alone and is_of_request(how["target_name"]):
            del how["target"]
    elif options.get("target"):
        how["target_name"] = current_target(options["target"])
    places = record.get("places") or result.get("places")
    return cast(
        "Done",
        {
            **how,
            **({"places": _places_part(places, alone)} if places else {}),
            "collection": options["collection_fingerprint"],
            "references": len(options["references"]),
            "keep_at_least": options["keep_at_least"],
            "strict": options["strict"],
            "copies": result.get("copies", {}).get(str(id), {}),
            "vocabulary": _vocabulary(record.get("cleared")),
            "never_seen": id in result.get("never_seen", []),
            **{name: result[name] for name in ("unknown_references", "unseen_measured") if name in result},
        },
    )


def _places_part(places: Json, alone: bool) -> PlacesPart:
    """Return how places were found; what is measured on all pairs of a run only if they are of one request."""
    calibrated = places["proxies"] and places["calibrated_on"]
    left_out = () if alone else OF_ALL if calibrated else (*OF_ALL, "spread", "above")
    return cast("PlacesPart", {name: value for name, value in places.items() if name not in left_out})


def _vocabulary(cleared: Json | None) -> str | None:
    """Tell if rows of the vocabulary that only removed texts touch were reset or left; `None` if there are none."""
    if not cleared:
        return None
    return "left" if cleared["left"] else "reset" if cleared["reset"] else None


def _number_named(history: list[Entry]) -> int:
    """Return how many items a request names, with the copies that runs added to it."""
    return sum(sum(entry.values["names"].values()) for entry in history if entry.event in ("added", COPIES))


def _measured_part(result: Json, id: int, alone: bool) -> Measured:
    """Return the ranks of the request's own pairs, and the MRR of the sets that were kept."""
    own = cast("OwnFigures", dict(result["requests"][str(id)]))
    record = result["record"] or {"before": {}, "after": {}}
    if not alone:
        own.pop("words", None)  # they may give counts of all requests of the run
    sets = {
        name: _set_part(record["before"][name], record["after"][name], alone or name == "test")
        for name in (SETS if alone else KEPT)
        if record["before"].get(name) and record["after"].get(name)
    }
    measured: Measured = {"request": own, "sets": sets, "kept": result["kept"]}
    if substitutes := result.get("substitutes", {}).get(str(id)):  # earlier versions knew none
        measured["substitutes"] = substitutes
    return measured


def _set_part(before: Json, after: Json, with_queries: bool) -> SetFigures:
    found: SetFigures = {"before": before["mrr"], "after": after["mrr"], "low": after["low"], "high": after["high"]}
    return {**found, "queries": after["queries"]} if with_queries else found


def _audit_part(audit: Json | None, alone: bool) -> Audited | None:
    """Return what each test found; if other requests were tested with this one, only the verdicts."""
    if audit is None:
        return None
    kept = FOUND if alone else FOUND[:1]
    tests = {name: {part: found.get(part) for part in kept} for name, found in audit["tests"].items()}
    claims = audit.get("evaluation")
    if claims and not alone:
        claims = {"claims": [], "testResult": claims["testResult"]}
    return cast("Audited", {"verdict": audit["verdict"], "tests": tests, "evaluation": claims})


def _copies_part(copies: list[Json], alone: bool) -> dict[str, int | None]:
    """Return the number of copies of each kind that were found on disk; `None` if they may be another request's."""
    kinds = Counter(copy["kind"] for copy in copies)
    return {kind: number if alone else None for kind, number in sorted(kinds.items())}


def _entry_part(entry: Entry) -> EntryPart:
    return {"number": entry.number, "at": entry.at, "event": entry.event, "hash": entry.hash}
