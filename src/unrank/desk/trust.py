"""Trust in certificates: which keys signed them, how a signing key is replaced, and which certificates are revoked.

All of it is in the history of the ledger. A certificate is right if the key signed it that was valid when its history
ended, so those of a former key stay right. Trust comes from a public key that the receiver was given, or from the
receiver's own ledger; never from a ledger that came with the certificate.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from unrank.desk.counter import Counter
from unrank.desk.history_index import ROTATED, Entry, Json
from unrank.desk.key import finish_rotation, next_signing_file, read_ledger_secret
from unrank.desk.ledger import Ledger
from unrank.errors import UnrankError
from unrank.secret import make_secret

CERTIFIED = "certificate"
REVOKED = "certificate revoked"


class Reason(StrEnum):
    """The reason of a revocation. It is one of these words, so that nobody writes into it what is to be erased."""

    key = "key-stolen"
    ranker = "ranker-not-in-use"
    mistake = "mistake"
    replaced = "replaced"
    other = "other"


@dataclass(frozen=True)
class Signer:
    """A signing key, and the entries of the history at which it was valid."""

    public: str
    first: int
    last: int | None = None
    """`None` for the present key."""


@dataclass(frozen=True)
class Revocation:
    """A certificate that no longer holds."""

    certificate: str
    """Its hash, as the history recorded it."""
    reason: str
    at: str
    entry: int

    def __str__(self) -> str:
        return f"on {self.at[:10]}, entry {self.entry} of the history, because: {self.reason}"


def signers(ledger: Ledger) -> list[Signer]:
    """Return the signing keys of a ledger, the first one first."""
    found, first = [], 0
    for entry in _entries(ledger, ROTATED):
        found.append(Signer(entry.values["before"], first, entry.number - 1))
        first = entry.number
    return [*found, Signer(ledger.about("public_key"), first)]


def signer_at(ledger: Ledger, entries: int) -> str:
    """Return the public key that was valid when the history had this many entries."""
    return next(signer.public for signer in signers(ledger) if signer.last is None or entries <= signer.last)


def is_own(ledger: Ledger, key: Path) -> bool:
    """Tell if a ledger is the user's own: its key is at hand, and this machine has used it before.

    An attacker can put a ledger with its key beside his certificate, but he cannot make this machine know it.
    """
    return os.access(key, os.R_OK) and Counter.read(ledger.key(key, new_here=False).fingerprint) is not None


def rotate(ledger: Ledger, place: Path) -> str:
    """Replace the signing key; return the new public key. Old and new key sign the change, if the old one is there.

    A process may die at any moment: the new key waits beside the old one until the ledger has recorded it.
    """
    coming = next_signing_file(place)
    with ledger.transaction():
        key = ledger.key(place)
        coming.unlink(missing_ok=True)
        make_secret(coming)
        new, before = replace(key, seed=read_ledger_secret(coming)), ledger.about("public_key")
        statement = rotation_statement(key.fingerprint, before, new.public)
        by_before = key.signing.sign(statement).hex() if key.seed is not None else None
        by_new = new.signing.sign(statement).hex()
        ledger.ask("UPDATE about SET value = ? WHERE name = 'public_key'", [new.public])
        ledger.write(ROTATED, before=before, public_key=new.public, signed_by_before=by_before, signed_by_new=by_new)
    finish_rotation(place, new.public)
    return new.public


def rotations(ledger: Ledger) -> list[Json]:
    """Return the changes of the signing key with their signatures, the first one first."""
    return [entry.values for entry in _entries(ledger, ROTATED)]


def rotation_statement(ledger: str, before: str, after: str) -> bytes:
    """Return the words that both keys sign."""
    return f"unrank: in ledger {ledger} the signing key {after} follows {before}\n".encode()


def revoke(ledger: Ledger, certificate: str, reason: Reason) -> Entry:
    """Record that a certificate, named by its hash in the history, no longer holds."""
    with ledger.transaction():
        issued = {entry.values.get("content") for entry in _entries(ledger, CERTIFIED)}
        if certificate not in issued:
            raise UnrankError(f"{ledger.path}: no certificate of this ledger has the hash {certificate!r}")
        if any(one.certificate == certificate for one in revocations(ledger)):
            raise UnrankError(f"{ledger.path}: that certificate is revoked already")
        return ledger.write(REVOKED, certificate=certificate, reason=reason.value)


def revocations(ledger: Ledger) -> list[Revocation]:
    """Return the certificates that were revoked, the first one first."""
    found: list[tuple[Entry, Json]] = [(entry, entry.values) for entry in _entries(ledger, REVOKED)]
    return [Revocation(values["certificate"], values["reason"], entry.at, entry.number) for entry, values in found]


def revocation_of(ledger: Ledger, certificate: str) -> Revocation | None:
    """Return the revocation of a certificate; `None` if it was not revoked."""
    return next((one for one in revocations(ledger) if one.certificate == certificate), None)


def _entries(ledger: Ledger, event: str) -> list[Entry]:
    rows = ledger.ask("SELECT * FROM history WHERE event = ? ORDER BY number", [event])
    return [Entry(*row) for row in rows]
