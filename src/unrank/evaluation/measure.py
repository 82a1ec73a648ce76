"""Measures: reciprocal rank and nDCG@10 of lists, and the separation of two sets of values.

A list is a query's candidates with their scores; its targets are the documents that count. A tie is decided against
the ranker: a target that should rank high comes last among equals, one that should have fallen comes first.
A query whose targets are not in its list counts 0 and stays in the mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Scores = NDArray[np.floating]
Ranks = tuple[NDArray[np.int64], NDArray[np.int64]]
CUT = 10
FALSE_SHARE = 0.01
"""The share of non-members that may be taken for members."""


@dataclass(frozen=True)
class ScoredLists:
    """The entries of all lists, in any order: entry i belongs to list `owner[i]`."""

    owner: NDArray[np.int64]
    score: NDArray[np.float32]
    target: NDArray[np.bool_]
    lists: int
    gain: Floats | None = None
    """What each entry adds to nDCG if it is a target; `None` means 1 for all."""
    _orders: dict[bool, NDArray[np.int64]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What `order` has found: several measures ask for it."""

    @property
    def gains(self) -> Floats:
        """The gain of each entry: 0 if it is no target."""
        return np.where(self.target, 1.0 if self.gain is None else self.gain, 0.0)

    def order(self, ties_first: bool) -> NDArray[np.int64]:
        """Return the entries list by list, the best of each first. Of equals the lowest gain comes first, or, if ties
        count for the targets, the highest."""
        if ties_first not in self._orders:
            tie = -self.gains if ties_first else self.gains
            self._orders[ties_first] = np.lexsort((tie, -self.score, self.owner))
        return self._orders[ties_first]

    def ranks(self, ties_first: bool) -> Ranks:
        """Return the list and the rank of every target, the best of each list first."""
        order = self.order(ties_first)
        owner = self.owner[order]
        hit = self.target[order]
        return owner[hit], places(owner)[hit]


def reciprocal_ranks(lists: ScoredLists, ties_first: bool) -> Floats:
    """Return one over the rank of each list's first target.

    >>> owner, target = np.array([0, 0, 0, 1]), np.array([False, True, False, False])
    >>> reciprocal_ranks(ScoredLists(owner, np.array([3.0, 2.0, 1.0, 1.0], np.float32), target, 2), False).tolist()
    [0.5, 0.0]
    """
    owner, rank = lists.ranks(ties_first)
    values = np.zeros(lists.lists)
    first, where = np.unique(owner, return_index=True)
    values[first] = 1 / rank[where]
    return values


def ranks_among(
    pairs: NDArray[np.int64],
    own: Scores,
    negatives: NDArray[np.int64],
    others: Scores,
    ties_first: bool = True,
) -> NDArray[np.int64]:
    """Return the rank of each pair among the negatives of its query; a tie is decided for the pair if `ties_first`.

    >>> pairs, negatives = np.array([[0, 1], [2, 1]]), np.array([[0, 5], [0, 6], [2, 5]])
    >>> ranks_among(pairs, np.array([2.0, 1.0]), negatives, np.array([3.0, 2.0, 0.0])).tolist()
    [2, 1]
    >>> ranks_among(pairs, np.array([2.0, 1.0]), negatives, np.array([3.0, 2.0, 0.0]), ties_first=False).tolist()
    [3, 1]
    """
    order = np.lexsort((others, negatives[:, 0]))
    queries, others = negatives[order, 0], others[order]
    starts, ends = (np.searchsorted(queries, pairs[:, 0], side) for side in ("left", "right"))
    above = [
        end - start - np.searchsorted(others[start:end], mine, "right" if ties_first else "left")
        for start, end, mine in zip(starts, ends, own, strict=True)
    ]
    return np.array(above, np.int64) + 1


def reciprocal_of(ranks: Floats) -> Floats:
    """Return 1 over each rank; 0 stands for no rank, and stays 0.

    >>> reciprocal_of(np.array([1.0, 4.0, 0.0])).tolist()
    [1.0, 0.25, 0.0]
    """
    found: Floats = np.divide(1.0, ranks, out=np.zeros_like(ranks), where=ranks > 0)
    return found


def places(owner: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of each entry in its list, from 1, if the entries of a list follow each other.

    >>> places(np.array([0, 0, 2, 2, 2])).tolist()
    [1, 2, 1, 2, 3]
    """
    return np.arange(len(owner)) - np.searchsorted(owner, owner) + 1


def ndcg(lists: ScoredLists, ties_first: bool) -> Floats:
    """Return the discounted gain of the targets in the first ten places, as a share of the best possible.

    The gain of a target counts as it is, as in trec_eval's `ndcg_cut_10`.

    >>> lists = ScoredLists(np.zeros(3, np.int64), np.array([3, 2, 1], np.float32), np.array([True, False, True]), 1)
    >>> bool(np.isclose(ndcg(lists, False)[0], (1 + 1 / 2) / (1 + 1 / np.log2(3))))
    True
    """
    gains = lists.gains
    best_first = np.lexsort((-gains, lists.owner))
    reached, best = (_discounted(lists, order, gains) for order in (lists.order(ties_first), best_first))
    share: Floats = np.divide(reached, best, out=np.zeros(lists.lists), where=best > 0)
    return share


def _discounted(lists: ScoredLists, order: NDArray[np.int64], gains: Floats) -> Floats:
    """Return the discounted gain of each list in an order of its entries."""
    owner = lists.owner[order]
    place = places(owner)
    gained = np.where(place <= CUT, gains[order] / np.log2(place + 1), 0.0)
    found: Floats = np.bincount(owner, gained, lists.lists).astype(np.float64)
    return found


def area_under_curve(members: Floats, strangers: Floats) -> float:
    """Return how often a member is above a non-member, a tie counting half; 0.5 if nothing separates them.

    >>> area_under_curve(np.array([3.0, 1.0]), np.array([2.0, 1.0]))
    0.625
    """
    ordered = np.sort(strangers)
    below = np.searchsorted(ordered, members, "left") + np.searchsorted(ordered, members, "right")
    return float(below.mean() / 2 / len(strangers))


def found_at(members: Floats, strangers: Floats, false_share: float = FALSE_SHARE) -> float:
    """Return the share of members above the threshold that at most this share of non-members exceeds.

    >>> found_at(np.array([9.0, 5.0, 1.0]), np.array([6.0, 4.0, 2.0, 0.0]), 0.25)
    0.6666666666666666
    >>> found_at(np.array([9.0, 5.0, 1.0]), np.array([6.0, 4.0, 2.0, 0.0]), 0.01)
    0.3333333333333333
    """
    allowed = int(false_share * len(strangers))
    bar = np.sort(strangers)[len(strangers) - 1 - allowed]
    return float((members > bar).mean())
