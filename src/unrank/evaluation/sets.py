"""The four sets that every ranker is measured on."""

from __future__ import annotations

from collections.abc import Mapping

SETS = ("forget", "entangled", "disjoint", "test")
KEPT = SETS[1:]


def shares_kept(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What each kept set has left of its MRR; one that had none is left out.

    >>> shares_kept({"forget": 0.8, "disjoint": 0.5, "test": 0.0}, {"forget": 0.1, "disjoint": 0.4, "test": 0.0})
    {'disjoint': 0.8}
    """
    return {name: after[name] / before[name] for name in KEPT if before.get(name, 0.0) > 0}
