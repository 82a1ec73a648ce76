"""The head of a ledger's history: its last entry, under a keyed hash.

Without the key nobody can rebuild the history after a cut. The counter of this machine shows if an old copy, whose head
is right, was put back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hmac import compare_digest
from pathlib import Path
from typing import Any

from unrank.desk.counter import Counter
from unrank.desk.history_index import RESTORE, START, BrokenChain
from unrank.desk.key import Key

Ask = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]
KEYED = "SELECT value FROM about WHERE name = 'head'"
ACCEPT = "accept this one with 'unrank desk restored'"


class Head:
    """The head of an open ledger."""

    def __init__(self, path: Path, ask: Ask) -> None:
        self._path = path
        self._ask = ask

    @property
    def last(self) -> tuple[int, str]:
        """The number and the hash of the last entry."""
        last = self._ask("SELECT number, hash FROM history ORDER BY number DESC LIMIT 1", [])
        return (int(last[0][0]), str(last[0][1])) if last else (0, START)

    @property
    def is_keyed(self) -> bool:
        """Whether there is a keyed hash. In ledgers of earlier versions there is none."""
        return bool(self._ask(KEYED, []))

    def write(self, key: Key) -> None:
        """Write the keyed hash of the last entry."""
        self._ask("INSERT OR REPLACE INTO about VALUES ('head', ?)", [key.of_head(*self.last)])

    def check(self, key: Key) -> None:
        """Refuse a history whose head was not written with the key."""
        for (written,) in self._ask(KEYED, []):
            if not compare_digest(written.encode(), key.of_head(*self.last).encode()):
                raise BrokenChain(
                    f"{self._path}: the head of its history was not written with its key: entries were cut out, "
                    f"cut off or rebuilt; {RESTORE}"
                )

    def check_counter(self, counter: Counter | None) -> None:
        """Refuse a history that does not hold the entry of the counter."""
        if counter is None:
            return
        number = self.last[0]
        found = self._ask("SELECT hash FROM history WHERE number = ?", [counter.number]) or [(START,)]
        if why := counter.refusal(number, found[0][0]):
            raise BrokenChain(f"{self._path}: {why}; restore the newest copy, or {ACCEPT}")

    def keep_counter(self, key: Key) -> bool:
        """Move the counter to the last entry; return whether this machine can keep one."""
        return Counter(*self.last).keep(key.fingerprint)
