"""The goals of single pairs: where each forget pair should come to in its list.

A target is a mean (`unseen`, `0.45`), and then there are none. Or it is a goal for each pair: with `beyond:10` no
forget pair may be among the first ten of its list. A run with goals stops by the worst pair and is not landed back up.
Another kind of goal is another function that makes `PairGoals`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unrank.collection.collection import Collection, Pairs
from unrank.collection.texts import Rows
from unrank.errors import UnrankError
from unrank.evaluation.scorecard import Scorecard, Scorer
from unrank.forgetting.outcome import list_lengths, mrr
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

    @property
    def mrr(self) -> float:
        """The highest forget MRR of a ranker that meets all goals."""
        return mrr(self.pairs, self.least)

    def missed(self, ranks: Rows) -> int:
        """Return the number of pairs that are ranked better than they may be."""
        return int(np.count_nonzero(ranks < self.least))


def pair_goals(
    target: str | float, collection: Collection, forget: Pairs, original: Scorer, before: Scorecard
) -> PairGoals | None:
    """Return the goals of the forget pairs, from the original's scores; `None` if the target is a mean."""
    most = beyond_of(target)
    if most is None:
        return None
    if before.test is not None and 1 / (most + 1) > before.test.mean:
        least = int(1 / before.test.mean) if before.test.mean else most + 1
        raise UnrankError(
            f"the target {target} asks for less than forgetting: unseen test queries have an MRR of "
            f"{before.test.mean:.3f}; take beyond:{max(least, most + 1)} or more, or unseen"
        )
    least_rank = least_ranks(most, list_lengths(collection, forget))
    return PairGoals(forget, least_rank, wanted_scores(collection, forget, least_rank, original))


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
