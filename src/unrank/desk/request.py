"""A request: when it came and is due, on which ground, its state, and the items that it names.

An item is a query, a document, or a pair of both, with its texts. Items are stored apart from the request. Nothing here
opens a collection, so the ledger answers at once.

>>> month_after(date(2026, 1, 31)).isoformat()
'2026-02-28'
>>> Item(document="d3", document_text="Lost  keys").kind
'document'
"""

from __future__ import annotations

import calendar
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import MAXYEAR, date, datetime
from enum import StrEnum
from itertools import repeat
from typing import TYPE_CHECKING, Literal

from unrank.errors import UnrankError

if TYPE_CHECKING:
    from unrank.collection.collection import Collection
    from unrank.collection.removal import Removal
    from unrank.collection.texts import Texts


class State(StrEnum):
    """The state of a request, in the order in which requests are listed."""

    OPEN = "open"
    NOT_FORGOTTEN = "not forgotten"
    NOT_VERIFIABLE = "forgotten, not verifiable"
    WHILE_ADAPTED = "forgotten while the adapter is on"
    NOT_CLEARED = "forgotten, weights not cleared"
    FORGOTTEN = "forgotten"
    NOTHING_TO_FORGET = "nothing to forget"
    FULFILLED = "fulfilled"
    """Said by earlier versions, which checked less. No request gets this state any more."""
    CLOSED = "closed"
    WITHDRAWN = "withdrawn"
    REFUSED = "refused"

    @property
    def words(self) -> str:
        """The state as people read it."""
        return "fulfilled by an earlier version" if self is State.FULFILLED else str(self)


RUNNABLE = (State.OPEN, State.NOT_FORGOTTEN, State.WHILE_ADAPTED)
"""The next run takes these requests. An adapter apart leaves the ranker that remembers, so it settles nothing."""
SETTLED = (State.NOT_VERIFIABLE, State.NOT_CLEARED, State.FORGOTTEN, State.NOTHING_TO_FORGET, State.FULFILLED)
"""A run has settled these requests: they can be certified and closed."""
PENDING = (*RUNNABLE, *SETTLED)
"""The items of these requests can be read."""
HONOURED = (*SETTLED, State.CLOSED)
"""Every later ranker must keep these requests forgotten."""


def marks(values: Sequence[object]) -> str:
    """Return the place holders of a query for these values.

    >>> marks(["open", "closed"])
    '?, ?'
    """
    return ", ".join("?" * len(values))


class Basis(StrEnum):
    """The ground of a request; the first six are those of Article 17(1) of the GDPR, in its order."""

    not_needed = "no-longer-needed"
    consent = "consent-withdrawn"
    objection = "objection"
    unlawful = "unlawful-processing"
    obligation = "legal-obligation"
    child = "collected-from-a-child"
    licence = "licence-ended"
    other = "other"


@dataclass(frozen=True)
class Request:
    """A request as the ledger lists it, without its items."""

    id: int
    received: date
    due: date
    basis: str
    state: State
    run: int | None = None
    """The last run that took it."""
    outcome: State | None = None
    """Of a closed request: its state when it was closed."""

    def is_overdue(self, today: date) -> bool:
        return self.state in RUNNABLE and self.due < today

    @property
    def words(self) -> str:
        """Its state as people read it; of a closed request, its outcome too."""
        return self.state.words if self.outcome is None else f"{self.state.words} ({self.outcome.words})"


def month_after(day: date) -> date:
    """Return the same day of the next month, or its last day."""
    year, month = (day.year + day.month // 12, day.month % 12 + 1)
    if year > MAXYEAR:
        raise UnrankError(f"there is no month after {day}: give an earlier date")
    return date(year, month, min(day.day, calendar.monthrange(year, month)[1]))


def read_date(text: str, option: str) -> date:
    try:
        return datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError as error:
        raise UnrankError(f"{option} {text!r} is not a date: write it as 2026-03-31") from error


def check_dates(received: date, due: date, today: date) -> None:
    if received > today:
        raise UnrankError(f"received on {received}, which is in the future: check the date")
    if due < received:
        raise UnrankError(f"due on {due}, before it was received on {received}: check both dates")


def dates_of(received: date | None, due: date | None, today: date) -> tuple[date, date]:
    """Return the date of a request and the date by which it must be done: by default today and a month later."""
    received = received or today
    due = due or month_after(received)
    check_dates(received, due, today)
    return received, due


Kind = Literal["query", "document", "pair"]
KINDS: tuple[Kind, ...] = ("query", "document", "pair")
HashKind = Literal["query", "document", "pair", "in pair"]
"""The kind of a keyed hash; "in pair" is for a text in a removed pair, which may itself be kept."""


@dataclass(frozen=True)
class Item:
    """A query, a document, or the pair of both."""

    query: str | None = None
    document: str | None = None
    query_text: str | None = None
    document_text: str | None = None
    substitute: str | None = None
    """The document that takes the place of this one; `None` if none does."""
    substitute_text: str | None = None

    @property
    def kind(self) -> Kind:
        if self.query is not None and self.document is not None:
            return "pair"
        return "query" if self.query is not None else "document"


def items_of(removal: Removal, collection: Collection) -> list[Item]:
    """Return the items of a removal, with their texts and their substitutes."""

    def texts(side: Texts, ids: Sequence[str]) -> list[str]:
        return side.texts(side.rows(ids))

    queries, documents, of = collection.queries, collection.documents, removal.substitutes
    sides = (texts(queries, [query for query, _ in removal.pairs]), texts(documents, [id for _, id in removal.pairs]))
    new = dict(zip(of.values(), texts(documents, [*of.values()]), strict=True))
    items = [
        *map(Item, removal.queries, repeat(None), texts(queries, removal.queries)),
        *map(Item, repeat(None), removal.documents, repeat(None), texts(documents, removal.documents)),
        *(Item(*pair, *both) for pair, *both in zip(removal.pairs, *sides, strict=True)),
    ]
    return [
        replace(item, substitute=of[old], substitute_text=new[of[old]]) if (old := item.document or "") in of else item
        for item in items
    ]


def removal_of(items: Sequence[Item]) -> Removal:
    """Return the removal of some items, without their substitutes."""
    from unrank.collection.removal import Removal

    return Removal(
        [item.query for item in items if item.kind == "query" and item.query],
        [item.document for item in items if item.kind == "document" and item.document],
        [(item.query, item.document) for item in items if item.query and item.document],
    )


def substitutes_of(items: Sequence[Item]) -> dict[str, Item]:
    """Return the substitutes of documents, by the ids of these. A substitute is given as an item, with its text."""
    return {
        item.document: Item(document=item.substitute, document_text=item.substitute_text)
        for item in items
        if item.document is not None and item.substitute is not None
    }


def counts_of(items: Sequence[Item]) -> dict[Kind, int]:
    return {kind: sum(item.kind == kind for item in items) for kind in KINDS}
