"""A request: when it came and is due, on what ground, where it stands. What it names is kept apart.

>>> month_after(date(2026, 1, 31)).isoformat()
'2026-02-28'
"""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import MAXYEAR, date, datetime
from enum import StrEnum

from unrank.errors import UnrankError


class State(StrEnum):
    """Where a request stands. What it names is readable while it is open or fulfilled."""

    OPEN = "open"
    FULFILLED = "fulfilled"
    CLOSED = "closed"
    WITHDRAWN = "withdrawn"
    REFUSED = "refused"


PENDING = (State.OPEN, State.FULFILLED)
HONOURED = (State.FULFILLED, State.CLOSED)


class Basis(StrEnum):
    """Why somebody may ask; the first six are the grounds of Article 17(1) of the GDPR, in its order."""

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
    id: int
    received: date
    due: date
    basis: str
    state: State
    run: int | None = None
    """The run that fulfilled it."""

    def is_overdue(self, today: date) -> bool:
        return self.state is State.OPEN and self.due < today


def month_after(day: date) -> date:
    """The same day of the next month, or its last."""
    year, month = (day.year + day.month // 12, day.month % 12 + 1)
    if year > MAXYEAR:
        raise UnrankError(f"there is no month after {day}: give a date that can be")
    return date(year, month, min(day.day, calendar.monthrange(year, month)[1]))


def read_date(text: str, option: str) -> date:
    try:
        return datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError as error:
        raise UnrankError(f"{option} {text!r} is no date: write it as 2026-03-31") from error


def check_dates(received: date, due: date, today: date) -> None:
    if received > today:
        raise UnrankError(f"received on {received}, which is yet to come: check --received")
    if due < received:
        raise UnrankError(f"due on {due}, before it was received on {received}: check --received and --due")
