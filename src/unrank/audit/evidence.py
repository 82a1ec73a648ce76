"""Evidence: the margins of single pairs under the audited ranker, and under rankers that did or did not see them.

A pair's margin is how far it stands above the negatives of its query: above a soft maximum of their scores, in units of
the mean range of the ranker's lists. A maximum of a few negatives, or the range of one list, would add noise. Margins
are measured on three sets: the forget pairs, kept pairs, which the audited ranker saw, and pairs that no ranker saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from unrank.audit.context import AuditContext, Marks
from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
from unrank.evaluation.measure import Floats
from unrank.evaluation.scorecard import Scorer

LEAST = 20
"""The fewest pairs that no ranker saw by which single pairs are judged."""
FEW_PAIRS, PER_FORGET, PER_QUERY = 60, 6, 3
"""Kept and unseen pairs are this many at least, and more for more forget pairs; so many have one query at most."""
SOFTNESS = 8.0
"""The mean range of a list, in units of the temperature of the soft maximum."""
LEAST_RANGE = 1e-3
QUERY, DOCUMENT = 1, 2
"""The bits of a kind."""


@dataclass(frozen=True)
class Margins:
    """The margins of some pairs under every ranker of an audit."""

    pairs: Pairs
    ranker: Floats
    """The audited ranker's. [pairs]"""
    original: Floats | None
    judges: Floats
    """Those of the references, then of the proxies; NaN where one was not asked. [judges, pairs]"""
    never_saw: Marks
    """Whether a judge never saw a pair. [judges, pairs]"""
    kinds: Rows
    """Whether a pair's query, and its document, have other pairs that are kept: the sum of two bits. [pairs]"""
    unit: float = 1.0
    """The mean range of the audited ranker's lists."""

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
        return Margins(self.pairs[marks], self.ranker[marks], original, *judged, self.kinds[marks], self.unit)

    @property
    def unseen_by(self) -> Floats:
        """The judges' margins of pairs that they never saw; NaN elsewhere."""
        return np.where(self.never_saw, self.judges, np.nan)


@dataclass(frozen=True)
class Evidence:
    """The margins of the forget pairs, of kept pairs, and of pairs that no ranker saw."""

    forget: Margins
    kept: Margins
    unseen: Margins
    source: Literal["reserved", "test"]
    """The pairs that no ranker saw: those that training left out, or those of test queries."""


@dataclass(frozen=True)
class JudgedPart:
    """Some pairs, and the judges that are asked about each: those that never saw it. [judges, pairs]"""

    pairs: Pairs
    never_saw: Marks


@dataclass(frozen=True)
class JudgedPairs:
    """The sampled pairs of each set. Those that no ranker saw are of the forget pairs' kinds.

    A judge is asked about few pairs: the forget and kept pairs that it never saw, and as large a share of the unseen
    pairs. What a ranker that saw a pair makes of it is asked of the original alone.
    """

    forget: JudgedPart
    kept: JudgedPart
    unseen: JudgedPart
    source: Literal["reserved", "test"]

    @classmethod
    def of(cls, context: AuditContext) -> JudgedPairs:
        parts, judges = context.partition, context.judges
        forget = sample_pairs(context, context.sets["forget"], context.thoroughness.judged_pairs, "forget")
        reserved = len(parts.reserved) >= LEAST and all(judge.reserves for judge in judges)
        many = min(context.thoroughness.judged_pairs, max(FEW_PAIRS, PER_FORGET * len(forget)))
        unseen = sample_alike(context, parts.reserved if reserved else context.whole["test"], forget, many)
        kept = sample_pairs(context, _never_seen_by_some(context, parts.retain), many, "kept", PER_QUERY)
        of_forget, of_kept = (_marks(context, pairs) for pairs in (forget, kept))
        like = np.random.default_rng(context.seed).integers(max(1, len(forget)), size=len(unseen))
        alike = of_forget[:, like] if len(forget) else np.zeros((len(judges), len(unseen)), bool)
        return cls(
            JudgedPart(forget, of_forget),
            JudgedPart(kept, of_kept),
            JudgedPart(unseen, alike),
            "reserved" if reserved else "test",
        )

    @property
    def parts(self) -> tuple[JudgedPart, JudgedPart, JudgedPart]:
        return self.forget, self.kept, self.unseen


