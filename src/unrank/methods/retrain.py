"""Retrain: the same training, from the initial model, on the kept pairs alone. The yardstick of all forgetting.

Training a ranker is this with nothing removed. Each epoch takes every kept pair with fresh random negatives of its
query; training is over when the ranker has learned enough of what it was shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unrank.engine.samples import Phase
from unrank.methods.base import Method, Task
from unrank.methods.ranking import learn


@dataclass(frozen=True)
class Retrain(Method):
    name = "retrain"
    start = "initial"
    steered = False

    epochs: int = 12
    batch: int = 256
    """Triples a step."""
    negatives: int = 8
    """Negatives a positive and epoch."""
    together: int = 4
    """How many of them are in the same step, where their positive is then scored once."""
    enough: float = 0.95
    """Training stops at this MRR on a fixed sample of the training queries."""

    def plan(self, task: Task) -> Sequence[Phase]:
        return [learn(task, task.parts.retain, self.negatives, self.batch, self.together)]
