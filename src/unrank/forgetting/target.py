"""The target: the forget MRR at which a run stops.

`unseen` is the original ranker's MRR on the test queries: how well it ranks what it was never shown. It needs no
retraining. `half-unseen` is half of that; any number in (0, 1] is itself.
"""

from __future__ import annotations

import math

from unrank.errors import UnknownName, UnrankError
from unrank.evaluation.scorecard import Scorecard

NAMES = {"unseen": 1.0, "half-unseen": 0.5}


def check_target(target: str | float) -> None:
    """Refuse a target that cannot be one, before any work is done for it."""
    if isinstance(target, str) and target in NAMES:
        return
    try:
        value = float(target)
    except ValueError as error:
        raise UnknownName("target", str(target), [*NAMES, "or a number in (0, 1]"]) from error
    if not (math.isfinite(value) and 0 < value <= 1):
        raise UnrankError(f"a target of {target} is outside (0, 1]: it is the MRR that forgotten pairs should fall to")


def resolve_target(target: str | float, before: Scorecard) -> float:
    """The number that a target means for a ranker with this scorecard."""
    if target not in NAMES:
        return float(target)
    if before.test is None:
        raise UnrankError(
            f"the target {target!r} is the MRR on test queries and the collection has none: "
            "give a number, or import it with --test-split or --test-share"
        )
    return NAMES[str(target)] * before.test.mean


def tolerance(queries: int) -> float:
    """How near to the target counts as on it, for so many forget queries.

    >>> tolerance(1000), tolerance(50)
    (0.003, 0.01)
    """
    return max(0.003, 0.5 / queries)