@dataclass(frozen=True)
class Measured:
    """The margins that one ranker gives the pairs of each set, and the mean range of its lists."""

    of_part: tuple[Floats, ...]
    unit: float


def gather_evidence(context: AuditContext) -> Evidence:
    """Measure the margins of the sampled pairs. Each ranker scores all its lists at once: it reads a text once."""
    judged, original = JudgedPairs.of(context), context.rankers.original
    everything = [np.ones(len(part.pairs), bool) for part in judged.parts]
    own = measure(context, judged, everything, context.rankers.ranker.scores)
    before = measure(context, judged, everything, original.scores) if original else None
    said = [
        measure(context, judged, [part.never_saw[row] for part in judged.parts], judge.scores)
        for row, judge in enumerate(context.judges)
    ]
    found = [
        Margins(
            part.pairs,
            own.of_part[place],
            before.of_part[place] if before else None,
            np.array([one.of_part[place] for one in said]).reshape(part.never_saw.shape),
            part.never_saw,
            kinds_of(context, part.pairs),
            own.unit,
        )
        for place, part in enumerate(judged.parts)
    ]
    return Evidence(found[0], found[1], found[2], judged.source)


def lists_to_score(context: AuditContext, judged: JudgedPairs, asked: Sequence[Marks]) -> Pairs:
    """Return the pairs that a ranker scores to judge the marked ones of each set: these, and negatives."""
    some = [part.pairs[marks] for part, marks in zip(judged.parts, asked, strict=True)]
    return np.concatenate([each for pairs in some for each in (pairs, some_negatives(context, pairs))])


def measure(context: AuditContext, judged: JudgedPairs, asked: Sequence[Marks], score: Scorer) -> Measured:
    """Measure the marked pairs of each set under one ranker; others are NaN."""
    lists, start, parts, ranges = lists_to_score(context, judged, asked), 0, [], []
    scores = score(lists) if len(lists) else np.empty(0, np.float32)
    for part, marks in zip(judged.parts, asked, strict=True):
        pairs = part.pairs[marks]
        negatives = some_negatives(context, pairs)
        end = start + len(pairs) + len(negatives)
        own, theirs = np.split(scores[start:end].astype(np.float64), [len(pairs)])
        parts.append((pairs, own, negatives, theirs))
        ranges.append(list_ranges(negatives, theirs))
        start = end
    wide = np.concatenate(ranges)
    unit = max(float(wide.mean()), LEAST_RANGE) if len(wide) else LEAST_RANGE
    found = [np.full(len(marks), np.nan) for marks in asked]
    for values, marks, (pairs, own, negatives, theirs) in zip(found, asked, parts, strict=True):
        values[marks] = (own - soft_maxima(pairs, negatives, theirs, unit)) / unit
    return Measured(tuple(found), unit)


def list_ranges(negatives: Pairs, scores: Floats) -> Floats:
    """Return the range of the scores of each query's negatives."""
    queries, row = np.unique(negatives[:, 0], return_inverse=True)
    high, low = np.full(len(queries), -np.inf), np.full(len(queries), np.inf)
    np.maximum.at(high, row, scores)
    np.minimum.at(low, row, scores)
    return np.asarray(high - low, np.float64)


def soft_maxima(pairs: Pairs, negatives: Pairs, scores: Floats, unit: float) -> Floats:
    """Return for each pair a soft maximum of the scores of its query's negatives, all of which have some.

    >>> listed = np.array([[1, 5], [1, 6], [2, 7]])
    >>> soft_maxima(np.array([[1, 4], [2, 4]]), listed, np.array([1.0, 1.0, 3.0]), 8.0).round(3).tolist()
    [1.693, 3.0]
    """
    queries, temperature = np.unique(negatives[:, 0]), unit / SOFTNESS
    crowd = np.full(len(queries), -np.inf)
    np.logaddexp.at(crowd, np.searchsorted(queries, negatives[:, 0]), scores / temperature)
    found: Floats = temperature * crowd[np.searchsorted(queries, pairs[:, 0])]
    return found


