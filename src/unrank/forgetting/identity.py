"""What makes two runs the same: a checkpoint of one may be taken up by the other, and by no other."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.engine.checkpoint import digest
from unrank.methods.base import Method
from unrank.rankers.base import Ranker
from unrank.record import versions


def identity(
    job: str, ranker: Ranker, collection: Collection, removal: Removal | None, method: Method, seed: int, **more: Any
) -> dict[str, Any]:
    """All that the weights at the end follow from, by the names that users know; files by their hashes."""
    named = {
        "job": job,
        "ranker": ranker.kind,
        "weights": weights_hash(ranker),
        "collection": collection.fingerprint,
        "removal": removal_hash(removal) if removal is not None else None,
        "method": method.name,
        **asdict(method),
        "seed": seed,
        **more,
        **versions(),
    }
    as_stored: dict[str, Any] = json.loads(json.dumps(named))
    return as_stored


def weights_hash(ranker: Ranker) -> str:
    return digest(dict(ranker.named_parameters()))


def removal_hash(removal: Removal) -> str:
    return hashlib.sha256(json.dumps(asdict(removal)).encode()).hexdigest()
