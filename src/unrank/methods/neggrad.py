"""NegGrad: maximise the ranking loss on the forget pairs. Nothing protects the other pairs.

Reference: Golatkar, Achille, Soatto, Eternal Sunshine of the Spotless Net (2020), among others: negative gradient.
Differs: a hinge has no gradient on a pair that is learned already, and such pairs are to be forgotten. So the loss is
soft by default; `loss="hinge"` is for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from unrank.engine.samples import Phase, Samples, Scored
from unrank.methods.base import Method
from unrank.methods.ranking import ranking_loss, soft_ranking_loss, triples
from unrank.methods.task import Task


@dataclass(frozen=True)
class NegGrad(Method):
    """Maximises the ranking loss on the forget pairs."""

    name = "neggrad"

    batch: int = 256
    """Triples in a step."""
    negatives: int = 8
    """Negatives of a positive in an epoch."""
    loss: Literal["soft", "hinge"] = "soft"
    """The loss that is maximised."""

    def plan(self, task: Task) -> Sequence[Phase]:
        def draw(generator: np.random.Generator, epoch: int) -> Samples:
            return triples(task, task.partition.forget, self.negatives, generator)

        return [Phase("climb", self.negatives * len(task.partition.forget), draw, self._climb, self.batch)]

    def _climb(self, scored: Scored) -> Tensor:
        return -(soft_ranking_loss(scored) if self.loss == "soft" else ranking_loss(scored))
