"""NegGrad: climb the ranking loss on the forget pairs. Nothing holds the rest.

Reference: Golatkar, Achille, Soatto, Eternal Sunshine of the Spotless Net (2020), among others: negative gradient.
Differs: a hinge has no gradient on a pair that is learned already, which is the very pair to forget, so the loss is
soft by default; `loss="hinge"` is for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from unrank.engine.samples import Phase, Samples, Scored
from unrank.methods.base import Method, Task
from unrank.methods.ranking import ranking_loss, soft_ranking_loss, triples


@dataclass(frozen=True)
class NegGrad(Method):
    name = "neggrad"

    batch: int = 256
    """Triples a step."""
    negatives: int = 8
    """Negatives a positive and epoch."""
    loss: Literal["soft", "hinge"] = "soft"
    """What is climbed."""

    def plan(self, task: Task) -> Sequence[Phase]:
        def draw(generator: np.random.Generator) -> Samples:
            return triples(task, task.partition.forget, self.negatives, generator)

        return [Phase("climb", self.negatives * len(task.partition.forget), draw, self._climb, self.batch)]

    def _climb(self, scored: Scored) -> Tensor:
        return -(soft_ranking_loss(scored) if self.loss == "soft" else ranking_loss(scored))