def _marks(context: AuditContext, pairs: Pairs) -> Marks:
    """Mark the pairs that each judge never saw. [judges, pairs]"""
    judges = context.judges
    return np.array([judge.never_saw(pairs) for judge in judges], bool).reshape(len(judges), len(pairs))


def _never_seen_by_some(context: AuditContext, pairs: Pairs) -> Pairs:
    """Return the pairs that some judge never saw; all, if they are too few."""
    marks = _marks(context, pairs).any(axis=0)
    return pairs[marks] if marks.sum() >= LEAST else pairs


def kinds_of(context: AuditContext, pairs: Pairs) -> Rows:
    """Return the kinds of pairs: a ranker knows a query, or a document, that has other pairs that are kept."""
    kept = context.partition.retain
    own = np.isin(context.collection.pair_keys(pairs), context.collection.pair_keys(kept))
    found = np.zeros(len(pairs), np.int64)
    for side, bit in ((0, QUERY), (1, DOCUMENT)):
        rows, counts = np.unique(kept[:, side], return_counts=True)
        others = counts[np.minimum(np.searchsorted(rows, pairs[:, side]), len(rows) - 1)]
        found += bit * (np.isin(pairs[:, side], rows) & (others > own))
    return found


def sample_pairs(context: AuditContext, pairs: Pairs, most: int, salt: str, of_query: int | None = None) -> Pairs:
    """Return some pairs, chosen by the seed, whose query has negatives; of one query no more than `of_query`.

    Pairs of one query share its negatives, so they cost little.
    """
    pairs = pairs[context.with_negatives(pairs)] if len(pairs) else pairs
    generator = np.random.default_rng([context.seed, len(salt)])
    order = generator.permutation(len(pairs))
    if of_query is not None:
        queries, owner = np.unique(pairs[:, 0], return_inverse=True)
        order = order[np.argsort(generator.permutation(len(queries))[owner[order]], kind="stable")]
        sorted_owner = owner[order]
        first = np.flatnonzero(np.diff(sorted_owner, prepend=-1))
        place = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
        order = order[place < of_query]
    return pairs[np.sort(order[:most])]


def sample_alike(context: AuditContext, pairs: Pairs, forget: Pairs, most: int) -> Pairs:
    """Return some pairs of each kind that forget pairs are of; of other kinds, if there are too few of one."""
    kinds, wanted = kinds_of(context, pairs), np.unique(kinds_of(context, forget))
    chosen = set()
    for kind in wanted:
        near = [kinds == kind, (kinds & QUERY) == (kind & QUERY), np.ones(len(pairs), bool)]
        chosen.update(np.unique(kinds[next((marks for marks in near if marks.sum() >= LEAST), near[-1])]).tolist())
    parts = [pairs[kinds == kind] for kind in sorted(chosen)]
    each = max(LEAST, most // max(1, len(parts)))
    found = [sample_pairs(context, part, each, f"unseen {number}", PER_QUERY) for number, part in enumerate(parts)]
    return np.concatenate([pairs[:0], *found])


def some_negatives(context: AuditContext, pairs: Pairs) -> Pairs:
    """Return some negatives of each query, chosen by the seed."""
    negatives = context.negatives(np.unique(pairs[:, 0]))
    shuffled = negatives[np.random.default_rng(context.seed).permutation(len(negatives))]
    shuffled = shuffled[np.argsort(shuffled[:, 0], kind="stable")]
    place = np.arange(len(shuffled)) - np.searchsorted(shuffled[:, 0], shuffled[:, 0])
    return shuffled[place < context.thoroughness.judged_negatives]
