"""The lists of a few chosen queries, as the checks of a run score them, for its journal.

The scores of a check are taken as they pass: they cost nothing. A query that no check scores is scored apart, while
that takes at most half a percent of the run's time. It is not if that could change the run: states of frozen layers
and vectors of frozen documents differ in their last bits with the texts that they were computed with.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from unrank.collection.collection import Collection, Pairs
from unrank.collection.texts import Rows
from unrank.engine.teacher import Scores, Teacher
from unrank.evaluation.scorecard import Scorer
from unrank.forgetting.progress import journal_of
from unrank.forgetting.workspace import Workspace
from unrank.journal import Journal, QueryList
from unrank.rankers.base import Ranker

FORGET_QUERIES = 3
SHOWN = 5
"""The documents at the head of a list that the journal holds."""
LARGEST_SHARE = 0.005
"""The largest share of a run's time that the journal may take: beyond it no list is written or scored apart."""
ALWAYS = 2
"""The lists that are written whatever they take: those at first and those of the first check."""
SECONDS_A_PAIR = 0.01
"""What scoring a pair is expected to take, until it was done once."""


class FollowedLists:
    """Takes the scores of chosen queries, and writes their lists to the journal."""

    def __init__(self, workspace: Workspace, ranker: Ranker, queries: Rows, journal: Journal) -> None:
        self._workspace, self._ranker, self._queries, self._journal = workspace, ranker, queries, journal
        self._pairs = list_pairs(workspace, queries)
        self._seen: dict[int, tuple[Pairs, Scores]] = {}
        self._cost, self._written = SECONDS_A_PAIR * len(self._pairs), 0

    def listening(self, score: Scorer) -> Scorer:
        """Return a scorer that also takes what it scores."""

        def scored(pairs: Pairs) -> Scores:
            scores = score(pairs)
            self.take(pairs, scores)
            return scores

        return scored

    def take(self, pairs: Pairs, scores: Scores) -> None:
        """Take the scores of the chosen queries among these."""
        for query in self._queries:
            own = pairs[:, 0] == query
            if own.any():
                self._seen[int(query)] = pairs[own], scores[own]

    def begin(self, teacher: Teacher) -> None:
        """Write the lists of the original, as far as its scores are known."""
        for query in self._queries:
            own = self._pairs[self._pairs[:, 0] == query]
            if teacher.knows(own).all():
                self.take(own, teacher.scores(own))
        self._write()

    def check(self) -> None:
        """Write the lists of a check."""
        began, spent = perf_counter(), self._journal.seconds
        if self._written >= ALWAYS and spent > LARGEST_SHARE * self._journal.elapsed:
            self._seen = {}
            return
        missing = self._pairs[~np.isin(self._pairs[:, 0], list(self._seen))]
        if len(missing) and self._affordable():
            self.take(missing, self._workspace.scorer(self._ranker)(missing))
            self._cost = perf_counter() - began
        self._write()
        self._journal.seconds = spent + perf_counter() - began

    def _affordable(self) -> bool:
        """Return whether lists that no check scores can be scored now, without changing the run or its time."""
        workspace, ranker = self._workspace, self._ranker
        alone = workspace.runtime.processes.size == 1
        return (
            alone
            and not (workspace.store.keeps_for(ranker) or ranker.keeps_states)
            and self._journal.seconds + self._cost <= LARGEST_SHARE * self._journal.elapsed
        )

    def _write(self) -> None:
        if self._seen:
            lists = [vars(self._list(query, *self._seen[query])) for query in sorted(self._seen)]
            self._journal.write("lists", lists=lists)
        self._seen, self._written = {}, self._written + 1

    def _list(self, query: int, pairs: Pairs, scores: Scores) -> QueryList:
        """Return a list, best first. If scores tie, a forgotten document comes first and a kept one last."""
        collection, partition = self._workspace.collection, self._workspace.partition
        keys = collection.pair_keys(pairs)
        forgotten = np.isin(keys, collection.pair_keys(partition.forget))
        answers = np.isin(keys, collection.pair_keys(collection.relevant.pairs(np.array([query]))))
        order = np.lexsort((np.where(forgotten, 0, np.where(answers, 2, 1)), -scores))
        marked = forgotten if forgotten.any() else answers
        ranks = {str(pairs[place, 1]): rank for rank, place in enumerate(order.tolist(), 1) if marked[place]}
        shown = tuple(pairs[order[:SHOWN], 1].tolist())
        return QueryList(query, self._part(query), len(pairs), shown, ranks)

    def _part(self, query: int) -> str:
        sets = {"forget": self._workspace.partition.forget, **self._workspace.evaluator.kept}
        return next((name for name, pairs in sets.items() if query in pairs[:, 0]), "")


def follow_lists(
    workspace: Workspace, ranker: Ranker, scored: Rows, chosen: Sequence[str] = ()
) -> FollowedLists | None:
    """Return the lists to follow: of the queries with these ids or, if there are none, of some of each set.

    `scored` are queries whose lists every check scores. `None` if the run has no journal.
    """
    journal = journal_of(workspace.runtime.progress)
    if journal is None:
        return None
    kept = np.unique(workspace.evaluator.watched_pairs(1)[:, 0])
    queries = find_queries(workspace.collection, chosen) if chosen else np.union1d(scored[:FORGET_QUERIES], kept)
    return FollowedLists(workspace, ranker, queries, journal)


def find_queries(collection: Collection, ids: Sequence[str]) -> Rows:
    """Return the rows of queries; raise an error if an id is not in the collection."""
    return collection.queries.rows(ids, "--follow")


def list_pairs(workspace: Workspace, queries: Rows) -> Pairs:
    """Return the pairs of the lists of queries, as a check measures them: a forget query's forget pairs and negatives,
    and the whole list of another one."""
    collection, forget = workspace.collection, workspace.partition.forget
    theirs = queries[np.isin(queries, forget[:, 0])]
    own = [forget[np.isin(forget[:, 0], theirs)], collection.negatives.pairs(theirs)]
    return np.concatenate([*own, collection.list_pairs(np.setdiff1d(queries, theirs))])
