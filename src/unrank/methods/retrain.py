"""Retrain: the same training, from the initial model, on the kept pairs alone. The yardstick of all forgetting.

Training a ranker is this with nothing removed. Each epoch takes every kept pair with fresh random negatives of its
query; training is over when the ranker has learned enough of what it was shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from unrank.methods.ranking import Learning


@dataclass(frozen=True)
class Retrain(Learning):
    name = "retrain"
    start = "initial"
    run_kind = "training"

    epochs: int = 12
    enough: float = 0.95
    """Training stops at this MRR on a fixed sample of the training queries."""

    def has_learned(self, mrr: float) -> bool:
        return mrr >= self.enough
