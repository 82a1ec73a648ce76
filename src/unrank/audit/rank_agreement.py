"""Displacement: how high forgotten documents are ranked, compared with a retrained ranker, in both directions.

Too high is memory. Too low is a failure too: only a ranker that knows a document can push it to the end of every list,
and its place there shows that it was hidden. A document's height is 1 at the top of its list and 0 at the end, on a
logarithmic scale, because the first ranks matter most.

The agreement of whole lists is measured by rank-biased overlap and Kendall's τ. Two retrained rankers do not agree
fully either: their agreement is the most that can be expected.
"""

from __future__ import annotations

import numpy as np

from unrank.audit.comparison import Json
from unrank.audit.context import AuditContext, AuditedRanker
from unrank.audit.verdict import Finding, Hiding, find
from unrank.collection.texts import Rows
from unrank.evaluation.agreement import agreements
from unrank.evaluation.bootstrap import BootstrapEstimate
from unrank.evaluation.measure import Floats, ScoredLists

END = 0.1
"""The share of a list that counts as its end."""


def displacement(context: AuditContext) -> Finding:
    forget = context.sets["forget"]
    lists = context.each(lambda one: one.workspace.evaluator.lists(one.scores, forget, forget=True).lists)
    at_end = context.compare_means(lists.map(shares_at_end))
    return find(
        "the height of forgotten documents in their lists",
        context.compare_means(lists.map(heights)),
        hiding=Hiding("the share of them at the end of their lists is", at_end),
        at_the_end=at_end.to_json(),
        lists={name: rank_agreement(context, name) for name, pairs in context.sets.items() if len(pairs)},
    )


def heights(lists: ScoredLists) -> Floats:
    """Return the mean height of each list's targets.

    >>> owner, target = np.zeros(4, np.int64), np.array([False, True, False, True])
    >>> heights(ScoredLists(owner, np.array([4, 3, 2, 1], np.float32), target, 1)).tolist()  # second and last of four
    [0.25]
    """
    owner, rank = lists.ranks(ties_first=True)
    length = np.bincount(lists.owner, minlength=lists.lists)[owner]
    return _mean_of_each(lists, owner, 1 - np.log(rank) / np.log(np.maximum(length, 2)))


def shares_at_end(lists: ScoredLists) -> Floats:
    """Return the share of each list's targets that are in its last tenth."""
    owner, rank = lists.ranks(ties_first=True)
    length = np.bincount(lists.owner, minlength=lists.lists)[owner]
    return _mean_of_each(lists, owner, (rank > (1 - END) * length).astype(np.float64))


def rank_agreement(context: AuditContext, name: str) -> Json:
    """Compare how pairs of rankers order the lists of a set."""
    ranker, original = context.rankers.ranker, context.rankers.original
    first, second, *_ = (*context.rankers.references, None, None)
    compared = {
        "ranker_reference": (ranker, first),
        "original_reference": (original, first),
        "reference_reference": (first, second),
        "ranker_original": (ranker, original),
    }
    return {key: _agreement(context, name, one, other) for key, (one, other) in compared.items() if one and other}


def _agreement(context: AuditContext, name: str, one: AuditedRanker, other: AuditedRanker) -> Json:
    pairs = context.collection.list_pairs(np.unique(context.sets[name][:, 0]))
    if name != "forget":
        pairs = pairs[~np.isin(pairs[:, 1], context.partition.documents)]
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    overlap, tau = agreements(one.scores(pairs), other.scores(pairs), pairs[:, 0])
    figures = {"rank_biased_overlap": overlap, "kendall_tau": tau}
    return {key: BootstrapEstimate.of_mean(values, context.seed).to_json() for key, values in figures.items()}


def _mean_of_each(lists: ScoredLists, owner: Rows, values: Floats) -> Floats:
    return np.bincount(owner, values, lists.lists) / np.bincount(owner, minlength=lists.lists)
