"""Samples: one value for each query under the audited ranker, the original, and rankers that never saw the request.

There are three: reciprocal ranks, scores (margins above the negatives) and whole lists (how far a ranker agrees with
rankers that never saw the request, by rank-biased overlap). A proxy knows less than a retrained ranker. So its margins
are brought to the audited ranker's level by pairs that nobody saw. Its ranks are those of such margins in the audited
ranker's lists. Its lists are not compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from unrank.audit.context import AuditContext
from unrank.audit.evidence import Evidence, Margins, soft_maxima, some_negatives
from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
from unrank.evaluation.agreement import list_ranks, overlaps
from unrank.evaluation.measure import Floats, ranks_among
from unrank.evaluation.scorecard import Scorer
from unrank.forgetting.places import mapped

RANKS, SCORES, LISTS = "reciprocal ranks", "scores", "lists"
MOST_LISTS, LEAST_REFERENCES, MOST_REFERENCES = 200, 3, 5
"""The lists and the references that are compared: each pair of rankers takes time."""


@dataclass(frozen=True)
class Sample:
    """One value for each query under every ranker of an audit."""

    ranker: Floats
    original: Floats | None
    never_saw: Floats
    """Those of rankers that never saw the request; NaN where one saw a query's pairs. [rankers, queries]"""
    with_original: Floats | None = None
    """For lists, how far the ranker agrees with the original; `None` for other values."""

    @property
    def judges(self) -> float:
        """The mean number of rankers that never saw a query's pairs."""
        return float(np.isfinite(self.never_saw).sum(axis=0).mean())

    @property
    def level(self) -> Floats:
        """The mean of the rankers that never saw the request."""
        return np.asarray(np.nanmean(self.never_saw, axis=0))

    @property
    def gap(self) -> Floats:
        """How far the ranker is above rankers that never saw the request."""
        return self.ranker - self.level

    @property
    def way(self) -> tuple[Floats, Floats]:
        """How far the ranker, and the original, are on the way to the original. An honest ranker is at 0 on average."""
        assert self.original is not None
        if self.with_original is not None:
            return self.with_original - self.original - self.gap, 1 - 2 * self.original + self.level
        number, whole = np.isfinite(self.never_saw).sum(axis=0), self.original - self.level
        chance = np.nanvar(self.never_saw, axis=0, ddof=1) / number  # the level is on both sides of the product
        return self.gap * whole - chance, whole**2 - chance

    @property
    def way_noise(self) -> float:
        """The standard error of the mean way of an honest ranker, by what two trainings differ by in each query.

        A few queries decide about reciprocal ranks, so the audited ranker's own values may understate it. 0 for lists.
        """
        if self.original is None or self.with_original is not None:
            return 0.0
        number, whole = np.isfinite(self.never_saw).sum(axis=0), self.original - self.level
        chance = np.nanvar(self.never_saw, axis=0, ddof=1) * (1 + 1 / number)
        return math.sqrt(float(np.sum(whole**2 * chance))) / len(whole)


def samples(context: AuditContext, evidence: Evidence, measured: Margins) -> dict[str, Sample]:
    """Return the samples of some pairs; empty if no query has two rankers that never saw its pairs."""
    margins = calibrated(measured, evidence.unseen, len(context.rankers.references))
    told = np.isfinite(margins).sum(axis=0) > 1
    if not told.any():
        return {}
    pairs, margins = measured.pairs[told], margins[:, told]
    negatives, by_query = some_negatives(context, pairs), partial(mean_by_query, pairs)
    original = None if measured.original is None else by_query(measured.original[told])
    found = {
        RANKS: _by_ranks(context, pairs, negatives, margins, measured.unit),
        SCORES: Sample(by_query(measured.ranker[told]), original, by_query(margins)),
    }
    if len(context.rankers.references) >= LEAST_REFERENCES:
        found[LISTS] = _by_lists(context, pairs, negatives)
    return found


def calibrated(measured: Margins, unseen: Margins, references: int) -> Floats:
    """Return the judges' margins of pairs that they never saw, proxies at the audited ranker's level; NaN elsewhere."""
    found, theirs = measured.unseen_by, unseen.unseen_by[references:]
    asked = np.isfinite(theirs)
    if asked.any():
        known, wanted = theirs[asked], np.broadcast_to(unseen.ranker, theirs.shape)[asked]
        here = np.isfinite(found[references:])
        found[references:][here] = mapped(found[references:][here], known, wanted)
    return found


def mean_by_query(pairs: Pairs, values: Floats) -> Floats:
    """Return the mean of each query's values that are numbers, in the order of the queries. [..., pairs]

    >>> mean_by_query(np.array([[1, 1], [1, 2], [3, 1]]), np.array([0.0, 1.0, np.nan])).tolist()
    [0.5, nan]
    """
    queries, owner = np.unique(pairs[:, 0], return_inverse=True)
    is_of = np.eye(len(queries))[owner]
    there = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(there, values, 0.0) @ is_of / (there @ is_of))


def _by_ranks(context: AuditContext, pairs: Pairs, negatives: Pairs, margins: Floats, unit: float) -> Sample:
    audited, original, references = context.rankers.ranker, context.rankers.original, context.rankers.references
    others = audited.scores(negatives)
    height = soft_maxima(pairs, negatives, others.astype(np.float64), unit)

    def reciprocal(own: NDArray[np.float32], theirs: NDArray[np.float32]) -> Floats:
        return 1 / ranks_among(pairs, own, negatives, theirs)

    def of(score: Scorer) -> Floats:
        return reciprocal(score(pairs), score(negatives))

    def at(wanted: Floats) -> Floats:
        """Return the reciprocal ranks of margins in the audited ranker's lists; NaN where there is no margin."""
        own = (height + np.nan_to_num(wanted) * unit).astype(np.float32)
        return np.where(np.isfinite(wanted), reciprocal(own, others), np.nan)

    judges = [*(of(one.scores) for one in references), *(at(row) for row in margins[len(references) :])]
    by_query = partial(mean_by_query, pairs)
    return Sample(
        by_query(of(audited.scores)), by_query(of(original.scores)) if original else None, by_query(np.array(judges))
    )


def _by_lists(context: AuditContext, pairs: Pairs, negatives: Pairs) -> Sample:
    """Return how far each ranker agrees with the references, on the lists of some queries."""
    queries = np.unique(pairs[:, 0])
    queries = queries[np.sort(np.random.default_rng(context.seed).permutation(len(queries))[:MOST_LISTS])]
    entries = np.concatenate([pairs, negatives])
    entries = entries[np.isin(entries[:, 0], queries)]
    entries = entries[np.argsort(entries[:, 0], kind="stable")]
    references = [one.scores for one in context.rankers.references[:MOST_REFERENCES]]
    owner, original = entries[:, 0], context.rankers.original

    def ranks(score: Scorer) -> Rows:
        return list_ranks(score(entries), owner)

    each = [ranks(score) for score in references]
    alike = np.array([[overlaps(one, other, owner) for other in each] for one in each])
    never_saw = (alike.sum(axis=1) - 1) / (len(each) - 1)  # each agrees fully with itself
    mine = ranks(context.rankers.ranker.scores)
    theirs = ranks(original.scores) if original else None
    return Sample(
        np.mean([overlaps(mine, one, owner) for one in each], axis=0),
        np.mean([overlaps(theirs, one, owner) for one in each], axis=0) if theirs is not None else None,
        never_saw,
        overlaps(mine, theirs, owner) if theirs is not None else None,
    )
