"""Measuring a ranker, with a removal or without one."""

from __future__ import annotations

from unrank.collection.collection import Collection
from unrank.collection.partition import partition
from unrank.collection.removal import Removal
from unrank.engine.runtime import Device, Progress
from unrank.evaluation.scorecard import Scorecard
from unrank.forgetting.workshop import Workshop
from unrank.rankers.base import Ranker


def evaluate(
    ranker: Ranker,
    collection: Collection,
    removal: Removal | None = None,
    *,
    device: Device = "auto",
    progress: Progress | None = None,
) -> Scorecard:
    """The scorecard of a ranker; without a removal all training pairs are disjoint."""
    parts = partition(collection, removal) if removal is not None else None
    return Workshop.open(ranker, collection, parts, device, progress).judge.scorecard(ranker)
