"""Evidence: the margins of single pairs under the audited ranker, and under rankers that did or did not see them.

A pair's margin is how far it stands above the best negative of its query, in units of the range of the negatives. It is
measured on three sets: the forget pairs, kept pairs, which the audited ranker saw, and pairs that no ranker saw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from unrank.audit.context import AuditContext, Marks
from unrank.collection.collection import Pairs
from unrank.evaluation.measure import Floats
from unrank.evaluation.scorecard import Scorer
from unrank.forgetting.places import list_tops

LEAST = 20
"""The fewest pairs that no ranker saw by which single pairs are judged."""


@dataclass(frozen=True)
class Margins:
    """The margins of some pairs under every ranker of an audit."""

    pairs: Pairs
    ranker: Floats
    """The audited ranker's. [pairs]"""
    original: Floats | None
    judges: Floats
    """Those of the references, then of the proxies. [judges, pairs]"""
    never_saw: Marks
    """Whether a judge never saw a pair. [judges, pairs]"""
    trained: Marks
    """Whether the query of a pair has other pairs that are kept. [pairs]"""

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def judged(self) -> Marks:
        """The pairs that some judge never saw."""
        return np.asarray(self.never_saw.any(axis=0), np.bool_)

    def some(self, marks: Marks) -> Margins:
        """Return the margins of the marked pairs."""
        original = None if self.original is None else self.original[marks]
        judged = (self.judges[:, marks], self.never_saw[:, marks])
        return Margins(self.pairs[marks], self.ranker[marks], original, *judged, self.trained[marks])

    @property
    def unseen_by(self) -> Floats:
        """The judges' margins of pairs that they never saw; NaN elsewhere."""
        return np.where(self.never_saw, self.judges, np.nan)

    @property
    def seen_by(self) -> Floats:
        """The margins of the original, and of the judges that saw a pair; NaN elsewhere."""
        seen = np.where(self.never_saw, np.nan, self.judges)
        return seen if self.original is None else np.concatenate([self.original[None], seen])


@dataclass(frozen=True)
class Evidence:
    """The margins of the forget pairs, of kept pairs, and of pairs that no ranker saw."""

    forget: Margins
    kept: Margins
    unseen: Margins
    source: Literal["reserved", "test"]
    """The pairs that no ranker saw: those that training left out, or those of test queries."""


@dataclass(frozen=True)
class JudgedPairs:
    """The sampled pairs of each set. Those that no ranker saw are of the forget pairs' kinds."""

    forget: Pairs
    kept: Pairs
    unseen: Pairs
    source: Literal["reserved", "test"]

    @classmethod
    def of(cls, context: AuditContext) -> JudgedPairs:
        parts = context.partition
        forget = sample_pairs(context, context.sets["forget"], "forget")
        reserved = len(parts.reserved) >= LEAST and all(judge.reserves for judge in context.judges)
        unseen = sample_alike(context, parts.reserved if reserved else context.whole["test"], forget)
        kept = sample_pairs(context, parts.retain, "kept")
        return cls(forget, kept, unseen, "reserved" if reserved else "test")


def gather_evidence(context: AuditContext) -> Evidence:
    """Measure the margins of the sampled pairs."""
    pairs = JudgedPairs.of(context)
    return Evidence(
        measure_margins(context, pairs.forget),
        measure_margins(context, pairs.kept),
        measure_margins(context, pairs.unseen, np.ones((len(context.judges), len(pairs.unseen)), bool)),
        pairs.source,
    )


def measure_margins(context: AuditContext, pairs: Pairs, never_saw: Marks | None = None) -> Margins:
    """Measure pairs under every ranker. Without `never_saw`, the judges say which of them they never saw."""
    negatives = some_negatives(context, pairs)
    judges, original = context.judges, context.rankers.original
    if never_saw is None:
        never_saw = np.array([judge.never_saw(pairs) for judge in judges], bool).reshape(len(judges), len(pairs))
    measured = np.array([margins(pairs, negatives, judge.scores) for judge in judges])
    return Margins(
        pairs,
        margins(pairs, negatives, context.rankers.ranker.scores),
        margins(pairs, negatives, original.scores) if original else None,
        measured.reshape(len(judges), len(pairs)),
        never_saw,
        of_trained(context, pairs),
    )


def of_trained(context: AuditContext, pairs: Pairs) -> Marks:
    """Mark the pairs whose query has other pairs that are kept: a ranker knows such a query."""
    kept = context.partition.retain
    queries, counts = np.unique(kept[:, 0], return_counts=True)
    others = counts[np.minimum(np.searchsorted(queries, pairs[:, 0]), len(queries) - 1)]
    own = np.isin(context.collection.pair_keys(pairs), context.collection.pair_keys(kept))
    return np.isin(pairs[:, 0], queries) & (others > own)


def margins(pairs: Pairs, negatives: Pairs, score: Scorer) -> Floats:
    """Return how far each pair is above the best negative of its query, in units of the range of the negatives."""
    scores = score(np.concatenate([pairs, negatives]))
    best, width = list_tops(pairs, negatives, scores[len(pairs) :])
    found: Floats = (scores[: len(pairs)] - best) / width
    return found


def sample_pairs(context: AuditContext, pairs: Pairs, salt: str) -> Pairs:
    """Return some pairs, chosen by the seed, whose query has negatives; no more than the audit judges."""
    pairs = pairs[context.with_negatives(pairs)] if len(pairs) else pairs
    order = np.random.default_rng([context.seed, len(salt)]).permutation(len(pairs))
    order = order[: context.thoroughness.judged_pairs]
    return pairs[np.sort(order)]


def sample_alike(context: AuditContext, pairs: Pairs, forget: Pairs) -> Pairs:
    """Return some pairs of each kind that forget pairs are of; of any kind, if there are too few of those."""
    kinds, wanted = of_trained(context, pairs), np.unique(of_trained(context, forget))
    parts = [pairs[kinds == kind] for kind in wanted]
    enough = [sample_pairs(context, part, f"unseen {len(part)}") for part in parts if len(part) >= LEAST]
    return np.concatenate(enough) if enough else sample_pairs(context, pairs, "unseen")


def some_negatives(context: AuditContext, pairs: Pairs) -> Pairs:
    """Return some negatives of each query, chosen by the seed."""
    negatives = context.negatives(np.unique(pairs[:, 0]))
    shuffled = negatives[np.random.default_rng(context.seed).permutation(len(negatives))]
    shuffled = shuffled[np.argsort(shuffled[:, 0], kind="stable")]
    place = np.arange(len(shuffled)) - np.searchsorted(shuffled[:, 0], shuffled[:, 0])
    return shuffled[place < context.thoroughness.judged_negatives]
