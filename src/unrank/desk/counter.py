"""The counter of a ledger: the last entry of its history that this machine has seen, kept outside the ledger.

It lies in the owner's state folder. A ledger whose tail was cut off, or in whose place an old copy was put, does not
hold that entry any more. The counter is written after the ledger. So a process that dies in between leaves a counter
that is behind: the history goes on from its entry, and the next command brings it up to date.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from unrank.owner import recall, remember

KIND = "ledger"
PLACE = "ledger-at"


@dataclass(frozen=True)
class Counter:
    """The number and the hash of an entry."""

    number: int
    hash: str

    @classmethod
    def read(cls, ledger: str) -> Counter | None:
        """Return the counter of the ledger with this fingerprint; `None` if this machine does not know the ledger."""
        number, _, hashed = (recall(KIND, ledger) or "").partition(" ")
        return cls(int(number), hashed) if number.isdecimal() else None

    def keep(self, ledger: str) -> bool:
        """Write the counter; return whether that was possible. A counter that another process moved on is left."""
        known = Counter.read(ledger)
        if known is not None and known.number > self.number:
            return True
        return self.replace(ledger)

    def replace(self, ledger: str) -> bool:
        """Write the counter, even if it goes back."""
        return remember(KIND, ledger, f"{self.number} {self.hash}")

    def refusal(self, number: int, found: str | None) -> str | None:
        """Say why a history that ends at entry `number` is refused; `found` is its hash of this counter's entry."""
        if number < self.number:
            return (
                f"its history ends at entry {number}, but this machine has seen entry {self.number}: "
                "its end was cut off, or an old copy was put back"
            )
        if found != self.hash:
            return (
                f"entry {self.number} of its history is not the one that this machine has seen: "
                "the history was rebuilt, or this is another copy of the ledger that went its own way"
            )
        return None


def known_at(place: Path) -> str | None:
    """Return the fingerprint of the ledger that this machine knows at a place; `None` if it knows none there."""
    return recall(PLACE, str(place.resolve()))


def know_at(place: Path, ledger: str) -> None:
    """Remember which ledger is at a place."""
    if known_at(place) != ledger:
        remember(PLACE, str(place.resolve()), ledger)
