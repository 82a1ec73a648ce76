"""Request after request: what an earlier run made the ranker forget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.partition import Partition, named
from unrank.collection.removal import Removal
from unrank.errors import UnrankError
from unrank.evaluation.scorecard import SetMetrics
from unrank.forgetting.hashes import recognised_of_each
from unrank.forgetting.target import tolerance
from unrank.methods.base import Method
from unrank.record import PreviousRequest, Record, requests_of


@dataclass(frozen=True)
class EarlierRun:
    """What an earlier run removed from the ranker, and how."""

    removal: Removal
    request: PreviousRequest

    @property
    def anew(self) -> bool:
        """Whether the ranker never saw it since."""
        return self.request.never_seen


def earlier_runs(collection: Collection, record: Record | None) -> list[EarlierRun]:
    """The runs that a ranker's record tells of, with what they removed of this collection."""
    requests = requests_of(record)
    return [EarlierRun(*run) for run in zip(recognised_of_each(collection, requests), requests, strict=True)]


def all_of(runs: Iterable[EarlierRun]) -> Removal:
    return Removal.union(run.removal for run in runs)


def has_seen(collection: Collection, record: Record | None, removal: Removal) -> bool | None:
    """Whether a ranker with this record was trained on anything of a removal; None where the record does not tell."""
    if record is None or record.collection.fingerprint != collection.fingerprint:
        return None
    without = all_of(run for run in earlier_runs(collection, record) if run.anew)
    return (without | removal) != without


def check_references(names: Iterable[str], collection: Collection, removal: Removal) -> None:
    """Refuse a ranker to compare with that learned what is removed, as far as its record tells."""
    for name in names:
        if has_seen(collection, Record.read(Path(name)), removal):
            raise UnrankError(f"{name} was trained on what is removed, as its record tells: it is no reference")


def is_fulfilled(
    collection: Collection,
    partition: Partition,
    runs: Sequence[EarlierRun],
    method: Method,
    target: str,
    goal: float,
    now: SetMetrics,
) -> bool:
    """Whether every pair to forget was forgotten before, to the degree that is asked for now: a target that goes by the
    ranker's own MRR is the one that it was brought to. Who asks to train anew wants no less than a ranker that never
    saw it."""

    def removed_by(some: Iterable[EarlierRun]) -> bool:
        gone = collection.pairs[named(collection, all_of(some))[0]]
        return bool(np.isin(collection.pair_keys(partition.forget), collection.pair_keys(gone)).all())

    never_seen = removed_by(run for run in runs if run.anew)
    if never_seen or method.run_kind == "training":
        return never_seen
    alike = [run for run in runs if run.request.target and run.request.target_name == target]
    if removed_by(alike):
        goal = max(goal, min(run.request.target or goal for run in alike))
    return removed_by(runs) and now.mean <= goal + tolerance(len(now.queries))
