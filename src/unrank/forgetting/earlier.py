"""Request after request: what an earlier run made the ranker forget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.partition import Partition, named
from unrank.collection.removal import Removal
from unrank.evaluation.scorecard import Measured
from unrank.forgetting.target import tolerance
from unrank.forgetting.workshop import Workshop
from unrank.rankers.base import Ranker


def is_fulfilled(
    collection: Collection,
    parts: Partition,
    earlier: Removal,
    known: Mapping[str, Any],
    target: str,
    goal: float,
    now: Measured,
) -> bool:
    """Whether every pair to forget was forgotten before, to the degree that is asked for now: a target that goes by the
    ranker's own MRR is the one that it was brought to."""
    gone = collection.pairs[named(collection, earlier)[0]]
    if not np.isin(collection.pair_keys(parts.forget), collection.pair_keys(gone)).all():
        return False
    if known.get("target_name") == target:
        goal = max(goal, known["target"])
    return known.get("method") == "retrain" or now.mean <= goal + tolerance(len(now.queries))


def earlier_mrrs(original: Ranker, student: Ranker, workshop: Workshop) -> dict[str, float | None] | None:
    """What was forgotten before must have stayed so."""
    if not len(workshop.parts.earlier):
        return None
    rankers = {"before": original, "after": student}
    return {when: workshop.judge.earlier_mrr(workshop.scorer(ranker)) for when, ranker in rankers.items()}
