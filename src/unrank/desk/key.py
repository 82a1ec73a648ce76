"""The keys of a ledger: two secrets of 32 random bytes, each in a file of its own that only its owner may read.

One is for keyed hashes: of what was removed, and of the head of the history. A person who has the ledger but not this
key can neither read nor guess what was removed, nor rebuild the history. The other signs certificates. Neither can be
derived from the other, so the signing key can be replaced, or kept on another machine.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from unrank.collection.normalisation import Normalise, normalised
from unrank.desk.request import HashKind, Item
from unrank.errors import BadFile, UnrankError
from unrank.secret import make_secret, read_secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

HASH_BYTES = 16
BLOCK_BYTES = 64

Hash = Callable[[str], bytes]


@dataclass(frozen=True)
class Key:
    """The secret of a ledger with the keys derived from it, and its signing key."""

    secret: bytes
    seed: bytes | None = None
    """The secret of the signing key; `None` if it is not at hand."""

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

        if self.seed is None:
            raise UnrankError("the ledger's signing key is not there: restore its file from a backup")
        return Ed25519PrivateKey.from_private_bytes(self.seed)

    @cached_property
    def public(self) -> str:
        """The public key of the signing key, in hex."""
        return self.signing.public_key().public_bytes_raw().hex()

    @property
    def derived_seed(self) -> bytes:
        """The secret of the signing key in ledgers of earlier versions."""
        return self._derived("signatures")

    def of_head(self, number: int, hashed: str) -> str:
        """Return the keyed hash of the head of a history: of the number and the hash of its last entry."""
        derived = self._derived("head of the history")
        return hmac.digest(derived, f"{number}:{hashed}".encode(), "sha256").hex()

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


def signing_file(key: Path) -> Path:
    """Return the place of the signing key, beside the other key.

    >>> signing_file(Path("desk.ledger.key")).name
    'desk.ledger.signing-key'
    """
    return key.with_name(f"{key.name.removesuffix('.key')}.signing-key")


def make_key(path: Path) -> Key:
    """Make new keys; return those that another process has just made, if there are any."""
    make_secret(path)
    make_secret(signing_file(path))
    return read_key(path)


def next_signing_file(key: Path) -> Path:
    """Return the place of a new signing key until the ledger has recorded it."""
    place = signing_file(key)
    return place.with_name(f"{place.name}.next")


def finish_rotation(key: Path, public: str) -> None:
    """Put a new signing key in its place if the ledger has recorded it, in case a process died in between."""
    coming = next_signing_file(key)
    try:
        if coming.exists() and Key(b"", read_ledger_secret(coming)).public == public:
            coming.replace(signing_file(key))
    except (BadFile, FileNotFoundError):
        if coming.exists():  # else another process has just done it
            raise


def read_key(path: Path) -> Key:
    """Read the keys. The signing key may be missing: only certificates need it."""
    signing = signing_file(path)
    return Key(read_ledger_secret(path), read_ledger_secret(signing) if signing.exists() else None)


def read_ledger_secret(path: Path) -> bytes:
    """Read the secret of one of the keys."""
    try:
        return read_secret(path, "not a ledger's key: restore the right one from a backup")
    except FileNotFoundError as error:
        raise BadFile(
            path,
            "the ledger's key is not there: restore it from a backup; without it removed items cannot be recognised",
        ) from error
