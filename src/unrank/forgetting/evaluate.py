"""Measuring a ranker, with a removal or without one; and BM25, which every ranker has to beat."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unrank.collection.bm25 import Bm25
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal
from unrank.engine.runtime import Device, Progress
from unrank.evaluation.scorecard import MOST_QUERIES, Evaluator, Scorecard
from unrank.forgetting.hashes import recognised
from unrank.forgetting.workspace import Workspace
from unrank.rankers.base import Ranker
from unrank.record import Record, requests_of


def evaluate(
    ranker: Ranker,
    collection: Collection,
    removal: Removal | None = None,
    *,
    record: Record | None = None,
    measure: int = MOST_QUERIES,
    device: Device = "auto",
    progress: Progress | None = None,
) -> Scorecard:
    """The scorecard of a ranker; without a removal all training pairs are disjoint.

    `record` is the ranker's record, if unrank made it: what it forgot before is not kept, nor in the lists that are
    measured; `measure` is how many queries of each kept set are measured at most, 0 for all.
    """
    partition = None
    if removal is not None:
        partition = make_partition(collection, removal, earlier=recognised(collection, requests_of(record)))
    workspace = Workspace.open(ranker, collection, partition, device, progress, measure)
    return workspace.evaluator.scorecard(workspace.scorer(ranker))


def evaluate_bm25(collection: Collection, removal: Removal | None = None, measure: int = MOST_QUERIES) -> Scorecard:
    """The scorecard of BM25, which has forgotten nothing before, on the same lists."""
    collection.check_candidates()
    index = Bm25.over(collection.documents)

    def score(pairs: Pairs) -> NDArray[np.float32]:
        scores = np.empty(len(pairs), np.float32)
        order = np.argsort(pairs[:, 0], kind="stable")
        for here in np.split(order, np.flatnonzero(np.diff(pairs[order, 0])) + 1):
            scores[here] = index.scores(collection.queries.text(pairs[here[0], 0]), pairs[here, 1])
        return scores

    return Evaluator(
        collection, make_partition(collection, removal) if removal is not None else None, measure
    ).scorecard(score)
