"""The story: what the history says of each request and each run, to be held against what the tables say.

An entry that changes one of them covers its rows: it carries one hash of them as they were then, of what a request
names and of its keyed hashes too. Those of a ledger before version 3 carry none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from unrank.desk.chain import Entry
from unrank.desk.request import State

STATES = {*State}
KEYS = ("key", "public_key")
RUN = "run "
"""How the events of runs begin."""


class Told(NamedTuple):
    """What was said of a request or of a run."""

    number: int
    """The entry that said the last of it."""
    covers: str | None
    facts: tuple[Any, ...] = ()
    """Of a request: received, due, basis, state."""


@dataclass(frozen=True)
class Story:
    requests: dict[int, Told] = field(default_factory=dict)
    runs: dict[int, Told] = field(default_factory=dict)
    keys: dict[str, tuple[str, int]] = field(default_factory=dict)
    """What the ledger's key was last said to be, and in which entry."""

    def follow(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """The same entries; each is believed when the next is asked for."""
        for entry in entries:
            yield entry
            self.believe(entry)

    def believe(self, entry: Entry) -> None:
        if entry.request is None:
            if entry.event.startswith(RUN):
                told = entry.told
                self.runs[told["run"]] = Told(entry.number, told.get("covers"))
        elif entry.event == "added":
            told = entry.told
            facts = (told.get("received"), told.get("due"), told.get("basis"), State.OPEN)
            self.requests[entry.request] = Told(entry.number, told.get("covers"), facts)
            self.keys.update((name, (told[name], entry.number)) for name in KEYS if name in told)
        elif entry.event in STATES:
            first = self.requests.get(entry.request, Told(0, None))
            self.requests[entry.request] = Told(
                entry.number, entry.told.get("covers"), (*first.facts[:-1], State(entry.event))
            )


def cover(rows: Iterable[Sequence[Any]]) -> str:
    """One hash of rows of the ledger."""
    return hashlib.sha256(json.dumps([*rows], ensure_ascii=False).encode()).hexdigest()
