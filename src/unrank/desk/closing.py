"""Closing a request: its items are erased from every byte of the ledger's files; keyed hashes stay.

Erasing takes two steps: rows are deleted and overwritten, then the file is rewritten and its log emptied. The ledger
records that the second step is due, so it is done later if a process died between the two.

What this machine cannot see, people delete and tick off: the history records who said so.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from unrank.desk.covered_rows import ITEM
from unrank.desk.erasing import Names, erase_from_runs
from unrank.desk.history_index import Entry
from unrank.desk.ledger import Ledger
from unrank.desk.request import HONOURED, PENDING, RUNNABLE, SETTLED, Item, State, removal_of
from unrank.desk.service import erase_from_service
from unrank.errors import BadFile, UnrankError, listed
from unrank.owner import forget_kind, kept_folders

SECOND_STEP = "UPDATE about SET value = ? WHERE name = 'unscrubbed'"
NOT_DUE = "0"
LATER = (
    "what closed requests named may still be in free parts of the file: the next 'unrank desk add', 'run' or 'close' "
    "erases it"
)
TICKED = "deletion ticked"
"""The event of a person who says that something was deleted."""


class Ending(StrEnum):
    """The ways to end a request that is not forgotten."""

    withdrawn = "withdrawn"
    refused = "refused"


class Leave(StrEnum):
    """The reason to leave something that remembers a request. It is one of these words: a text could name it."""

    duty = "legal-duty"
    claims = "legal-claims"
    purpose = "other-purpose"
    backup = "backup-that-expires"
    others = "not-in-our-hands"
    other = "other"


class Deletion(StrEnum):
    """The things that people delete themselves after a request is forgotten, in the order of a certificate's list."""

    rankers = "rankers"
    indexes = "indexes"
    caches = "caches"
    data = "data"
    backups = "backups"


def close(ledger: Ledger, id: int, instead: State | None = None, **found: Any) -> State:
    """Close a settled request, or end another one as withdrawn or refused (`instead`); return its new state.

    `found` goes into the history, without the names: what was found deleted, what was left, and why.
    """
    with ledger.transaction():
        request = ledger.request(id)
        if request.state not in PENDING:
            raise UnrankError(f"request {id} is {request.state} already")
        if request.state is State.WHILE_ADAPTED and instead is None:
            raise UnrankError(
                f"request {id} is {request.state}: the ranker below the adapter remembers it; run 'unrank desk run' "
                "with --as merged, then delete the adapter and that ranker, and close it"
            )
        if request.state in RUNNABLE and instead is None:
            raise UnrankError(
                f"request {id} is {request.state}: run 'unrank desk run', or end it with --as withdrawn or --as refused"
            )
        if request.state in SETTLED and instead is not None:
            raise UnrankError(f"request {id} is {request.state.words}: close it without --as {instead}")
        ended = instead or State.CLOSED
        items = ledger.items(id)
        if ended is State.CLOSED:
            erase_from_state(id, items)
        names = Names(items)
        erase_from_runs(ledger, names)
        erase_from_service(ledger, id, items)
        for table in ("named", "substitute"):
            ledger.ask(f"DELETE FROM {table} WHERE request = ?", [id])
        if ended not in HONOURED:
            ledger.ask("DELETE FROM keyed_hash WHERE request = ?", [id])
        ledger.move(id, ended, **names.erased_json(found))
        ledger.ask(SECOND_STEP, [str(ledger.head()[0])])
    forget_kind(state_kind(ledger, id))
    try:
        scrub(ledger)
    except UnrankError as error:
        raise UnrankError(f"request {id} is {ended}, but it is not erased yet: {error}") from error
    return ended


def erase_from_state(id: int, items: Sequence[Item]) -> None:
    """Erase what a request names from the owner's anchor files and kept state; refuse to close it if that fails."""
    from unrank.forgetting.anchor_file import erase_from_anchors

    removal = removal_of(items)
    failed = erase_from_anchors(removal)
    if kept_folders():  # it needs torch
        from unrank.engine.kept import erase_from_kept

        failed += erase_from_kept(removal)
    if failed:
        raise UnrankError(
            f"request {id} is not closed: what it names cannot be erased from {listed([*map(str, failed)])}, which "
            "cannot be read with the owner's key, or cannot be written; mend or delete it"
        )


def state_kind(ledger: Ledger, id: int) -> str:
    """Return the kind under which the owner's state folder keeps what it knows of a request; closing deletes it."""
    return f"request-{ledger.about('key')[:16]}-{id}"


def also_named_by(ledger: Ledger, id: int) -> list[int]:
    """Return other requests that name an id or a text of this one, as a substitute too."""
    own = "(SELECT {} FROM named WHERE request = ?1)"
    alike = " OR ".join(f"{part} IN {own.format(part)}" for part in ITEM.split(", "))
    instead = f"substitute IN {own.format('document')} OR substitute_text IN {own.format('document_text')}"
    query = (
        f"SELECT request FROM named WHERE request != ?1 AND ({alike}) "
        f"UNION SELECT request FROM substitute WHERE request != ?1 AND ({instead}) ORDER BY request"
    )
    return [request for (request,) in ledger.ask(query, [id])]


def scrub(ledger: Ledger) -> None:
    """Rewrite the file without deleted data and empty its log, if that is due."""
    due = ledger.about("unscrubbed")
    if due == NOT_DUE:
        return
    try:
        ledger.ask("VACUUM")
        [[busy, _, _]] = ledger.ask("PRAGMA wal_checkpoint(TRUNCATE)")
    except BadFile as error:
        raise UnrankError(f"{error}; {LATER}") from error
    if busy:
        raise UnrankError(f"{ledger.path}: another process still reads the ledger, so its log is not empty; {LATER}")
    ledger.ask(f"{SECOND_STEP} AND value = ?", [NOT_DUE, due])  # another request may have been closed in between


def tick(ledger: Ledger, id: int, what: Deletion) -> Entry:
    """Record that a person says of something that it was deleted."""
    with ledger.transaction():
        if (state := ledger.request(id).state) not in HONOURED:
            raise UnrankError(f"request {id} is {state}: deletions are ticked off when a run has settled it")
        if what in ticked(ledger, id):
            raise UnrankError(f"request {id}: {what} are ticked off already")
        return ledger.write(TICKED, id, deleted=what.value)


def ticked(ledger: Ledger, id: int) -> dict[Deletion, Entry]:
    """Return what was ticked off since the request was last open, and the entry of each tick."""
    history = ledger.history(id)
    opened = max((entry.number for entry in history if entry.event == State.OPEN), default=0)
    entries = [entry for entry in history if entry.event == TICKED and entry.number > opened]
    known = {each.value: each for each in Deletion}
    return {known[name]: entry for entry in entries if (name := entry.values.get("deleted")) in known}
