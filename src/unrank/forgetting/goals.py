"""The goals of single pairs: where each forget pair should come to in its list.

A target is a mean (`test-mrr`, `0.45`), and then there are none. Or it is a goal for each pair: its place
(`places.py`), or with `beyond:10` no forget pair may be among the first ten of its list. A run with goals stops by them
and is not landed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unrank.collection.collection import Collection, Pairs
from unrank.collection.texts import Rows
from unrank.errors import UnrankError
from unrank.evaluation.bootstrap import MIN_QUERIES
from unrank.evaluation.measure import Floats
from unrank.evaluation.scorecard import Scorecard, Scorer
from unrank.forgetting.outcome import best_reciprocals, list_lengths, mrr
from unrank.forgetting.target import beyond_of, least_ranks

Scores = NDArray[np.float32]
SLACK = 0.3
"""A pair is pulled this far below the best place that it may have, as a share of the range of its list: the rest of the
list moves a little too. With less it comes down slowly; if it is pulled to the lowest score of the list, more is lost
(docs/log.md)."""


@dataclass(frozen=True)
class PairGoals:
    """For each forget pair, in the order of the partition, the best rank it may have and the score it is pulled to."""

    pairs: Pairs
    least: Rows
    wanted: Scores
    """On the scale of the original's scores, which the rest of the list keeps."""

    pulls_up: ClassVar[bool] = False
    """Whether a pair that is below its wanted score is pulled up to it."""
    may_exceed: ClassVar[int] = 0
    """The number of pairs that may be ranked better than they may."""

    @property
    def mrr(self) -> float:
        """The highest forget MRR of a ranker that meets all goals."""
        return mrr(self.pairs, self.least)

    @property
    def few(self) -> bool:
        """Whether there are too few queries for a mean to say much."""
        return len(np.unique(self.pairs[:, 0])) < MIN_QUERIES

    @property
    def reciprocals(self) -> Floats:
        """For each forget query the highest reciprocal rank of a ranker that meets all goals."""
        return best_reciprocals(self.pairs, self.least)

    def missed(self, ranks: Rows) -> int:
        """Return the number of pairs that are ranked better than they may be, less those that may."""
        return max(0, int(np.count_nonzero(ranks < self.least)) - self.may_exceed)

    def left(self, ranks: Rows) -> int:
        """Return the number of pairs that a run has to move."""
        return self.missed(ranks)

    def distance(self, ranks: Rows) -> float:
        """Return how far pairs with these ranks are from their goals, apart from how many miss them."""
        return mrr(self.pairs, ranks)


def pair_goals(
    target: str | float, collection: Collection, forget: Pairs, original: Scorer, before: Scorecard
) -> PairGoals | None:
    """Return the goals of the forget pairs, from the original's scores; `None` if the target is a mean."""
    most = beyond_of(target)
    if most is None:
        return None
    check_beyond(target, before)
    least_rank = least_ranks(most, list_lengths(collection, forget))
    return PairGoals(forget, least_rank, wanted_scores(collection, forget, least_rank, original))


def check_beyond(target: str | float, before: Scorecard) -> None:
    """Refuse a target `beyond:K` that asks for less than forgetting: unseen pairs stand beyond K by themselves."""
    most = beyond_of(target)
    if most is not None and before.test is not None and 1 / (most + 1) > before.test.mean:
        least = int(1 / before.test.mean) if before.test.mean else most + 1
        raise UnrankError(
            f"the target {target} asks for less than forgetting: unseen test queries have an MRR of "
            f"{before.test.mean:.3f}; take beyond:{max(least, most + 1)} or more, or places"
        )


def wanted_scores(collection: Collection, forget: Pairs, least: Rows, original: Scorer) -> Scores:
    """Return for each pair a score at which it has the rank that it may have at best, or a little lower."""
    negatives = collection.negatives.pairs(np.unique(forget[:, 0]))
    scores = original(negatives)
    order = np.lexsort((-scores, negatives[:, 0]))
    queries, ordered = negatives[order, 0], scores[order]
    starts, ends = (np.searchsorted(queries, forget[:, 0], side) for side in ("left", "right"))
    alone = starts == ends  # without a negative there is nothing to fall below
    starts, ends = np.where(alone, 0, starts), np.where(alone, 1, ends)
    last = np.clip(starts + least - 2, starts, ends - 1)  # it must be below this negative
    spread = ordered[starts] - ordered[ends - 1]
    return np.where(alone, original(forget), ordered[last] - SLACK * spread).astype(np.float32)
