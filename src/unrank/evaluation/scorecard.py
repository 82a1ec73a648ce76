"""The scorecard: how well a ranker does on the forget, entangled, disjoint and test pairs.

For a set A, each query with a pair in A is measured on its list without those of its relevant documents that are not
in A, so other right answers neither help nor hinder. Outside the forget set the list is also without the removed
documents. `forget_full` is the paper's figure: the other relevant documents stay in the list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unrank.collection.collection import Collection, Pairs
from unrank.collection.options import check_whole
from unrank.collection.partition import Partition
from unrank.collection.texts import Rows
from unrank.evaluation.agreement import DEPTH, ForgetFigures, order_of
from unrank.evaluation.bootstrap import interval, paired_interval
from unrank.evaluation.measure import Floats, ScoredLists, ndcg, ranks_among, reciprocal_ranks
from unrank.evaluation.substitutes import measure_substitutes
from unrank.record import MEASURED, SETS, SetSummary, SubstituteSummary

MOST_QUERIES = 3_000
"""The most queries of a kept set that are measured; 0 means all. The forget set is always measured whole."""

Scorer = Callable[[Pairs], NDArray[np.float32]]
"""A function from pairs to scores: a ranker through the engine, or BM25."""


@dataclass(frozen=True)
class SetMetrics:
    """The figures of one set: means over queries, and the reciprocal rank of each query."""

    queries: Rows
    reciprocal: Floats
    mean: float
    low: float
    high: float
    ndcg: float

    @property
    def summary(self) -> SetSummary:
        return SetSummary(self.mean, self.low, self.high, len(self.queries), self.ndcg)

    def change_since(self, before: SetMetrics) -> tuple[float, float]:
        """Return the paired interval of the change of the mean."""
        return paired_interval(before.reciprocal, self.reciprocal)


@dataclass(frozen=True)
class Scorecard:
    """The figures of the four sets. A set without a query is `None`, neither 0 nor 1."""

    forget: SetMetrics | None
    entangled: SetMetrics | None
    disjoint: SetMetrics | None
    test: SetMetrics | None
    forget_full: SetMetrics | None
    pair_ranks: Rows | None = None
    """The rank of each forget pair among the negatives of its query, in the order of the partition."""
    pair_scores: NDArray[np.float32] | None = None
    """The score of each forget pair, in the order of the partition."""
    forget_orders: tuple[Rows, ...] = ()
    """The first places of each forget query's whole list, as `ForgetFigures` has them."""
    substitutes: SubstituteSummary | None = None
    """Where the substitutes of removed documents stand; `None` if there are none."""

    @property
    def mrrs(self) -> dict[str, float]:
        """The MRR of each of the four sets that has a query."""
        return {name: measured.mean for name in SETS if (measured := getattr(self, name)) is not None}

    @property
    def forget_figures(self) -> ForgetFigures | None:
        """The forget set query by query; `None` if nothing is forgotten."""
        if self.forget is None:
            return None
        scores = None if self.pair_scores is None else self.pair_scores.astype(np.float64)
        return ForgetFigures(self.forget.reciprocal, scores, self.forget_orders)

    @property
    def summary(self) -> dict[str, SetSummary]:
        """The metrics of each set that has a query."""
        return {name: measured.summary for name in MEASURED if (measured := getattr(self, name)) is not None}

    def to_json(self) -> dict[str, dict[str, float | None] | None]:
        found = self.summary
        sets = {name: found[name].to_json() if name in found else None for name in MEASURED}
        return sets | ({"substitutes": asdict(self.substitutes)} if self.substitutes else {})


@dataclass(frozen=True)
class ListScores:
    """The scores of whole lists."""

    pairs: Pairs
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class MeasuredLists:
    """The lists in which a set is measured."""

    queries: Rows
    pairs: Pairs
    """Query and document of each entry."""
    lists: ScoredLists
    ties_first: bool
    """Whether a target comes first among equals."""

    @property
    def reciprocal(self) -> Floats:
        return reciprocal_ranks(self.lists, self.ties_first)


