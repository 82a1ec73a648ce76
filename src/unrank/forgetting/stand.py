"""Where earlier requests stand: how far above the target that each was brought to, and what has to fall again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition, named
from unrank.evaluation.measure import Floats
from unrank.evaluation.scorecard import Scorer
from unrank.forgetting.earlier import EarlierRun
from unrank.forgetting.workspace import Workspace
from unrank.record import PreviousMrr

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


@dataclass(frozen=True)
class Standing:
    """Where a ranker has all that was forgotten before."""

    mrr: float | None
    """Of all of it; None where nothing was."""
    stands: Sequence[Stand]
    """Of each run that brought some of it to a target."""

    @classmethod
    def of(cls, score: Scorer, runs: Iterable[EarlierRun], workspace: Workspace) -> Standing:
        """With these scores. What a run removed counts unless all of it is asked for now."""
        collection, earlier = workspace.collection, workspace.partition.earlier
        if not len(earlier):
            return cls(None, [])
        keys = collection.pair_keys
        removed = [
            (collection.pairs[named(collection, run.removal)[0]], run.request.target)
            for run in runs
            if run.request.target and run.request.reached
        ]
        held = [(pairs, target) for pairs, target in removed if np.isin(keys(pairs), keys(earlier)).any()]
        whole, *each = workspace.evaluator.reciprocals_of_each(
            score, [earlier, *(pairs for pairs, _ in held)], forget=True
        )
        return cls(float(whole.mean()), [Stand(*one, reciprocal) for one, reciprocal in zip(held, each, strict=True)])

    @property
    def above(self) -> float | None:
        """How far the worst is above its target."""
        return max((stand.above for stand in self.stands), default=None)

    def with_risen(self, partition: Partition, collection: Collection) -> Partition:
        """The partition, with what has to fall again apart from what was forgotten before and may stay."""
        keys = collection.pair_keys
        risen = np.concatenate([partition.earlier[:0], *(stand.risen for stand in self.stands)])
        falls = np.isin(keys(partition.earlier), keys(risen))
        return replace(partition, earlier=partition.earlier[~falls], risen=partition.earlier[falls])

    def then(self, after: Standing) -> PreviousMrr | None:
        """What a record tells: the MRR before and after a run, and how far the worst is above its target in the end."""
        return PreviousMrr(self.mrr, after.mrr, after.above) if self.mrr is not None and after.mrr is not None else None
