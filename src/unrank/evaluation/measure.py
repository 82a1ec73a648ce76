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


@dataclass(frozen=True)
class ScoredLists:
    """The entries of all lists, in any order: entry i belongs to list `owner[i]`."""

    owner: NDArray[np.int64]
    score: NDArray[np.float32]
    target: NDArray[np.bool_]
    lists: int
    _ranks: dict[bool, Ranks] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What `ranks` has found: several measures ask for it."""

    def ranks(self, ties_first: bool) -> Ranks:
        """Return the list and the rank of every target, the best of each list first."""
        if ties_first not in self._ranks:
            self._ranks[ties_first] = self._find_ranks(ties_first)
        return self._ranks[ties_first]

    def _find_ranks(self, ties_first: bool) -> Ranks:
        tie = ~self.target if ties_first else self.target
        order = np.lexsort((tie, -self.score, self.owner))
        owner = self.owner[order]
        start = np.searchsorted(owner, np.arange(self.lists))
        rank = np.arange(len(order)) - start[owner] + 1
        hit = self.target[order]
        return owner[hit], rank[hit]


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


def ndcg(lists: ScoredLists, ties_first: bool) -> Floats:
    """Return the discounted gain of the targets in the first ten places, as a share of the best possible.

    >>> lists = ScoredLists(np.zeros(3, np.int64), np.array([3, 2, 1], np.float32), np.array([True, False, True]), 1)
    >>> bool(np.isclose(ndcg(lists, False)[0], (1 + 1 / 2) / (1 + 1 / np.log2(3))))
    True
    """
    owner, rank = lists.ranks(ties_first)
    gain = np.where(rank <= CUT, 1 / np.log2(rank + 1), 0.0)
    reached = np.bincount(owner, gain, lists.lists)
    ideal = np.cumsum([0.0, *(1 / np.log2(np.arange(1, CUT + 1) + 1))])
    best = ideal[np.minimum(np.bincount(owner, minlength=lists.lists), CUT)]
    share: Floats = np.divide(reached, best, out=np.zeros(lists.lists), where=best > 0)
    return share


def area_under_curve(members: Floats, strangers: Floats) -> float:
    """Return how often a member is above a non-member, a tie counting half; 0.5 if nothing separates them.

    >>> area_under_curve(np.array([3.0, 1.0]), np.array([2.0, 1.0]))
    0.625
    """
    ordered = np.sort(strangers)
    below = np.searchsorted(ordered, members, "left") + np.searchsorted(ordered, members, "right")
    return float(below.mean() / 2 / len(strangers))


def found_at(members: Floats, strangers: Floats, false_share: float = 0.01) -> float:
    """Return the share of members above the threshold that at most this share of non-members exceeds.

    >>> found_at(np.array([9.0, 5.0, 1.0]), np.array([6.0, 4.0, 2.0, 0.0]), 0.25)
    0.6666666666666666
    >>> found_at(np.array([9.0, 5.0, 1.0]), np.array([6.0, 4.0, 2.0, 0.0]), 0.01)
    0.3333333333333333
    """
    allowed = int(false_share * len(strangers))
    bar = np.sort(strangers)[len(strangers) - 1 - allowed]
    return float((members > bar).mean())
