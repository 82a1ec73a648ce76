"""The verification of a certificate: against the trusted keys, the model in hand, and the history of the ledger."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from unrank.audit.evaluation import contradictions
from unrank.audit.verdict import Verdict
from unrank.desk.history_index import BrokenChain, Json
from unrank.desk.ledger import Ledger
from unrank.desk.request import State
from unrank.desk.signature import SignedCertificate, read_signed
from unrank.desk.trust import is_own, revocation_of, signer_at
from unrank.disk import sha256
from unrank.errors import UnrankError, count, listed

UNKNOWN = (
    "the signer is unknown: anyone can sign, and a key that comes with a certificate shows nothing; "
    "give the public key that its owner published"
)


@dataclass(frozen=True)
class FileDifferences:
    """The files of a folder that are not as a certificate says."""

    changed: Sequence[str] = ()
    missing: Sequence[str] = ()
    extra: Sequence[str] = ()

    @property
    def number(self) -> int:
        return len(self.changed) + len(self.missing) + len(self.extra)

    def __str__(self) -> str:
        parts = {"changed": self.changed, "missing": self.missing, "not in the certificate": self.extra}
        return "; ".join(f"{what}: {listed(names)}" for what, names in parts.items() if names)


@dataclass(frozen=True)
class Verification:
    """All that was found about a certificate whose signature is valid."""

    place: Path
    signed: SignedCertificate
    trusted_by: str | None
    """How the signer is known; `None` if it is not."""
    ranker: Path | None = None
    differences: FileDifferences | None = None
    entries: int | None = None
    """The number of entries of the history that holds the certificate."""
    revoked: str | None = None
    """When and why it was revoked, by the history."""

    @property
    def contradictions(self) -> list[str]:
        """Statements about the audits that do not follow from the certificate's own figures."""
        found = []
        for ranker in self.signed.value["rankers"] if self.signed.version >= 3 else ():
            audited = ranker["audited"]
            if audited and audited["evaluation"]:
                verdicts = {name: test.get("verdict") for name, test in audited["tests"].items()}
                found += contradictions(audited["evaluation"], audited["verdict"], verdicts)
            if audited and audited["verdict"] == Verdict.REMEMBERED and ranker.get("state") == State.FORGOTTEN:
                found.append(f"the state {State.FORGOTTEN!s}, where the audit says {Verdict.REMEMBERED!s}")
        return found

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the certificate, apart from an unknown signer."""
        wrong = self.differences.number if self.differences else 0
        return self.revoked is None and not wrong and not self.contradictions

    def lines(self) -> list[str]:
        """Return the findings in words: first what cannot be known, then what is wrong."""
        key, state = self.signed.public_key, self.signed.value.get("state", "of version 1")
        what = f"request {self.signed.request}, {state}"
        lines = [UNKNOWN] if self.trusted_by is None else []
        lines += [f"{self.place}: REVOKED: {self.revoked}"] if self.revoked else []
        if wrong := self.contradictions:
            lines.append(f"{self.place}: signed, but it CONTRADICTS itself: {listed(wrong)}")
        if self.differences is not None:
            same = "every file is the one that was certified"
            differs = f"NOT the ranker that was certified: {self.differences}"
            lines.append(f"{self.ranker}: {differs if self.differences.number else same}")
        whose = f"signed by {key}" + (f", known from {self.trusted_by}" if self.trusted_by else "")
        return [*lines, f"{self.place}: no byte was changed since it was signed; {what}; {whose}"]

    def to_json(self) -> Json:
        files = None if self.differences is None else {"same": not self.differences.number, **asdict(self.differences)}
        return {
            "signer": {"key": self.signed.public_key, "known_from": self.trusted_by},
            "revoked": self.revoked,
            "contradictions": self.contradictions,
            "ranker": files,
            "request": self.signed.request,
            "state": self.signed.value.get("state"),
            "certificate_version": self.signed.version,
            "history_entries": self.entries,
        }


def verify_certificate(
    place: Path, known: str | None = None, ranker: Path | None = None, ledger: tuple[Ledger, Path] | None = None
) -> Verification:
    """Verify a certificate. A key is trusted if it is `known`, or if it is that of the user's own ledger.

    `ledger` is a ledger with the place of its key: its history must hold the certificate.
    """
    trusted = {known: "the public key that was given"} if known is not None else {}
    entries = revoked = None
    if ledger is not None:
        desk, key = ledger
        own = is_own(desk, key)
        desk.verify()
        if own and known is None:
            trusted = {signer_at(desk, read_signed(place).value["history"]["entries"]): str(desk.path)}
        signed = read_signed(place, trusted or None)
        check_anchor(desk, signed)
        entries, found = desk.head()[0], revocation_of(desk, signed.digest)
        revoked = str(found) if found else None
    signed = read_signed(place, trusted or None)
    differences = None if ranker is None else compare_files(signed, ranker)
    return Verification(place, signed, trusted.get(signed.public_key), ranker, differences, entries, revoked)


def compare_files(signed: SignedCertificate, folder: Path) -> FileDifferences:
    """Compare every file below a folder with those of a certified ranker: of several, the one that is most alike."""
    if not signed.subjects:
        raise UnrankError(
            f"this certificate names no file of a ranker, so {folder} cannot be compared with it: "
            "certificates of version 1, and those of rankers from a hub, do not"
        )
    if not folder.is_dir():
        raise UnrankError(f"--ranker {folder}: no such folder; a certificate is about a folder with a ranker's files")
    there = _hashes(folder)
    named = [files for files in signed.rankers if files]
    return min((_differences(files, there) for files in named), key=lambda found: found.number)


def check_anchor(ledger: Ledger, signed: SignedCertificate) -> None:
    """Refuse a certificate whose history is not the beginning of the ledger's, or that the ledger never recorded."""
    history = signed.value["history"]
    found = ledger.ask("SELECT hash FROM history WHERE number = ?", [history["entries"]])
    if found != [(history["last_hash"],)]:
        raise BrokenChain(
            f"{ledger.path}: its history is not the one that the certificate was made from: "
            f"entry {history['entries']} differs or is missing"
        )
    written = [entry for entry in ledger.history(signed.request) if entry.event == "certificate"]
    if not any(entry.values.get("content") == signed.digest for entry in written):
        raise BrokenChain(
            f"{ledger.path}: its history does not hold this certificate, only "
            f"{count(len(written), 'other certificate')} of request {signed.request}"
        )


def _differences(files: Mapping[str, str], there: Mapping[str, str | None]) -> FileDifferences:
    return FileDifferences(
        changed=[name for name in files if name in there and there[name] != files[name]],
        missing=[name for name in files if name not in there],
        extra=[name for name in there if name not in files],
    )


def _hashes(folder: Path) -> dict[str, str | None]:
    """Return the SHA-256 of everything below a folder that is not a folder; `None` if it is no regular file."""
    found: dict[str, str | None] = {}
    for here, inner, names in os.walk(folder):
        linked = [name for name in inner if (Path(here) / name).is_symlink()]
        for path in (Path(here) / name for name in sorted([*names, *linked])):
            found[path.relative_to(folder).as_posix()] = sha256(path) if path.is_file() else None
    return found
