"""Likeness: how alike two rankers order the whole lists of a set, by rank-biased overlap and Kendall's τ.

Two retrained rankers are not alike either: what they share with each other is the most that can be asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unrank.audit.case import Case, Subject
from unrank.evaluation.bootstrap import BootstrapEstimate
from unrank.evaluation.measure import agreements


def likeness(case: Case, name: str) -> dict[str, Any]:
    """The pairs of rankers that are there, each with both figures."""
    ranker, original = case.subjects.ranker, case.subjects.original
    first, second, *_ = (*case.subjects.references, None, None)
    compared = {
        "ranker_reference": (ranker, first),
        "original_reference": (original, first),
        "reference_reference": (first, second),
        "ranker_original": (ranker, original),
    }
    return {key: _figures(case, name, one, other) for key, (one, other) in compared.items() if one and other}


def _figures(case: Case, name: str, one: Subject, other: Subject) -> dict[str, Any]:
    pairs = case.collection.list_pairs(np.unique(case.sets[name][:, 0]))
    if name != "forget":
        pairs = pairs[~np.isin(pairs[:, 1], case.partition.documents)]
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    overlap, tau = agreements(one.scores(pairs), other.scores(pairs), pairs[:, 0])
    figures = {"rank_biased_overlap": overlap, "kendall_tau": tau}
    return {key: BootstrapEstimate.of_mean(values, case.seed).to_json() for key, values in figures.items()}
