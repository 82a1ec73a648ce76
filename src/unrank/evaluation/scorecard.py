"""The scorecard: how well a ranker does on the forget, entangled, disjoint and test pairs.

For a set A each query with a pair in A is measured in its list without its relevant documents that are not in A:
other right answers neither help nor stand in the way. Outside the forget set the list is also without the removed
documents. `forget_full` is the paper's figure, with the other relevant documents left in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition
from unrank.collection.texts import Rows
from unrank.evaluation.interval import interval, paired_interval
from unrank.evaluation.measure import Floats, ScoredLists, ndcg, reciprocal_ranks

SETS = ("forget", "entangled", "disjoint", "test")

Scorer = Callable[[Pairs], NDArray[np.float32]]
"""Whatever gives pairs their scores: a ranker through the engine, or BM25."""


@dataclass(frozen=True)
class Measured:
    """One set's figures: means over queries, and the reciprocal rank of each query."""

    queries: Rows
    reciprocal: Floats
    mean: float
    low: float
    high: float
    ndcg: float

    def to_json(self) -> dict[str, float | int]:
        return {
            "mrr": self.mean,
            "low": self.low,
            "high": self.high,
            "ndcg@10": self.ndcg,
            "queries": len(self.queries),
        }

    def change_since(self, before: Measured) -> tuple[float, float]:
        """The interval of the change of the mean, query by query."""
        return paired_interval(before.reciprocal, self.reciprocal)


@dataclass(frozen=True)
class Scorecard:
    """A set without a query is None: neither 0 nor 1."""

    forget: Measured | None
    entangled: Measured | None
    disjoint: Measured | None
    test: Measured | None
    forget_full: Measured | None

    def to_json(self) -> dict[str, Any]:
        sets = {name: getattr(self, name) for name in (*SETS, "forget_full")}
        return {name: measured and measured.to_json() for name, measured in sets.items()}


@dataclass(frozen=True)
class ListScores:
    """Scores of the whole lists of some queries."""

    pairs: Pairs
    scores: NDArray[np.float32]


class Judge:
    """Measures rankers on one collection and one partition (of which there may be none)."""

    def __init__(self, collection: Collection, parts: Partition | None) -> None:
        self._collection = collection
        nothing = np.empty((0, 2), np.int64)
        self.parts = parts or Partition(nothing, nothing, collection.pairs)
        self.kept_tests = collection.test_pairs[~np.isin(collection.test_pairs[:, 1], self.parts.documents)]

    def scorecard(self, score: Scorer) -> Scorecard:
        """All five figures, scoring each list once."""
        trained = np.concatenate([self.parts.forget, self.parts.entangled, self.parts.disjoint])[:, 0]
        lists = self._score(score, np.union1d(trained, self.kept_tests[:, 0]))
        return Scorecard(
            self._measure(lists, self.parts.forget, forget=True),
            self._measure(lists, self.parts.entangled),
            self._measure(lists, self.parts.disjoint),
            self._measure(lists, self.kept_tests),
            self._measure(lists, self.parts.forget, forget=True, full=True),
        )

    def forget_mrr(self, score: Scorer) -> float:
        """What steers a run: MRR of the forget pairs alone, from the lists that can change it."""
        return float(self.reciprocals(score, self.parts.forget, forget=True).mean())

    def earlier_mrr(self, score: Scorer) -> float | None:
        """MRR of the pairs that were forgotten before, measured as forget pairs are."""
        if not len(self.parts.earlier):
            return None
        return float(self.reciprocals(score, self.parts.earlier, forget=True).mean())

    def mrr(self, score: Scorer, pairs: Pairs) -> float:
        """MRR of kept pairs."""
        return float(self.reciprocals(score, pairs).mean())

    def reciprocals(self, score: Scorer, pairs: Pairs, forget: bool = False) -> Floats:
        """The reciprocal rank of each query that has one of these pairs, in the order of the queries' rows."""
        return reciprocal_ranks(*self.lists(score, pairs, forget))

    def lists(self, score: Scorer, pairs: Pairs, forget: bool = False) -> tuple[ScoredLists, bool]:
        """The lists in which these pairs are measured, and whether a tie is decided for the target."""
        return self._lists(self._score(score, np.unique(pairs[:, 0]), only=pairs), pairs, forget)

    def watch(self, score: Scorer, queries: int) -> dict[str, float]:
        """MRR of what must stay, on so many queries of each set: enough to see it move."""
        sets = {"entangled": self.parts.entangled, "disjoint": self.parts.disjoint, "test": self.kept_tests}
        samples = {name: pairs[np.isin(pairs[:, 0], np.unique(pairs[:, 0])[:queries])] for name, pairs in sets.items()}
        return {name: self.mrr(score, pairs) for name, pairs in samples.items() if len(pairs)}

    def _score(self, score: Scorer, queries: Rows, only: Pairs | None = None) -> ListScores:
        """The lists of these queries; `only` leaves out relevant documents but these."""
        if only is None:
            pairs = self._collection.list_pairs(queries)
        else:
            pairs = np.concatenate([only, self._collection.negatives.pairs(queries)])
        return ListScores(pairs, score(pairs))

    def _measure(self, scored: ListScores, pairs: Pairs, forget: bool = False, full: bool = False) -> Measured | None:
        if not len(pairs):
            return None
        lists, ties_first = self._lists(scored, pairs, forget, full)
        reciprocal = reciprocal_ranks(lists, ties_first)
        low, high = interval(reciprocal)
        mean_ndcg = float(ndcg(lists, ties_first).mean())
        return Measured(np.unique(pairs[:, 0]), reciprocal, float(reciprocal.mean()), low, high, mean_ndcg)

    def _lists(self, scored: ListScores, pairs: Pairs, forget: bool, full: bool = False) -> tuple[ScoredLists, bool]:
        """The lists in which `pairs` are measured, and whether a tie is decided for the target."""
        queries = np.unique(pairs[:, 0])
        target = np.isin(self._collection.pair_keys(scored.pairs), self._collection.pair_keys(pairs))
        relevant = np.isin(
            self._collection.pair_keys(scored.pairs),
            self._collection.pair_keys(self._collection.relevant.pairs(queries)),
        )
        keep = np.isin(scored.pairs[:, 0], queries) & (target | ~relevant | full)
        if not forget:
            keep &= ~np.isin(scored.pairs[:, 1], self.parts.documents)
        owner = np.searchsorted(queries, scored.pairs[keep, 0])
        return ScoredLists(owner, scored.scores[keep], target[keep], len(queries)), forget
