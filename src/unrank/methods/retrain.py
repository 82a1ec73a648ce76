"""Retrain: repeat the training from the initial model, on the kept pairs alone. The reference of all unlearning.

To train a ranker is to retrain it with nothing removed. An epoch takes every kept pair with fresh random negatives of
its query. Training stops when the ranker has learned enough of its training queries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from unrank.engine.loop import Schedule
from unrank.methods.ranking import Learning

WARM_UP = 10
"""The least steps over which a rate that falls rises first."""


@dataclass(frozen=True)
class Retrain(Learning):
    """Trains again, from the initial model, on the kept pairs."""

    name = "retrain"
    start = "initial"
    run_kind = "training"

    epochs: int = 12
    enough: float = 0.95
    """Training stops at this MRR on a fixed sample of the training queries."""
    falls: bool = False
    """Whether the rate falls to a tenth over all epochs, after a few steps in which it rises."""

    def schedule(self, seed: int, check_every: int | None = None) -> Schedule:
        schedule = replace(super().schedule(seed, check_every), ramps=True)
        return replace(schedule, falls=True, warm_up=max(WARM_UP, self.warm_up)) if self.falls else schedule

    def has_learned(self, mrr: float) -> bool:
        return mrr >= self.enough
