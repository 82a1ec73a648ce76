"""The signature of a certificate: Ed25519 over its canonical form.

The JSON file has one canonical form, so a change of its form is found like a change of its content. It holds the hash
of the page beside it, so the signature covers both.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from unrank.desk.history_index import BrokenChain, Json
from unrank.desk.key import Key
from unrank.desk.ledger import Ledger
from unrank.disk import fits, new_folder, open_regular
from unrank.errors import BadFile, UnrankError

CERTIFICATE = "certificate.json"
PAGE = "certificate.html"
CHANGED = "changed after it was signed, so it shows nothing"
PROMISED = {"request": {"id": int}, "history": {"entries": int, "last_hash": str}}
"""The fields of every version of a certificate."""


@dataclass(frozen=True)
class SignedCertificate:
    """A certificate with a valid signature."""

    value: Json
    public_key: str


def sign_certificate(out: Path, value: Json, page: str, key: Key) -> None:
    """Sign a certificate, and write a folder with it and its page."""
    signed = {**value, "page": hashlib.sha256(page.encode()).hexdigest()}
    signature = key.signing.sign(_canonical(signed)).hex()
    with new_folder(out) as folder:
        (folder / CERTIFICATE).write_bytes(
            _canonical({"certificate": signed, "public_key": key.public, "signature": signature})
        )
        (folder / PAGE).write_bytes(page.encode())


def read_signed(place: Path, trusted: str | None = None) -> SignedCertificate:
    """Read the certificate in a folder; refuse one that was changed, or that another key than `trusted` signed."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    folder = place.parent if place.name in (CERTIFICATE, PAGE) else place
    path, page = folder / CERTIFICATE, folder / PAGE
    content = _bytes(path)
    try:
        value = json.loads(content)
        signed, public, signature = (value[name] for name in ("certificate", "public_key", "signature"))
        whole = content == _canonical({"certificate": signed, "public_key": public, "signature": signature})
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), _canonical(signed))
        whole &= bytes.fromhex(public).hex() == public and bytes.fromhex(signature).hex() == signature
        said = signed["page"]
    except (ValueError, KeyError, TypeError, RecursionError, InvalidSignature) as error:
        raise BadFile(path, CHANGED) from error
    if not whole:
        raise BadFile(path, CHANGED)
    if hashlib.sha256(_bytes(page)).hexdigest() != said:
        raise BadFile(page, CHANGED)
    if trusted is not None and public != trusted:
        raise BadFile(path, f"signed by another key ({public[:16]}…) than the one that is trusted ({trusted[:16]}…)")
    if not fits(signed, PROMISED):
        raise BadFile(path, "signed, but not a certificate of forgetting: it names no request")
    return SignedCertificate(signed, public)


def check_anchor(ledger: Ledger, signed: SignedCertificate) -> None:
    """Refuse a certificate whose history is not the beginning of the ledger's."""
    history = signed.value["history"]
    found = ledger.ask("SELECT hash FROM history WHERE number = ?", [history["entries"]])
    if found != [(history["last_hash"],)]:
        raise BrokenChain(
            f"{ledger.path}: its history is not the one that the certificate was made from: "
            f"entry {history['entries']} differs or is missing"
        )


def read_public_key(text: str) -> str:
    """Read a public key: 64 hex digits."""
    try:
        if len(bytes.fromhex(text)) == 32:
            return text.strip().lower()
    except ValueError:
        pass
    raise UnrankError(
        f"--public-key {text!r} is not a public key: give 64 hex digits, as 'unrank desk verify' prints them"
    )


def _canonical(value: Json) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def _bytes(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read()
    except FileNotFoundError as error:
        raise BadFile(path, "no such file; a certificate is a folder that 'unrank desk certificate' wrote") from error
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error
