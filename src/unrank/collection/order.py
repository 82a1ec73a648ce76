"""A random order that is the same on every machine and whatever the order of the input."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def hashed_order(ids: Sequence[str], salt: str) -> list[int]:
    """Positions of `ids`, sorted by a hash of salt and id.

    >>> hashed_order(["a", "b", "c"], "0"), hashed_order(["c", "a", "b"], "0")
    ([0, 2, 1], [1, 0, 2])
    """
    return sorted(range(len(ids)), key=lambda i: hashlib.sha256(f"{salt}:{ids[i]}".encode()).digest())