class Evaluator:
    """Measures rankers on a collection and a partition of it. Without a partition nothing is forgotten."""

    def __init__(self, collection: Collection, partition: Partition | None, measure: int = MOST_QUERIES) -> None:
        check_whole("measure", measure, 0)
        self._collection, self._most = collection, measure
        nothing = np.empty((0, 2), np.int64)
        self.partition = partition or Partition(nothing, nothing, collection.pairs)

    @cached_property
    def queries(self) -> Rows:
        """The queries whose lists a scorecard needs."""
        return np.unique(np.concatenate([self.partition.forget, *self.measured.values()])[:, 0])

    @cached_property
    def set_queries(self) -> dict[str, int]:
        """The number of queries of each kept set, measured or not."""
        return {name: len(np.unique(pairs[:, 0])) for name, pairs in self.kept.items()}

    @cached_property
    def kept(self) -> dict[str, Pairs]:
        """The pairs of each kept set."""
        tests = self._collection.test_pairs
        tests = tests[~np.isin(tests[:, 1], self.partition.documents)]
        return {"entangled": self.partition.entangled, "disjoint": self.partition.disjoint, "test": tests}

    @cached_property
    def measured(self) -> dict[str, Pairs]:
        """The measured pairs of each kept set. The choice of queries does not depend on the removal."""
        order = np.random.default_rng(0).permutation(len(self._collection.queries))
        return {name: _first_queries(pairs, order, self._most) for name, pairs in self.kept.items()}

    def scorecard(self, score: Scorer) -> Scorecard:
        """Measure all five figures, scoring each list once."""
        return self.scorecard_and_lists(score)[0]

    def scorecard_and_lists(self, score: Scorer) -> tuple[Scorecard, dict[str, MeasuredLists]]:
        """Measure all five figures, and return the lists in which each set that has a query is measured."""
        scored, forget = self._score(score, self.queries), self.partition.forget
        ranks, scores, orders = self._pair_figures(scored) if len(forget) else (None, None, ())
        lists = {name: self._lists(scored, pairs) for name, pairs in self.measured.items() if len(pairs)}
        if len(forget):
            lists["forget"] = self._lists(scored, forget, forget=True)
            lists["forget_full"] = self._lists(scored, forget, forget=True, full=True)
        card = Scorecard(
            **{name: _measure(lists[name]) if name in lists else None for name in MEASURED},
            pair_ranks=ranks,
            pair_scores=scores,
            forget_orders=orders,
            substitutes=measure_substitutes(score, self._collection, self.partition),
        )
        return card, lists

    def forget_mrr(self, score: Scorer) -> float:
        """Return the MRR of the forget pairs, scoring only the lists that it depends on."""
        return float(self.reciprocals(score, self.partition.forget, forget=True).mean())

    def forget_figures(self, score: Scorer) -> ForgetFigures:
        """Measure the forget set query by query, scoring only its lists."""
        lists = self._score(score, np.unique(self.partition.forget[:, 0]))
        _, scores, orders = self._pair_figures(lists)
        reciprocal = self._lists(lists, self.partition.forget, forget=True).reciprocal
        return ForgetFigures(reciprocal, scores.astype(np.float64), orders)

    def _pair_figures(self, scored: ListScores) -> tuple[Rows, NDArray[np.float32], tuple[Rows, ...]]:
        """Return the ranks and scores of the forget pairs, and the first places of the forget queries' whole lists."""
        forget, keys = self.partition.forget, self._collection.pair_keys
        listed, queries = keys(scored.pairs), np.unique(forget[:, 0])
        order = np.argsort(listed)  # by query, then by document
        own = scored.scores[order[np.searchsorted(listed, keys(forget), sorter=order)]]
        theirs = np.isin(scored.pairs[:, 0], queries)
        negative = theirs & ~np.isin(listed, keys(self._collection.relevant.pairs(queries)))
        ranks = ranks_among(forget, own, scored.pairs[negative], scored.scores[negative])
        order = order[theirs[order]]
        cuts = np.flatnonzero(np.diff(scored.pairs[order, 0])) + 1
        return ranks, own, tuple(order_of(scores, DEPTH) for scores in np.split(scored.scores[order], cuts))

    def forget_lists(self) -> Pairs:
        """Return the pairs whose scores the forget MRR depends on: the forget pairs first, then negatives."""
        return np.concatenate(
            [self.partition.forget, self._collection.negatives.pairs(np.unique(self.partition.forget[:, 0]))]
        )

    def forget_ranks(self, pairs: Pairs, scores: NDArray[np.float32]) -> Floats:
        """Return the reciprocal rank, among the given pairs, of each forget query that has one of them."""
        forget = self.partition.forget[np.isin(self.partition.forget[:, 0], pairs[:, 0])]
        return self._lists(ListScores(pairs, scores), forget, forget=True).reciprocal

    def mrr(self, score: Scorer, pairs: Pairs) -> float:
        """Return the MRR of kept pairs."""
        return float(self.reciprocals(score, pairs).mean())

    def reciprocals(self, score: Scorer, pairs: Pairs, forget: bool = False) -> Floats:
        """Return the reciprocal rank of each query that has one of these pairs, in the order of query rows."""
        return self.lists(score, pairs, forget).reciprocal

    def reciprocals_of_each(self, score: Scorer, sets: Sequence[Pairs], forget: bool = False) -> list[Floats]:
        """Return the reciprocal ranks for several sets of pairs, scoring each list once."""
        pairs = np.unique(np.concatenate(sets), axis=0)
        scored = self._score(score, np.unique(pairs[:, 0]), only=pairs)
        return [self._lists(scored, some, forget).reciprocal for some in sets]

    def lists(self, score: Scorer, pairs: Pairs, forget: bool = False) -> MeasuredLists:
        """Return the lists in which these pairs are measured."""
        return self._lists(self._score(score, np.unique(pairs[:, 0]), only=pairs), pairs, forget)

    def watch(self, score: Scorer, queries: int) -> dict[str, float]:
        """Return the MRR of each kept set on a few of its queries: enough to see it move."""
        return {name: self.mrr(score, pairs) for name, pairs in self._watched(queries).items() if len(pairs)}

    def watched_pairs(self, queries: int) -> Pairs:
        """Return the pairs that `watch` scores."""
        rows = np.unique(np.concatenate([pairs[:, 0] for pairs in self._watched(queries).values()]))
        return self._collection.list_pairs(rows)

    def _watched(self, queries: int) -> dict[str, Pairs]:
        return {
            name: pairs[np.isin(pairs[:, 0], np.unique(pairs[:, 0])[:queries])] for name, pairs in self.measured.items()
        }

    def _score(self, score: Scorer, queries: Rows, only: Pairs | None = None) -> ListScores:
        """Score the lists of queries. With `only`, these are the only relevant pairs in the lists."""
        if only is None:
            pairs = self._collection.list_pairs(queries)
        else:
            pairs = np.concatenate([only, self._collection.negatives.pairs(queries)])
        return ListScores(pairs, score(pairs))

    def _lists(self, scored: ListScores, pairs: Pairs, forget: bool = False, full: bool = False) -> MeasuredLists:
        """Return the lists in which `pairs` are measured."""
        queries, keys = np.unique(pairs[:, 0]), self._collection.pair_keys
        theirs = np.isin(scored.pairs[:, 0], queries)
        listed, scores = scored.pairs[theirs], scored.scores[theirs]
        target = np.isin(keys(listed), keys(pairs))
        keep = target | ~np.isin(keys(listed), keys(self._collection.relevant.pairs(queries))) | full
        if not forget:
            keep &= ~np.isin(listed[:, 1], self.partition.documents)
        owner, shown = np.searchsorted(queries, listed[keep, 0]), listed[keep]
        gains = self._collection.gains(shown)
        return MeasuredLists(
            queries, shown, ScoredLists(owner, scores[keep], target[keep], len(queries), gains), forget
        )


def _measure(measured: MeasuredLists) -> SetMetrics:
    lists, ties_first = measured.lists, measured.ties_first
    reciprocal = measured.reciprocal
    low, high = interval(reciprocal)
    mean_ndcg = float(ndcg(lists, ties_first).mean())
    return SetMetrics(measured.queries, reciprocal, float(reciprocal.mean()), low, high, mean_ndcg)


def _first_queries(pairs: Pairs, order: Rows, most: int) -> Pairs:
    """Return the pairs of the first `most` queries in an order of all queries; 0 means all.

    >>> _first_queries(np.array([[0, 5], [1, 5], [2, 5]]), np.array([2, 0, 1]), 2).tolist()
    [[0, 5], [2, 5]]
    """
    there = np.zeros(len(order), bool)
    there[pairs[:, 0]] = True
    if not most or np.count_nonzero(there) <= most:
        return pairs
    return pairs[np.isin(pairs[:, 0], order[there[order]][:most])]
