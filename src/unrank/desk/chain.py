"""The history: entries that are only added, each with the hash of the one before it.

Whoever changes, drops or slips in an entry breaks the chain at that place, and everybody can see where. A certificate
signs the last hash, so that a chain that was made anew as a whole is found out too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from unrank.errors import UnrankError

START = "0" * 64
RESTORE = "bring the ledger back from a backup"


class BrokenChain(UnrankError):
    """The history is not what was written."""


@dataclass(frozen=True)
class Entry:
    number: int
    request: int | None
    at: str
    event: str
    details: str
    before: str
    hash: str

    @classmethod
    def after(
        cls, number: int, before: str, request: int | None, at: str, event: str, details: Mapping[str, Any]
    ) -> Entry:
        """The entry that follows one with this number and hash."""
        told = json.dumps(details, ensure_ascii=False, sort_keys=True)
        return cls(number + 1, request, at, event, told, before, _hash(number + 1, request, at, event, told, before))

    @property
    def told(self) -> dict[str, Any]:
        return dict(json.loads(self.details))

    @property
    def holds(self) -> bool:
        return self.hash == _hash(self.number, self.request, self.at, self.event, self.details, self.before)

    def __str__(self) -> str:
        whose = "" if self.request is None else f"request {self.request}, "
        return f"entry {self.number} ({whose}{self.event}, {self.at})"


def check_chain(entries: Iterable[Entry], name: str) -> str:
    """The hash of the last entry, or an error that says where the chain breaks."""
    before = START
    for number, entry in enumerate(entries, 1):
        if entry.number != number:
            raise BrokenChain(f"{name}: the history is broken at entry {number}, which is missing: {RESTORE}")
        check_entry(entry, name, before)
        before = entry.hash
    return before


def check_entry(entry: Entry, name: str, before: str | None = None) -> None:
    """One entry, and that it follows one with this hash, where that is known."""
    if before not in (None, entry.before) or not entry.holds:
        raise BrokenChain(f"{name}: the history is broken at {entry}: it was changed after it was written; {RESTORE}")


def _hash(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode()).hexdigest()
