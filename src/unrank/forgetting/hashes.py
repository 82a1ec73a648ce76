"""What was removed, as salted hashes: whoever has an id can tell that it is among them, and nobody can read it off."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.collection.texts import Rows
from unrank.record import HashedIds, RemovedHashes

AT_ONCE = 65_536
"""So many ids are in memory at a time."""


def hashed(removal: Removal) -> RemovedHashes:
    """Return a removal as counts and salted hashes of its ids."""
    salt = secrets.token_hex(16)
    salted = _salted(salt)

    def hashes(items: Sequence[object]) -> HashedIds:
        return HashedIds(len(items), tuple(sorted(_hash(salted, _written(item)) for item in items)))

    return RemovedHashes(salt, hashes(removal.queries), hashes(removal.documents), hashes(removal.pairs))


def recognised(collection: Collection, removed: Sequence[RemovedHashes]) -> Removal:
    """Those of a collection's queries, documents and pairs whose hashes stand in the records of earlier runs."""
    return Removal.union(recognised_of_each(collection, removed))


def recognised_of_each(collection: Collection, removed: Sequence[RemovedHashes]) -> list[Removal]:
    """The same, run by run."""
    queries, documents, pairs = collection.queries, collection.documents, collection.pairs
    found = (
        _found(removed, "queries", queries.ids, len(queries)),
        _found(removed, "documents", documents.ids, len(documents)),
        _found(removed, "pairs", lambda rows: collection.pair_ids(pairs[rows]), len(pairs)),
    )
    return [Removal(*kinds) for kinds in zip(*found, strict=True)]


def _found(
    removed: Sequence[RemovedHashes], kind: str, items_of: Callable[[Rows], Sequence[Any]], size: int
) -> list[list[Any]]:
    """Of each run those of so many items whose hashes it has. What is hashed is made once for all runs."""
    wanted = [(_salted(run.salt), set(getattr(run, kind).hashes)) for run in removed]
    found: list[list[Any]] = [[] for _ in removed]
    for start in range(0, size if any(hashes for _, hashes in wanted) else 0, AT_ONCE):
        items = items_of(np.arange(start, min(start + AT_ONCE, size)))
        written = [_written(item) for item in items]
        for (salted, hashes), of_run in zip(wanted, found, strict=True):
            if hashes:
                of_run += [item for item, text in zip(items, written, strict=True) if _hash(salted, text) in hashes]
    return found


def _salted(salt: str) -> hashlib._Hash:
    return hashlib.sha256(f"{salt}:".encode())


def _written(item: object) -> bytes:
    return json.dumps(item).encode()


def _hash(salted: hashlib._Hash, written: bytes) -> str:
    whole = salted.copy()
    whole.update(written)
    return whole.hexdigest()[:32]
