"""The certificate: what was asked, what was done, what was measured, what else must go, and what is not claimed.

It names nothing that was removed. All figures are those of the run that fulfilled the request, which may have fulfilled
others with it.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import unrank
from unrank.desk.key import Key
from unrank.desk.ledger import Ledger
from unrank.desk.page import certificate_page
from unrank.desk.request import HONOURED
from unrank.desk.seal import write_sealed
from unrank.disk import check_free
from unrank.errors import UnrankError
from unrank.report.page import page_html

CERTIFICATE_VERSION = 1
ALSO_DELETE = (
    "every ranker that was trained on it, the one before this run among them, wherever it is served or stored",
    "indexes and stored vectors that were made of it",
    "caches, logs, reports and details that quote it",
    "the raw data and the collections that hold it; 'unrank filter' takes it out of new training data",
    "backups, when their time has come",
)
NOT_CLAIMED = (
    "That every trace is gone from the weights: the tests found what they can find, at the power that they have.",
    "That rankers, indexes, caches, logs or backups elsewhere were deleted: this machine cannot see them.",
    "That texts which say the same in other words were found: what the request named was removed, nothing else.",
    "That the law is satisfied: that is for people to judge. This paper is evidence, not advice.",
)


def write_certificate(ledger: Ledger, key: Key, id: int, out: Path) -> dict[str, Any]:
    """Write the certificate of a fulfilled request as a folder, and say so in the history."""
    check_free(out)
    ledger.verify()
    value = certificate(ledger, id)
    write_sealed(out, value, page_html(certificate_page(value, key.public)), key)
    with ledger.transaction():
        ledger.write("certificate", id, content=_hash(value))
    return value


def certificate(ledger: Ledger, id: int) -> dict[str, Any]:
    request = ledger.request(id)
    if request.state not in HONOURED:
        raise UnrankError(f"request {id} is {request.state}: only a fulfilled one has a certificate")
    [[asked, told]] = ledger.ask("SELECT asked, result FROM run WHERE id = ?", [request.run])
    entries = ledger.history(id)
    proof = next(entry.told["result"] for entry in entries if entry.event == "fulfilled")
    if hashlib.sha256(told.encode()).hexdigest() != proof:
        raise UnrankError(f"{ledger.path}: what run {request.run} measured was changed after it was recorded")
    orders, result = json.loads(asked), json.loads(told)
    number, head = ledger.head()
    hashes = [row[0].hex() for row in ledger.ask("SELECT hash FROM keyed_hash WHERE request = ? ORDER BY hash", [id])]
    return {
        "certificate_version": CERTIFICATE_VERSION,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "made_by": f"unrank {unrank.__version__}",
        "request": {
            "id": id,
            "received": request.received.isoformat(),
            "due": request.due.isoformat(),
            "basis": request.basis,
            "state": str(request.state),
            "named": entries[0].told["names"],
            "fulfilled": next(entry.at for entry in entries if entry.event == "fulfilled"),
            "keyed_hashes": _hash(hashes),
            "result": result.get("requests", {}).get(str(id)),
        },
        "run": {
            "number": request.run,
            "requests": len(orders["requests"]),
            "still_open": sum(not one["forgotten"] for one in result.get("requests", {}).values()),
            "removed": orders["removed"],
            "keep_at_least": orders["keep_at_least"],
            "strict": orders["strict"],
            "references": len(orders["references"]),
            **{name: result[name] for name in ("record", "kept", "audit", "gates", "files")},
        },
        "also_delete": {"found": result["holders"], "in_general": list(ALSO_DELETE)},
        "not_claimed": list(NOT_CLAIMED),
        "history": {
            "entries": number,
            "last_hash": head,
            "of_request": [
                {"number": entry.number, "at": entry.at, "event": entry.event, "hash": entry.hash} for entry in entries
            ],
        },
    }


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
