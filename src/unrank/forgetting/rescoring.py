"""Scores of the forget lists, again and again, of a ranker that has moved a little since.

The forget MRR asks one thing of a list: how many candidates stand above its best forget pair. A candidate that stood
far from it most likely still stands on the same side. So the forget pairs are scored, the candidates that stood nearest
to the best of them, and some of the others; by how these have moved one sees how far the rest may have, and all that
may have changed sides are scored too. What is left is taken to have moved as its query did. That is a judgement from a
sample: what a run comes to is measured in full when it is over.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
from unrank.evaluation.scorecard import Scorer

Scores = NDArray[np.float32]
NEAREST, SPREAD = 6, 4
"""How many candidates of a query show how its others have moved: the nearest, and some from all over its list."""
SAFELY = 2.0
"""So many times as far as any of them has moved against its query's mean, another may have."""
FEW = 64
"""Of fewer queries a sample tells too little."""


@dataclass(frozen=True)
class Rescoring:
    """Lists as they were scored once. The first `forget` pairs are the forget pairs."""

    pairs: Pairs
    forget: int
    scores: Scores

    def now(self, score: Scorer) -> Scores:
        """What `score` gives for all of them, asked for no more than is likely to matter."""
        others = np.arange(self.forget, len(self.pairs))
        _, query = np.unique(self.pairs[:, 0], return_inverse=True)
        asked = np.concatenate([np.arange(self.forget), others[self._telling(query)]])
        values = self.scores.copy()
        values[asked] = score(self.pairs[asked])
        moved, seen = values - self.scores, asked[self.forget :]
        shift = np.bincount(query[seen], moved[seen]) / np.maximum(1, np.bincount(query[seen]))
        rest = np.setdiff1d(others, seen, assume_unique=True)
        values[rest] += shift[query[rest]].astype(np.float32)
        furthest = SAFELY * float(np.abs(moved[seen] - shift[query[seen]]).max(initial=0.0))
        may_have_crossed = rest[np.abs(values[rest] - best_of(query, values, self.forget)[query[rest]]) <= furthest]
        if len(may_have_crossed):
            values[may_have_crossed] = score(self.pairs[may_have_crossed])
        return values

    def _telling(self, query: Rows) -> Rows:
        """Of the candidates of each query those whose scores lay nearest to its best forget pair's, and every so many
        of the others, the farthest first."""
        queries, scores = query[self.forget :], self.scores[self.forget :]
        order = np.lexsort((np.abs(scores - best_of(query, self.scores, self.forget)[queries]), queries))
        size = np.bincount(queries, minlength=query.max() + 1)[queries[order]]
        place = np.arange(len(order)) - np.searchsorted(queries[order], queries[order])
        turn, too_few = np.divmod(size - 1 - place, np.maximum(1, (size - NEAREST) // SPREAD))
        return np.sort(order[(place < NEAREST) | (turn < SPREAD) & (too_few == 0)])


def best_of(query: Rows, scores: Scores, forget: int) -> Scores:
    """The highest score of a forget pair, query by query."""
    best = np.full(query.max() + 1, -np.inf, np.float32)
    np.maximum.at(best, query[:forget], scores[:forget])
    return best
