"""Retrain: the same training, from the initial model, on the kept pairs alone. The yardstick of all forgetting.

Training a ranker is this with nothing removed. Each epoch takes every kept pair with fresh random negatives of its
query; training is over when the ranker has learned enough of what it was shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from unrank.engine.losses import margin_loss
from unrank.engine.samples import Phase, Samples, Scored
from unrank.methods.base import Method, Task, all_present


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
    enough: float = 0.95
    """Training stops at this MRR on a fixed sample of the training queries."""

    def plan(self, task: Task) -> Sequence[Phase]:
        def draw(generator: np.random.Generator) -> Samples:
            positives = np.repeat(task.parts.retain, self.negatives, axis=0)
            negatives, has = task.negatives.draw(positives[:, 0], generator)
            return Samples.of(all_present(positives[has]), all_present(negatives[has]))

        return [Phase("learn", self.negatives * len(task.parts.retain), draw, ranking_loss, self.batch)]


def ranking_loss(scored: Scored) -> Tensor:
    positive, negative = scored.score.unbind(1)
    return margin_loss(positive, negative).mean()
