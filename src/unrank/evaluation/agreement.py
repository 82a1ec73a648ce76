"""How alike two rankers order one list."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unrank.evaluation.measure import Floats

PERSISTENCE = 0.9
Scores = NDArray[np.floating]


def rank_biased_overlap(one: Scores, other: Scores, persistence: float = PERSISTENCE) -> float:
    """The overlap of the first places, averaged over depths that matter the less the deeper they are; 1 if all agree.

    Both score the same documents, best first; a tie goes to the one that stands first in the list. The share of common
    documents at depth d weighs `(1 - p) p^(d - 1)`; beyond the end of the list nothing can differ.

    >>> rank_biased_overlap(np.array([3.0, 2.0, 1.0]), np.array([3.0, 1.0, 2.0]), 0.5)  # 1/2·1 + 1/4·1/2 + 1/4·1
    0.875
    """
    size = len(one)
    depth = np.arange(1, size + 1)
    places = np.maximum(_places(one), _places(other))  # a document is common from the later of its two places on
    common = np.cumsum(np.bincount(places, minlength=size)) / depth
    weights = (1 - persistence) * persistence ** (depth - 1)
    return float((weights * common).sum() + persistence**size)


def kendall_tau(one: Scores, other: Scores) -> float:
    """The pairs of documents in the same order less those in the other one, as a share; ties are allowed for (τ-b).

    Where one of the two ties everything there is no order to agree with: 0.

    >>> kendall_tau(np.array([3.0, 2.0, 1.0]), np.array([3.0, 1.0, 2.0]))  # two pairs agree, one does not
    0.3333333333333333
    """
    first, second = (np.sign(np.subtract.outer(scores, scores)) for scores in (one, other))
    untied = float(np.count_nonzero(first)) * float(np.count_nonzero(second))
    return float((first * second).sum() / np.sqrt(untied)) if untied else 0.0


def _places(scores: Scores) -> NDArray[np.int64]:
    places = np.empty(len(scores), np.int64)
    places[np.argsort(-scores, kind="stable")] = np.arange(len(scores))
    return places


def agreements(one: Scores, other: Scores, owner: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Rank-biased overlap and τ of each of many lists, laid end to end in the order of their owners."""
    cuts = np.flatnonzero(np.diff(owner)) + 1
    lists = list(zip(np.split(one, cuts), np.split(other, cuts), strict=True))
    return np.array([rank_biased_overlap(*pair) for pair in lists]), np.array([kendall_tau(*pair) for pair in lists])
