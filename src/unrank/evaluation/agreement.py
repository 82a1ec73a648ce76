"""Agreement: how far two rankers agree, query by query and list by list.

Two rankers may have the same MRR and find different queries. So their reciprocal ranks are compared one by one, by
their mean distance and by Pearson's correlation, and their rankings of the same lists by rank-biased overlap (RBO).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from unrank.collection.texts import Rows
from unrank.evaluation.bootstrap import interval
from unrank.evaluation.measure import Floats, Scores, places
from unrank.record import Agreement

PERSISTENCE = 0.9
DEPTH = 50
"""The number of first places of a forget list that are kept. What comes below has .005 of the weight of RBO."""


@dataclass(frozen=True)
class ForgetFigures:
    """What a ranker does on the forget set, query by query in the order of rows. It names nothing."""

    reciprocal: Floats
    """The reciprocal rank of each forget query."""
    pair_scores: Floats | None = None
    """The score of each forget pair."""
    orders: Sequence[Rows] = ()
    """For each forget query the first places of its list: numbers of documents, counted within the list by rows."""


def agreement(one: ForgetFigures, other: ForgetFigures) -> Agreement:
    """Return how far two rankers agree on the same forget set."""
    return mean_agreement([(one, other)])


def noise_between(references: Sequence[ForgetFigures]) -> Agreement | None:
    """Return the mean agreement of two references, over all pairs of them; `None` if there is only one."""
    return mean_agreement([*combinations(references, 2)]) if len(references) > 1 else None


def mean_agreement(pairs: Sequence[tuple[ForgetFigures, ForgetFigures]]) -> Agreement:
    """Return the mean over pairs of rankers. A query counts once, with its mean over the pairs."""
    apart = np.mean([np.abs(one.reciprocal - other.reciprocal) for one, other in pairs], axis=0)
    low, high = interval(apart)
    related = [correlation(one.reciprocal, other.reciprocal) for one, other in pairs]
    overlaps = [mean_overlap(one.orders, other.orders) for one, other in pairs if one.orders and other.orders]
    return Agreement(len(apart), float(apart.mean()), low, high, _mean(related), _mean(overlaps))


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None


def distance(one: Floats, other: Floats) -> float:
    """Return the mean difference of two reciprocal ranks of a query, without its sign.

    >>> distance(np.array([1.0, 0.5]), np.array([0.5, 1.0]))  # the same MRR
    0.5
    """
    return float(np.abs(one - other).mean())


def correlation(one: Floats, other: Floats) -> float | None:
    """Return Pearson's correlation; `None` if one of the two does not vary, as with a single query.

    >>> round(correlation(np.array([1.0, 0.5, 0.0]), np.array([0.0, 0.5, 1.0])), 9)
    -1.0
    >>> correlation(np.array([1.0, 0.5]), np.array([1.0, 1.0])) is None
    True
    """
    if not all(np.ptp(values) > 0 for values in (one, other)):
        return None
    first, second = (values - values.mean() for values in (one, other))
    first, second = (values / np.sqrt((values**2).sum()) for values in (first, second))
    return float(np.clip((first * second).sum(), -1.0, 1.0))


def order_of(scores: Scores, depth: int | None = None) -> Rows:
    """Return the numbers of a list's documents, the best first; of equals the one that comes first in the list.

    >>> order_of(np.array([1.0, 3.0, 3.0])).tolist()
    [1, 2, 0]
    """
    return np.argsort(-scores, kind="stable")[:depth]


def rank_biased_overlap(one: Rows, other: Rows, persistence: float = PERSISTENCE) -> float:
    """Return the extrapolated rank-biased overlap (Webber, Moffat and Zobel 2010) of two rankings; 1 if they agree.

    Each is given by its first places, of which as many are compared as both have, k; a whole ranking is the best. The
    share of common documents at each depth d up to k has the weight `(1 - p) p^(d - 1)`; the share at k also has the
    weight of all below, `p^k`.

    >>> rank_biased_overlap(np.array([0, 1, 2]), np.array([0, 2, 1]), 0.5)  # 1/2·1 + 1/4·1/2 + 1/8·1 + 1/8·1
    0.875
    >>> rank_biased_overlap(np.array([0, 1]), np.array([0, 2]), 0.5)  # 1/2·1 + 1/4·1/2 + 1/4·1/2
    0.75
    """
    size = min(len(one), len(other))
    _, first, second = np.intersect1d(one[:size], other[:size], assume_unique=True, return_indices=True)
    later = np.maximum(first, second)  # a document is common from the later of its two places on
    depth = np.arange(1, size + 1)
    common = np.cumsum(np.bincount(later, minlength=size)) / depth
    weights = (1 - persistence) * persistence ** (depth - 1)
    return float((weights * common).sum() + common[-1] * persistence**size)


def mean_overlap(ones: Sequence[Rows], others: Sequence[Rows]) -> float:
    """Return the mean rank-biased overlap over lists."""
    return float(np.mean([rank_biased_overlap(*pair) for pair in zip(ones, others, strict=True)]))


def kendall_tau(one: Scores, other: Scores) -> float:
    """Return Kendall's τ-b: concordant less discordant pairs of documents, as a share that allows for ties.

    It is 0 if one of the two rankings ties all documents.

    >>> kendall_tau(np.array([3.0, 2.0, 1.0]), np.array([3.0, 1.0, 2.0]))  # two pairs agree, one does not
    0.3333333333333333
    """
    first, second = (np.sign(np.subtract.outer(scores, scores)) for scores in (one, other))
    untied = float(np.count_nonzero(first)) * float(np.count_nonzero(second))
    return float((first * second).sum() / np.sqrt(untied)) if untied else 0.0


def list_ranks(scores: Scores, owner: NDArray[np.int64]) -> Rows:
    """Return the rank of each entry in its list, from 1; of equals the first has the better one.

    Entries of one owner form a list.

    >>> list_ranks(np.array([1.0, 3.0, 3.0, 5.0]), np.array([4, 4, 4, 9])).tolist()
    [3, 1, 2, 1]
    """
    order = np.lexsort((-scores, owner))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = places(owner[order])
    return ranks


def overlaps(one: Rows, other: Rows, owner: NDArray[np.int64], persistence: float = PERSISTENCE) -> Floats:
    """Return the rank-biased overlap of each list's two rankings, all lists at once; ranks count from 1.

    >>> overlaps(np.array([1, 2, 3]), np.array([1, 3, 2]), np.zeros(3, np.int64), 0.5).round(6).tolist()
    [0.875]
    """
    _, member, sizes = np.unique(owner, return_inverse=True, return_counts=True)
    depth = np.arange(1, sizes.max(initial=0) + 1)
    up_to = np.cumsum(np.pad((1 - persistence) * persistence ** (depth - 1) / depth, (1, 0)))
    later = np.maximum(one, other)  # a document is common from the later of its two places on
    shares = up_to[sizes[member]] - up_to[later - 1]
    found: Floats = np.bincount(member, shares, len(sizes)) + persistence**sizes
    return found


def agreements(one: Scores, other: Scores, owner: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return rank-biased overlap and τ of each list. Entries of one owner form a list and lie side by side."""
    cuts = np.flatnonzero(np.diff(owner)) + 1
    lists = zip(np.split(one, cuts), np.split(other, cuts), strict=True)
    alike = overlaps(list_ranks(one, owner), list_ranks(other, owner), owner)
    return alike, np.array([kendall_tau(*both) for both in lists])
