"""Request after request: what an earlier run made the ranker forget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition, named
from unrank.collection.removal import Removal
from unrank.errors import UnrankError
from unrank.evaluation.measure import Floats
from unrank.evaluation.scorecard import Measured, Scorer
from unrank.forgetting.record import ANEW, read_record, recognised, removed_before
from unrank.forgetting.target import tolerance
from unrank.forgetting.workshop import Workshop
from unrank.methods.base import Method
from unrank.methods.retrain import Retrain

CAME_BACK = 0.05
"""What was forgotten before may be above its target by so much, and no more."""
SWAY = 0.3
"""What a run may raise it by, times the square root of its queries: where they are few, each counts for much."""


@dataclass(frozen=True)
class EarlierRun:
    """What an earlier run removed from the ranker, and how."""

    removal: Removal
    facts: Mapping[str, Any]

    @property
    def anew(self) -> bool:
        """Whether the ranker never saw it since."""
        return self.facts.get("by") == ANEW


def earlier_runs(collection: Collection, known: Mapping[str, Any]) -> list[EarlierRun]:
    """The runs that a ranker's record tells of, with what they removed of this collection."""
    return [EarlierRun(recognised(collection, [facts]), facts) for facts in removed_before(known)]


def all_of(runs: Iterable[EarlierRun]) -> Removal:
    whole = Removal()
    for run in runs:
        whole |= run.removal
    return whole


def has_seen(collection: Collection, known: Mapping[str, Any] | None, removal: Removal) -> bool | None:
    """Whether a ranker with this record was trained on anything of a removal; None where the record does not tell."""
    if not known or (known.get("collection") or {}).get("fingerprint") != collection.fingerprint:
        return None
    without = all_of(run for run in earlier_runs(collection, known) if run.anew)
    return (without | removal) != without


def check_references(names: Iterable[str], collection: Collection, removal: Removal) -> None:
    """Refuse a ranker to compare with that learned what is removed, as far as its record tells."""
    for name in names:
        if has_seen(collection, read_record(Path(name)), removal):
            raise UnrankError(f"{name} was trained on what is removed, as its record tells: it is no reference")


def is_fulfilled(
    collection: Collection,
    parts: Partition,
    runs: Sequence[EarlierRun],
    method: Method,
    target: str,
    goal: float,
    now: Measured,
) -> bool:
    """Whether every pair to forget was forgotten before, to the degree that is asked for now: a target that goes by the
    ranker's own MRR is the one that it was brought to. Who asks to train anew wants no less than a ranker that never
    saw it."""

    def removed_by(some: Iterable[EarlierRun]) -> bool:
        gone = collection.pairs[named(collection, all_of(some))[0]]
        return bool(np.isin(collection.pair_keys(parts.forget), collection.pair_keys(gone)).all())

    never_seen = removed_by(run for run in runs if run.anew)
    if never_seen or isinstance(method, Retrain):
        return never_seen
    alike = [run for run in runs if run.facts.get("target") and run.facts.get("target_name") == target]
    if removed_by(alike):
        goal = max(goal, min(run.facts["target"] for run in alike))
    return removed_by(runs) and now.mean <= goal + tolerance(len(now.queries))


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
