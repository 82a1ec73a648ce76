"""The seal: an Ed25519 signature over a certificate, and the check that not one byte of it was changed.

The JSON file is written in one way only, so that a change in its form is found like a change in its content. It
carries the hash of the page beside it, and so the signature covers both.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unrank.desk.chain import BrokenChain
from unrank.desk.key import Key
from unrank.desk.ledger import Ledger
from unrank.disk import fits, new_folder
from unrank.errors import BadFile, UnrankError

CERTIFICATE = "certificate.json"
PAGE = "certificate.html"
CHANGED = "changed after it was signed, so it shows nothing"
PROMISED = {"request": {"id": int}, "history": {"entries": int, "last_hash": str}}
"""What every certificate says, whatever version it is of."""


@dataclass(frozen=True)
class Sealed:
    """A certificate whose signature holds."""

    value: dict[str, Any]
    public_key: str


def write_sealed(out: Path, value: dict[str, Any], page: str, key: Key) -> None:
    """Write a folder with the certificate and its page."""
    signed = {**value, "page": hashlib.sha256(page.encode()).hexdigest()}
    signature = key.signing.sign(_written(signed)).hex()
    with new_folder(out) as folder:
        (folder / CERTIFICATE).write_bytes(
            _written({"certificate": signed, "public_key": key.public, "signature": signature})
        )
        (folder / PAGE).write_bytes(page.encode())


def read_sealed(place: Path, trusted: str | None = None) -> Sealed:
    """The certificate in a folder, or an error: changed, or signed by another than the `trusted` public key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    folder = place.parent if place.name in (CERTIFICATE, PAGE) else place
    path, page = folder / CERTIFICATE, folder / PAGE
    content = _bytes(path)
    try:
        value = json.loads(content)
        signed, public, signature = (value[name] for name in ("certificate", "public_key", "signature"))
        whole = content == _written({"certificate": signed, "public_key": public, "signature": signature})
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), _written(signed))
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
        raise BadFile(path, "signed, but no certificate of forgetting: it does not say of which request it is")
    return Sealed(signed, public)


def check_anchor(ledger: Ledger, sealed: Sealed) -> None:
    """The history that a certificate was made from must be the beginning of the ledger's."""
    told = sealed.value["history"]
    found = ledger.ask("SELECT hash FROM history WHERE number = ?", [told["entries"]])
    if found != [(told["last_hash"],)]:
        raise BrokenChain(
            f"{ledger.path}: its history is not the one that the certificate was made from: "
            f"entry {told['entries']} differs or is missing"
        )


def read_public_key(text: str) -> str:
    """A public key as it was given: 64 hex digits."""
    try:
        if len(bytes.fromhex(text)) == 32:
            return text.strip().lower()
    except ValueError:
        pass
    raise UnrankError(f"--public-key {text!r} is none: it has 64 hex digits, as 'unrank desk verify' prints them")


def _written(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise BadFile(path, "no such file; a certificate is a folder that 'unrank desk certificate' wrote") from error
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error
