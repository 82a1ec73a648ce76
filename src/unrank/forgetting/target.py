"""The target: what a run stops at. It is a forget MRR, or a place for each forget pair.

`places` is no mean: each forget pair goes to its own place, where a ranker that never saw it puts it. `unseen` is
another name for it. `test-mrr` is the original ranker's MRR on the test queries: how well it ranks what it was never
shown. `half-unseen` is half of that. `50%` is half of the forget MRR before. A number in (0, 1] is itself. With a
retrained ranker there are the paper's three: `destination-1` is its forget MRR, `destination-2` its MRR on the test
queries, and `destination-3` half of that. `beyond:10` is no mean: no forget pair may be among the first ten of its
list.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.partition import Partition
from unrank.collection.texts import Rows
from unrank.errors import UnknownName, UnrankError
from unrank.evaluation.scorecard import Scorecard
from unrank.record import SetSummary

PLACES = "places"
ALSO_PLACES = "unseen"
TEST_MRR = "test-mrr"
OF_TEST = {TEST_MRR: 1.0, "half-unseen": 0.5, "destination-2": 1.0, "destination-3": 0.5}
OF_REFERENCE = ("destination-1", "destination-2", "destination-3")
BEYOND = "beyond:"
NEAR = 0.05
"""How far the reciprocal rank of a pair may be above that of its place, and the mean above that of all places."""
SPREAD = 0.84
"""The share of unseen pairs that stand no higher above their place than its spread: one standard deviation."""


def check_target_name(target: str | float) -> None:
    """Refuse a target that no ranker can have."""
    if target in (PLACES, ALSO_PLACES, *OF_TEST, *OF_REFERENCE) or beyond_of(target) is not None:
        return
    value = _number(target)
    if not (math.isfinite(value) and 0 < value <= 1):
        raise UnrankError(f"a target of {target} is outside (0, 1]: it is the MRR that forgotten pairs should fall to")


def check_target(
    target: str | float, collection: Collection, partition: Partition, has_reference: bool = False
) -> None:
    """Refuse a target that cannot be measured on this collection, before any work is done for it."""
    check_target_name(target)
    check_measurable(collection, partition)
    if target in OF_REFERENCE and not has_reference:
        raise UnrankError(f"the target {target!r} is measured on a retrained ranker: name it with --reference")
    if target in OF_TEST and np.isin(collection.test_pairs[:, 1], partition.documents).all():
        raise no_test_queries(target)


def check_measurable(collection: Collection, partition: Partition) -> None:
    """Refuse a removal whose queries have no other candidates: its forget MRR would always be 1."""
    collection.check_candidates()
    if not collection.negatives.counts[np.unique(partition.forget[:, 0])].any():
        raise UnrankError("no forget query has a candidate beside its relevant documents, so forgetting has no measure")


def is_of_request(target: str) -> bool:
    """Return whether the number of a target depends on the pairs that are forgotten.

    >>> [is_of_request(target) for target in ("places", "50%", "destination-1", "test-mrr", "0.4", "beyond:10")]
    [True, True, True, False, False, False]
    """
    return target in (PLACES, OF_REFERENCE[0]) or _is_share(target)


def beyond_of(target: str | float | None) -> int | None:
    """Return the K of a target `beyond:K`; `None` for any other target.

    >>> beyond_of("beyond:10"), beyond_of("unseen"), beyond_of(0.5)
    (10, None, None)
    """
    if not isinstance(target, str) or not target.startswith(BEYOND):
        return None
    number = target.removeprefix(BEYOND)
    if not (number.isascii() and number.isdigit() and int(number[:10]) > 0 and len(number) < 10):
        raise UnrankError(f"the target {target!r} needs a whole number of 1 or more, such as beyond:10")
    return int(number)


def least_ranks(most: int, lengths: Rows) -> Rows:
    """Return the best rank that each pair may have under `beyond:K`, from the length of its list.

    A list of K or fewer entries has no place beyond K, so its pair goes to the end.

    >>> least_ranks(10, np.array([101, 11, 8])).tolist()
    [11, 11, 8]
    """
    return np.minimum(most + 1, lengths)


def resolve_target(target: str | float, before: Scorecard, reference: Scorecard | None = None) -> float:
    """Return the number that a target means, from the scorecards of the ranker and of a retrained one."""
    if (most := beyond_of(target)) is not None:
        return 1 / (most + 1)
    measured = reference if target in OF_REFERENCE else before
    assert measured is not None
    if target in OF_TEST:
        assert measured.test is not None
        return OF_TEST[str(target)] * measured.test.mean
    assert measured.forget is not None
    if target in OF_REFERENCE:
        return measured.forget.mean
    return _number(target) * (measured.forget.mean if _is_share(target) else 1.0)


def default_mrr(target: str | float, goal: float, before: Scorecard, reference_known: bool) -> float | None:
    """Return the highest forget MRR that counts as forgotten; `None` if there is no test query to measure it on.

    It is the MRR of what the ranker was never shown. A destination counts if its reference is known to be one.
    """
    if target in (PLACES, TEST_MRR, "half-unseen") or (target in OF_REFERENCE and reference_known):
        return goal
    if beyond_of(target) is not None:  # less than forgetting was refused
        return goal if before.test is not None else None
    return before.test.mean if before.test is not None else None


def destination(name: str, retrained: Mapping[str, SetSummary]) -> float:
    """Return the MRR of a destination, from the metrics in the record of a retrained ranker."""
    measured = retrained.get("test" if name in OF_TEST else "forget")
    if measured is None:
        raise no_test_queries(name)
    return float(OF_TEST.get(name, 1.0) * measured.mrr)


def no_test_queries(target: str | float) -> UnrankError:
    return UnrankError(
        f"the target {target!r} is the MRR on test queries, and none is there or none is left: "
        "give a number, or import the collection with --test-split or --test-share"
    )


def tolerance(queries: int) -> float:
    """Return the distance from the target that counts as reached, for a number of forget queries.

    It is half of the most that one query can change the mean by, between 0.003 and 0.05.

    >>> tolerance(1000), tolerance(50), tolerance(1)
    (0.003, 0.01, 0.05)
    """
    return max(0.003, min(0.5 / queries, 0.05))


def _is_share(target: str | float) -> bool:
    return isinstance(target, str) and target.endswith("%")


def _number(target: str | float) -> float:
    """Return the number that a target is written as.

    >>> _number("0.45"), _number("45%")
    (0.45, 0.45)
    """
    try:
        return float(str(target).removesuffix("%")) / (100 if _is_share(target) else 1)
    except ValueError as error:
        raise UnknownName(
            "target",
            str(target),
            [
                PLACES,
                *dict.fromkeys([*OF_TEST, *OF_REFERENCE]),
                "a number in (0, 1]",
                "a share such as 50%",
                "beyond:10",
            ],
        ) from error
