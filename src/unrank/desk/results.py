"""The result of each request: where its own pairs were ranked before a run, and where they are ranked after it.

A run can reach its target on average while one request has not moved. So every request is judged by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unrank.audit.comparison import MIN_QUERIES
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import named
from unrank.desk.item import Item, removal_of
from unrank.errors import count
from unrank.evaluation.scorecard import Scorer
from unrank.forgetting.target import tolerance


@dataclass(frozen=True)
class RequestResult:
    """The ranks of one request's training pairs before and after a run. It names no query and no document."""

    queries: int
    ranks_before: list[int]
    ranks_after: list[int]
    """In the same order: pair by pair."""
    mrr_before: float
    mrr_after: float
    target: float
    trained_anew: bool = False
    """Whether the new ranker was trained without the request: then it has no target to reach."""

    @property
    def had_to_move(self) -> bool:
        return self.mrr_before > self.target and not self.trained_anew

    @property
    def unmoved(self) -> int:
        """The number of pairs that were ranked above the target and are ranked no lower now."""
        pairs = zip(self.ranks_before, self.ranks_after, strict=True)
        return sum(1 / before > self.target and after <= before for before, after in pairs)

    @property
    def forgotten(self) -> bool:
        """Whether the request moved as far as it had to.

        The mean of fewer than `MIN_QUERIES` queries says little, so there each pair counts by itself.
        """
        if not self.had_to_move or not self.unmoved:
            return True
        return self.queries >= MIN_QUERIES and self.mrr_after <= self.target + tolerance(self.queries)

    @property
    def words(self) -> str:
        change = f"MRR {self.mrr_before:.3f} before, {self.mrr_after:.3f} after, target {self.target:.3f}"
        if self.forgotten:
            return change
        pairs = count(len(self.ranks_before), "pair")
        return f"{self.unmoved} of {pairs} had to fall and did not; {change}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "pairs": len(self.ranks_before), "unmoved": self.unmoved, "forgotten": self.forgotten}


def request_results(
    collection: Collection,
    items: Mapping[int, Sequence[Item]],
    before: Scorer,
    after: Scorer,
    target: float,
    trained_anew: bool,
) -> dict[int, RequestResult]:
    """Rank the training pairs of every request by the scores before and after."""
    pairs_of = {id: collection.pairs[named(collection, removal_of(these))[0]] for id, these in items.items()}
    pairs = np.unique(np.concatenate(list(pairs_of.values())), axis=0)
    ranks = np.stack([pair_ranks(collection, pairs, score) for score in (before, after)])
    keys = collection.pair_keys(pairs)
    order = np.argsort(keys)

    def result(own: Pairs) -> RequestResult:
        then, now = ranks[:, order[np.searchsorted(keys, collection.pair_keys(own), sorter=order)]]
        queries = len(np.unique(own[:, 0]))
        return RequestResult(
            queries, then.tolist(), now.tolist(), _mrr(own, then), _mrr(own, now), target, trained_anew
        )

    return {id: result(own) for id, own in pairs_of.items()}


def pair_ranks(collection: Collection, pairs: Pairs, score: Scorer) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Rank each pair among its query's negatives; a tie is decided for the pair."""
    negatives = collection.negatives.pairs(np.unique(pairs[:, 0]))
    scores = score(np.concatenate([pairs, negatives]))
    own, others = scores[: len(pairs)], scores[len(pairs) :]
    order = np.lexsort((others, negatives[:, 0]))
    queries, others = negatives[order, 0], others[order]
    starts, ends = (np.searchsorted(queries, pairs[:, 0], side) for side in ("left", "right"))
    above = [
        end - start - np.searchsorted(others[start:end], mine, "right")
        for start, end, mine in zip(starts, ends, own, strict=True)
    ]
    return np.array(above, np.int64) + 1


def _mrr(pairs: Pairs, ranks: np.ndarray[Any, np.dtype[np.int64]]) -> float:
    """Return the mean over queries of the reciprocal rank of each query's best pair."""
    queries, owner = np.unique(pairs[:, 0], return_inverse=True)
    best = np.zeros(len(queries))
    np.maximum.at(best, owner, 1 / ranks)
    return float(best.mean())
