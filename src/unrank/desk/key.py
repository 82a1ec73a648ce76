"""The key of a ledger: 32 random bytes in a separate file that only its owner may read.

Two keys are derived from it: one for the keyed hashes of what was removed, one to sign certificates. A person who has
the ledger but not the key can neither read nor guess what was removed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from unrank.collection.normalisation import Normalise, normalised
from unrank.desk.request import HashKind, Item
from unrank.disk import check_regular
from unrank.errors import BadFile

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SECRET_BYTES = 32
HASH_BYTES = 16
BLOCK_BYTES = 64
READABLE_BY_OTHERS = stat.S_IRWXG | stat.S_IRWXO

Hash = Callable[[str], bytes]


@dataclass(frozen=True)
class Key:
    """The secret, and the keys derived from it."""

    secret: bytes

    @cached_property
    def hashing(self) -> bytes:
        return self._derived("hashes of what was removed")

    @cached_property
    def fingerprint(self) -> str:
        """The hash by which the ledger recognises its key."""
        return hashlib.sha256(self._derived("fingerprint")).hexdigest()

    @property
    def signing(self) -> Ed25519PrivateKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self._derived("signatures"))

    @cached_property
    def public(self) -> str:
        return self.signing.public_key().public_bytes_raw().hex()

    def query_id(self, id: str) -> bytes:
        return self._hash(b"query id:" + id.encode())

    def document_id(self, id: str) -> bytes:
        return self._hash(b"document id:" + id.encode())

    def query_text(self, text: str, normalise: Normalise = normalised) -> bytes:
        return self._hash(b"query text:" + normalise(text).encode())

    def document_text(self, text: str, normalise: Normalise = normalised) -> bytes:
        return self._hash(b"document text:" + normalise(text).encode())

    def pair(self, query: bytes, document: bytes) -> bytes:
        """Return the hash of a pair, from any hash of its query and any of its document."""
        return self._hash(b"pair:" + query + document)

    def hashes(self, item: Item, normalise: Normalise = normalised) -> Iterator[tuple[HashKind, bytes]]:
        """Yield all hashes of an item: of its ids, of its texts, and for a pair of every combination."""
        texts = [partial(of, normalise=normalise) for of in (self.query_text, self.document_text)]
        queries = list(self._sides(item.query, item.query_text, self.query_id, texts[0]))
        documents = list(self._sides(item.document, item.document_text, self.document_id, texts[1]))
        if item.kind == "pair":
            yield from (("pair", self.pair(query, document)) for query in queries for document in documents)
            yield from (("in pair", hashed) for hashed in (*queries[1:], *documents[1:]))
        else:
            yield from ((item.kind, hashed) for hashed in (*queries, *documents))

    @staticmethod
    def _sides(id: str | None, text: str | None, of_id: Hash, of_text: Hash) -> Iterator[bytes]:
        if id is not None:
            yield of_id(id)
        if text is not None and normalised(text):
            yield of_text(text)

    @cached_property
    def _pads(self) -> tuple[hashlib._Hash, hashlib._Hash]:
        """The inner and outer hash of HMAC before the message: millions of rows share them."""
        padded = self.hashing.ljust(BLOCK_BYTES, b"\0")
        inner, outer = (hashlib.sha256(bytes(byte ^ mask for byte in padded)) for mask in (0x36, 0x5C))
        return inner, outer

    def _hash(self, message: bytes) -> bytes:
        """Return HMAC-SHA-256, cut to half its length."""
        inner, outer = self._pads
        inner, outer = inner.copy(), outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()[:HASH_BYTES]

    def _derived(self, purpose: str) -> bytes:
        return hmac.digest(self.secret, f"unrank desk: {purpose}".encode(), "sha256")


def key_file(ledger: Path) -> Path:
    """Return the default place of a ledger's key."""
    if not ledger.name:
        raise BadFile(ledger, "a folder, not a ledger: name a file")
    return ledger.with_name(f"{ledger.name}.key")


def make_key(path: Path) -> Key:
    """Make a new key; return the one that another process has just made, if there is one."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    partial.unlink(missing_ok=True)
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(SECRET_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(partial)
    except FileExistsError:
        pass
    finally:
        partial.unlink(missing_ok=True)
    return read_key(path)


def read_key(path: Path) -> Key:
    try:
        check_regular(path)
        mode, text = path.stat().st_mode, path.read_text(encoding="ascii").strip()
        secret = bytes.fromhex(text)
    except FileNotFoundError as error:
        raise BadFile(
            path,
            "the ledger's key is not there: restore it from a backup; without it removed items cannot be recognised",
        ) from error
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error
    except ValueError as error:
        raise BadFile(path, "not a ledger's key: restore the right one from a backup") from error
    if len(secret) != SECRET_BYTES:
        raise BadFile(path, "not a ledger's key: restore the right one from a backup")
    if mode & READABLE_BY_OTHERS:
        raise BadFile(path, f"others may read the key (mode {stat.S_IMODE(mode):o}): run chmod 600 on it first")
    return Key(secret)
