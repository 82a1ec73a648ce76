"""Closing a request: what it named goes, down to the last byte of the ledger's files, and keyed hashes stay.

Deleting takes two steps: rows are deleted and overwritten, then the file is written anew and its log emptied. The
ledger remembers that the second is due, so that it is made up for where a process died between them.
"""

from __future__ import annotations

from unrank.desk.ledger import ITEM, Ledger
from unrank.desk.request import HONOURED, State
from unrank.errors import UnrankError

SECOND_STEP = "UPDATE about SET value = ? WHERE name = 'unscrubbed'"
NOT_DUE = "0"


def close(ledger: Ledger, id: int, instead: State | None = None) -> State:
    """Close a fulfilled request; `instead` ends one that is not: withdrawn, or refused. The state that it comes to."""
    with ledger.transaction():
        request = ledger.request(id)
        if request.state is State.OPEN and instead is None:
            raise UnrankError(
                f"request {id} is not fulfilled: 'unrank desk run' fulfils it; "
                "--as withdrawn or --as refused ends it without"
            )
        if request.state is State.FULFILLED and instead is not None:
            raise UnrankError(f"request {id} is fulfilled already: close it without --as {instead}")
        if request.state not in (State.OPEN, State.FULFILLED):
            raise UnrankError(f"request {id} is {request.state} already")
        ended = instead or State.CLOSED
        ledger.ask("DELETE FROM named WHERE request = ?", [id])
        if ended not in HONOURED:
            ledger.ask("DELETE FROM keyed_hash WHERE request = ?", [id])
        ledger.move(id, ended)
        ledger.ask(SECOND_STEP, [str(ledger.head()[0])])
    scrub(ledger)
    return ended


def also_named_by(ledger: Ledger, id: int) -> list[int]:
    """Other requests that name something of what this one names, by its id or by its text."""
    alike = " OR ".join(f"{part} IN (SELECT {part} FROM named WHERE request = ?1)" for part in ITEM.split(", "))
    query = f"SELECT DISTINCT request FROM named WHERE request != ?1 AND ({alike}) ORDER BY request"
    return [request for (request,) in ledger.ask(query, [id])]


def scrub(ledger: Ledger) -> None:
    """Write the file anew without what was deleted, and empty its log, if that is due."""
    due = ledger.about("unscrubbed")
    if due == NOT_DUE:
        return
    ledger.ask("VACUUM")
    [[busy, _, _]] = ledger.ask("PRAGMA wal_checkpoint(TRUNCATE)")
    if busy:
        raise UnrankError(
            f"{ledger.path}: closed, but another process still reads the ledger, so that its log could not be emptied: "
            "any later 'unrank desk add', 'run' or 'close' does so"
        )
    ledger.ask(f"{SECOND_STEP} AND value = ?", [NOT_DUE, due])  # another may have been closed meanwhile
