"""The target: the forget MRR at which a run stops.

`unseen` is the original ranker's MRR on the test queries: how well it ranks what it was never shown. It needs no
retraining. `half-unseen` is half of that; `50%` is half of what the forget MRR was; any number in (0, 1] is itself.
"""

from __future__ import annotations

import math

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.partition import Partition
from unrank.errors import UnknownName, UnrankError
from unrank.evaluation.scorecard import Scorecard

NAMES = {"unseen": 1.0, "half-unseen": 0.5}


def check_target(target: str | float, collection: Collection, parts: Partition) -> None:
    """Refuse a target that cannot be one, before any work is done for it."""
    if target in NAMES:
        if np.isin(collection.test_pairs[:, 1], parts.documents).all():
            raise UnrankError(
                f"the target {target!r} is the MRR on test queries, and none is there or none is left: "
                "give a number, or import the collection with --test-split or --test-share"
            )
        return
    value = _number(target)
    if not (math.isfinite(value) and 0 < value <= 1):
        raise UnrankError(f"a target of {target} is outside (0, 1]: it is the MRR that forgotten pairs should fall to")


def resolve_target(target: str | float, before: Scorecard) -> float:
    """The number that a target means for a ranker with this scorecard."""
    if target not in NAMES:
        assert before.forget is not None
        return _number(target) * (before.forget.mean if _is_share(target) else 1.0)
    assert before.test is not None
    return NAMES[str(target)] * before.test.mean


def tolerance(queries: int) -> float:
    """How near to the target counts as on it, for so many forget queries.

    Half of what one query can change, within limits: a single query that still stands first is not half forgotten.

    >>> tolerance(1000), tolerance(50), tolerance(1)
    (0.003, 0.01, 0.05)
    """
    return max(0.003, min(0.5 / queries, 0.05))


def _is_share(target: str | float) -> bool:
    return isinstance(target, str) and target.endswith("%")


def _number(target: str | float) -> float:
    """
    >>> _number("0.45"), _number("45%")
    (0.45, 0.45)
    """
    try:
        return float(str(target).removesuffix("%")) / (100 if _is_share(target) else 1)
    except ValueError as error:
        raise UnknownName("target", str(target), [*NAMES, "a number in (0, 1]", "a share such as 50%"]) from error
