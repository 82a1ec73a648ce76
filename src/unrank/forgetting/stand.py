"""Where earlier requests stand: how far above the target that each was brought to, and what has to fall again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from unrank.collection.collection import Pairs
from unrank.collection.partition import Partition, named
from unrank.evaluation.measure import Floats
from unrank.evaluation.scorecard import Scorer
from unrank.forgetting.earlier import EarlierRun
from unrank.forgetting.workshop import Workshop

CAME_BACK = 0.05
"""What was forgotten before may be above its target by so much, and no more."""
SWAY = 0.3
"""What a run may raise it by, times the square root of its queries: where they are few, each counts for much."""


@dataclass(frozen=True)
class Stand:
    """Where a ranker has what an earlier run brought to a target."""

    pairs: Pairs
    target: float
    reciprocal: Floats
    """Of each query that has one of the pairs, in the order of their rows."""

    @property
    def above(self) -> float:
        """How far it is above its target."""
        return float(self.reciprocal.mean()) - self.target

    @property
    def risen(self) -> Pairs:
        """As many of the pairs that stand highest as would have to fall for it to be below its target by what a run
        may raise it."""
        most = len(self.reciprocal) * (self.above + SWAY / len(self.reciprocal) ** 0.5)
        highest = np.argsort(-self.reciprocal, kind="stable")
        before = np.cumsum(self.reciprocal[highest]) - self.reciprocal[highest]
        falling = np.unique(self.pairs[:, 0])[highest[before < most]]
        return self.pairs[np.isin(self.pairs[:, 0], falling)]


def stands(runs: Iterable[EarlierRun], workshop: Workshop, score: Scorer) -> Iterator[Stand]:
    """Where a ranker with these scores has what each run brought to its target, if not all of it is asked for now."""
    collection, keys = workshop.collection, workshop.collection.pair_keys
    for run in runs:
        pairs = collection.pairs[named(collection, run.removal)[0]]
        held = np.isin(keys(pairs), keys(workshop.parts.earlier)).any()
        if held and run.facts.get("target") and run.facts.get("reached"):
            yield Stand(pairs, run.facts["target"], workshop.judge.reciprocals(score, pairs, forget=True))


def with_risen(runs: Iterable[EarlierRun], workshop: Workshop, score: Scorer) -> Partition:
    """The partition, with what has to fall again apart from what was forgotten before and may stay."""
    parts, keys = workshop.parts, workshop.collection.pair_keys
    risen = [stand.risen for stand in stands(runs, workshop, score)]
    falls = np.isin(keys(parts.earlier), keys(np.concatenate([parts.earlier[:0], *risen])))
    return replace(parts, earlier=parts.earlier[~falls], risen=parts.earlier[falls])


def came_back(mrrs: Mapping[str, float | None]) -> bool:
    """Whether what was forgotten before has risen: above the target of one of the runs that forgot it or, where none
    has one, in this run."""
    above = mrrs.get("above")
    return ((mrrs["after"] or 0.0) - (mrrs["before"] or 0.0) if above is None else above) > CAME_BACK


def in_words(mrrs: Mapping[str, float | None]) -> str:
    """What became of what was forgotten before."""
    told = f"what was forgotten before had an MRR of {mrrs['before']:.3f}, now {mrrs['after']:.3f}"
    above = mrrs.get("above")
    return told if above is None else f"{told} (against its target at most {above:+.3f})"


def earlier_mrrs(
    runs: Iterable[EarlierRun], workshop: Workshop, before: Scorer, after: Scorer
) -> dict[str, float | None] | None:
    """The MRR of what was forgotten before, before and after a run, and how far the worst is above its target."""
    if not len(workshop.parts.earlier):
        return None
    mrrs = {when: workshop.judge.earlier_mrr(score) for when, score in (("before", before), ("after", after))}
    return mrrs | {"above": max((stand.above for stand in stands(runs, workshop, after)), default=None)}
