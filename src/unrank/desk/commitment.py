"""A keyed commitment to what a request names: with the owner's key it shows that a certificate is about a text.

It is made from the keyed hashes of the ledger, which stay when the request is closed. Each certificate has its own
salt, so two certificates about the same text have nothing in common. Without the key nobody can test a guess.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Iterator
from typing import TypedDict

from unrank.collection.normalisation import normalised, normalised_before_version_4
from unrank.desk.key import HASH_BYTES, Key
from unrank.desk.request import HashKind

SALT_BYTES = 16
PARTS: dict[HashKind, str] = {
    "query": "a query that the request names",
    "document": "a document that the request names",
    "in pair": "a part of a pair that the request names",
}


class Commitment(TypedDict):
    """A commitment, as a certificate holds it."""

    salt: str
    of: list[str]


def commit(key: Key, hashes: Iterable[tuple[HashKind, bytes]]) -> Commitment:
    """Return a commitment to keyed hashes, with a new salt."""
    salt = secrets.token_hex(SALT_BYTES)
    return {"salt": salt, "of": sorted(_committed(key, salt, kind, hashed) for kind, hashed in hashes)}


def matched(key: Key, commitment: Commitment, *, text: str | None = None, id: str | None = None) -> list[str]:
    """Return, in words, which parts of the request are this text or id; none if the commitment holds neither."""
    held = set(commitment["of"])
    candidates = [*([] if text is None else _of_text(key, text)), *([] if id is None else _of_id(key, id))]
    found = (kind for kind, hashed in candidates if _committed(key, commitment["salt"], kind, hashed) in held)
    return [PARTS[kind] for kind in dict.fromkeys(found)]


def _of_text(key: Key, text: str) -> Iterator[tuple[HashKind, bytes]]:
    for normalise in (normalised, normalised_before_version_4):
        query, document = key.query_text(text, normalise), key.document_text(text, normalise)
        yield from (("query", query), ("document", document), ("in pair", query), ("in pair", document))


def _of_id(key: Key, id: str) -> Iterator[tuple[HashKind, bytes]]:
    yield from (("query", key.query_id(id)), ("document", key.document_id(id)))


def _committed(key: Key, salt: str, kind: HashKind, hashed: bytes) -> str:
    message = f"certificate {salt} {kind}:".encode() + hashed
    return hmac.digest(key.hashing, message, "sha256")[:HASH_BYTES].hex()
