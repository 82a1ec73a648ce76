"""Displacement: where forgotten documents stand, beside where a retrained ranker has them; both ways.

Too high is memory. Too low is a failure too: only who knows a document can push it to the end of every list, and who
sees it there learns that it was hidden. A document's height is 1 in the first place of its list and 0 in the last, on
a scale of logarithms, for the first places matter most.
"""

from __future__ import annotations

import numpy as np

from unrank.audit.case import Case
from unrank.audit.likeness import likeness
from unrank.audit.verdict import Finding, Hiding, find
from unrank.collection.texts import Rows
from unrank.evaluation.measure import Floats, ScoredLists

LAST = 0.1
"""The share of a list that counts as its end."""


def displacement(case: Case) -> Finding:
    forget = case.sets["forget"]
    lists = case.each(lambda subject: subject.workspace.evaluator.lists(subject.scores, forget, forget=True)[0])
    at_end = case.readings(lists.map(shares_at_end))
    return find(
        "the height of forgotten documents in their lists",
        case.readings(lists.map(heights)),
        hiding=Hiding("the share of them at the end of their lists is", at_end),
        at_the_end=at_end.to_json(),
        lists={name: likeness(case, name) for name, pairs in case.sets.items() if len(pairs)},
    )


def heights(lists: ScoredLists) -> Floats:
    """The mean height of each list's targets.

    >>> owner, target = np.zeros(4, np.int64), np.array([False, True, False, True])
    >>> heights(ScoredLists(owner, np.array([4, 3, 2, 1], np.float32), target, 1)).tolist()  # second and last of four
    [0.25]
    """
    owner, rank = lists.ranks(ties_first=True)
    length = np.bincount(lists.owner, minlength=lists.lists)[owner]
    return _mean_of_each(lists, owner, 1 - np.log(rank) / np.log(np.maximum(length, 2)))


def shares_at_end(lists: ScoredLists) -> Floats:
    """The share of each list's targets that stand in its last tenth."""
    owner, rank = lists.ranks(ties_first=True)
    length = np.bincount(lists.owner, minlength=lists.lists)[owner]
    return _mean_of_each(lists, owner, (rank > (1 - LAST) * length).astype(np.float64))


def _mean_of_each(lists: ScoredLists, owner: Rows, values: Floats) -> Floats:
    return np.bincount(owner, values, lists.lists) / np.bincount(owner, minlength=lists.lists)
