"""The certificate: what was asked, done and measured, what else must be deleted, and what is not claimed.

It names nothing that was removed. Most figures are of the run that fulfilled the request, perhaps together with others.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path

import unrank
from unrank.desk.history_index import Entry, Json
from unrank.desk.key import Key
from unrank.desk.ledger import Ledger
from unrank.desk.page import certificate_page
from unrank.desk.request import HONOURED, SETTLED, Request
from unrank.desk.signature import sign_certificate
from unrank.disk import check_free
from unrank.errors import UnrankError
from unrank.forgetting.outcome import ForgetState
from unrank.report.page import page_html

CERTIFICATE_VERSION = 1
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
    "That paraphrases of the texts were found: what the request named was removed, nothing else.",
    "That the law is satisfied: people must judge that. This certificate is evidence, not advice.",
)


def write_certificate(ledger: Ledger, key: Key, id: int, out: Path) -> Json:
    """Write the certificate of a settled request as a folder, and record it in the history."""
    check_free(out)
    ledger.verify()
    value = certificate(ledger, id)
    sign_certificate(out, value, page_html(certificate_page(value, key.public)), key)
    with ledger.transaction():
        ledger.write("certificate", id, content=_hash(value))
    return value


def certificate(ledger: Ledger, id: int) -> Json:
    """Return the certificate of a settled request."""
    request, history = ledger.request(id), ledger.history(id)
    if request.state not in HONOURED:
        raise UnrankError(f"request {id} is {request.state}: only a request that a run has settled has a certificate")
    fulfilled = next(entry for entry in reversed(history) if entry.event in SETTLED)
    [[asked, written]] = ledger.ask("SELECT asked, result FROM run WHERE id = ?", [request.run])
    if hashlib.sha256(written.encode()).hexdigest() != fulfilled.values["result"]:
        raise UnrankError(f"{ledger.path}: the result of run {request.run} was changed after it was recorded")
    options, result = json.loads(asked), json.loads(written)
    number, head = ledger.head()
    hashes = [row[0].hex() for row in ledger.ask("SELECT hash FROM keyed_hash WHERE request = ? ORDER BY hash", [id])]
    return {
        "certificate_version": CERTIFICATE_VERSION,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "made_by": f"unrank {unrank.__version__}",
        "request": {
            **_request_part(request),
            "named": history[0].values["names"],
            "fulfilled": fulfilled.at,
            "keyed_hashes": _hash(hashes),
            "result": result.get("requests", {}).get(str(id)),
        },
        "run": {"number": request.run, **_run_part(options, result)},
        "also_delete": {"found": result["holders"], "in_general": list(ALSO_DELETE)},
        "not_claimed": list(NOT_CLAIMED),
        "history": {"entries": number, "last_hash": head, "of_request": [_entry_part(entry) for entry in history]},
    }


def _request_part(request: Request) -> Json:
    return {
        "id": request.id,
        "received": request.received.isoformat(),
        "due": request.due.isoformat(),
        "basis": request.basis,
        "state": str(request.state),
    }


def _run_part(options: Json, result: Json) -> Json:
    return {
        "requests": len(options["requests"]),
        "still_open": sum(_stays_open(one) for one in result.get("requests", {}).values()),
        "removed": options["removed"],
        "keep_at_least": options["keep_at_least"],
        "strict": options["strict"],
        "references": len(options["references"]),
        **{name: result[name] for name in ("record", "kept", "audit", "gates", "files")},
    }


def _stays_open(result: Json) -> bool:
    """Return whether a run left a request to do again. Earlier versions wrote only whether it was forgotten."""
    state = result.get("state")
    return not result["forgotten"] if state is None else state == ForgetState.NOT_FORGOTTEN


def _entry_part(entry: Entry) -> Json:
    return {"number": entry.number, "at": entry.at, "event": entry.event, "hash": entry.hash}


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
