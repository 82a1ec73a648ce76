"""The history: entries that are only added, each with the hash of the one before it, and an index of the last ones.

If an entry is changed, dropped or inserted, the chain breaks at that place, and everybody can see where. A certificate
signs the last hash, so a chain that was rebuilt as a whole is found too.

The index holds the last entry of each request and each run. It is compared with the tables of the ledger: an entry that
changes a request or a run holds one hash of its rows, its items and keyed hashes included. Entries of a ledger before
version 3 hold none.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from unrank.desk.request import State
from unrank.errors import UnrankError

Json = dict[str, Any]
START = "0" * 64
RESTORE = "restore the ledger from a backup"
STATES = {*State}
COPIES = "copies added"
"""The event of a request to which a run added the copies of its items in a collection."""
KEYS = ("key", "public_key")
ROTATED = "signing key rotated"
RUN = "run "
"""The beginning of the events of runs."""
SERVICE = "service "
"""The beginning of the events of the rankers of a service."""
BY = "by"
"""The detail of an entry that names the person who wrote it; entries need not have it."""
PERSON = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


class BrokenChain(UnrankError):
    """The history is not what was written."""


@dataclass(frozen=True)
class Entry:
    """An entry of the history."""

    number: int
    request: int | None
    at: str
    event: str
    details: str
    before: str
    hash: str

    @classmethod
    def after(cls, number: int, before: str, request: int | None, at: str, event: str, details: Json) -> Entry:
        """Return the entry that follows the one with this number and hash."""
        written = json.dumps(details, ensure_ascii=False, sort_keys=True)
        hashed = _hash(number + 1, request, at, event, written, before)
        return cls(number + 1, request, at, event, written, before, hashed)

    @property
    def values(self) -> Json:
        """The details, parsed."""
        try:
            return dict(json.loads(self.details))
        except (ValueError, TypeError, RecursionError) as error:
            raise BrokenChain(f"the details of {self} cannot be read: {RESTORE}") from error

    @property
    def when(self) -> str:
        """Return what the clock said. `at` may be later: it is never before the entry before."""
        return str(self.values.get("clock", self.at))

    @property
    def by(self) -> str | None:
        """The name of the person who wrote it; `None` if nobody gave one."""
        found = self.values.get(BY)
        return None if found is None else str(found)

    @property
    def holds(self) -> bool:
        """Whether the entry has its own hash."""
        return self.hash == _hash(self.number, self.request, self.at, self.event, self.details, self.before)

    def __str__(self) -> str:
        whose = "" if self.request is None else f"request {self.request}, "
        return f"entry {self.number} ({whose}{self.event}, {self.at})"


def check_person(name: str) -> None:
    """Refuse a name of a person that the history cannot keep: it holds no texts that could name what is erased."""
    if not PERSON.fullmatch(name):
        raise UnrankError(f"the name {name!r} cannot be used: take up to 40 letters, digits, points, - and _")


def check_chain(entries: Iterable[Entry], name: str) -> str:
    """Return the hash of the last entry; refuse a chain that breaks, and say where."""
    before = START
    for number, entry in enumerate(entries, 1):
        if entry.number != number:
            raise BrokenChain(f"{name}: the history is broken at entry {number}, which is missing: {RESTORE}")
        check_entry(entry, name, before)
        before = entry.hash
    return before


def check_entry(entry: Entry, name: str, before: str | None = None) -> None:
    """Check one entry, and that it follows the entry with this hash, if that is known."""
    if before not in (None, entry.before) or not entry.holds:
        raise BrokenChain(f"{name}: the history is broken at {entry}: it was changed after it was written; {RESTORE}")


class LastEntry(NamedTuple):
    """The last entry about a request or a run."""

    number: int
    covers: str | None
    """The hash of its rows in the tables."""
    facts: tuple[Any, ...] = ()
    """Of a request: received, due, basis, state."""


@dataclass(frozen=True)
class HistoryIndex:
    """The last entry of each request and each run, and the keys of the ledger."""

    requests: dict[int, LastEntry] = field(default_factory=dict)
    runs: dict[int, LastEntry] = field(default_factory=dict)
    service: dict[str, LastEntry] = field(default_factory=dict)
    """The last entry of each ranker of the service."""
    keys: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Each key of the ledger, and the number of the last entry that holds it."""
    backward: list[str] = field(default_factory=list)
    """Entries that are dated before the entry before them, in words."""

    def follow(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield the entries; each is added when the next is asked for, after the caller has checked it."""
        last = ""
        for entry in entries:
            yield entry
            try:
                self.add(entry)
            except (KeyError, TypeError, ValueError) as error:
                raise BrokenChain(f"the details of {entry} cannot be read: {RESTORE}") from error
            if entry.at < last:
                self.backward.append(f"{entry} comes after {last}")
            last = entry.at

    def add(self, entry: Entry) -> None:
        if entry.request is None:
            if entry.event.startswith(RUN):
                values = entry.values
                self.runs[values["run"]] = LastEntry(entry.number, values.get("covers"))
            elif entry.event.startswith(SERVICE):
                self._add_service(entry)
            elif entry.event == ROTATED:
                self.keys["public_key"] = (entry.values["public_key"], entry.number)
        elif entry.event == "added":
            values = entry.values
            facts = (values.get("received"), values.get("due"), values.get("basis"), State.OPEN)
            self.requests[entry.request] = LastEntry(entry.number, values.get("covers"), facts)
            self.keys.update((name, (values[name], entry.number)) for name in KEYS if name in values)
        elif entry.event == COPIES:
            first = self.requests.get(entry.request, LastEntry(0, None))
            self.requests[entry.request] = LastEntry(entry.number, entry.values.get("covers"), first.facts)
        elif entry.event in STATES:
            first = self.requests.get(entry.request, LastEntry(0, None))
            self.requests[entry.request] = LastEntry(
                entry.number, entry.values.get("covers"), (*first.facts[:-1], State(entry.event))
            )

    def _add_service(self, entry: Entry) -> None:
        values = entry.values
        if values["covers"] is None:  # the ranker was removed
            self.service.pop(values["service"], None)
        else:
            self.service[values["service"]] = LastEntry(entry.number, values["covers"])


def hash_of_rows(rows: Iterable[Sequence[Any]]) -> str:
    """Return one hash of rows of the ledger."""
    return hashlib.sha256(json.dumps([*rows], ensure_ascii=False).encode()).hexdigest()


def _hash(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode()).hexdigest()
