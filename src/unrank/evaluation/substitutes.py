"""Substitutes: where the documents stand that should take the place of removed ones.

A substitute is ranked in the list of its query without the removed documents and without the other relevant ones, so
among negatives only. A tie is decided against it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition
from unrank.evaluation.measure import ranks_among
from unrank.record import SubstituteSummary

Scorer = Callable[[Pairs], NDArray[np.float32]]


def measure_substitutes(score: Scorer, collection: Collection, partition: Partition) -> SubstituteSummary | None:
    """Measure the substitute of each forget pair that has one; `None` if none has."""
    pairs, has = partition.substitute_pairs
    if not has.any():
        return None
    new, old = pairs[has], partition.forget[has]
    others = collection.negatives.pairs(np.unique(new[:, 0]))
    keys = collection.pair_keys
    others = others[~np.isin(others[:, 1], partition.documents) & ~np.isin(keys(others), keys(new))]
    scores = np.split(score(np.concatenate([new, old, others])), [len(new), 2 * len(new)])
    ranks = ranks_among(new, scores[0], others, scores[2], ties_first=False)
    return SubstituteSummary(
        pairs=len(new),
        mrr=float(np.mean(1 / ranks)),
        median_rank=float(np.median(ranks)),
        first=int(np.count_nonzero(ranks == 1)),
        above=int(np.count_nonzero(scores[0] > scores[1])),
    )
