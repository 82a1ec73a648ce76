"""SSD: dampen, once, the weights that matter more to the forget pairs than to all pairs. It has no steps and no target.

Reference: Foster, Schoepf, Brintrup, Fast Machine Unlearning Without Retraining Through Selective Synaptic Dampening
(2024).
Differs: importance is the mean, over batches of 16 triples, of the squared gradient of the soft ranking loss, because
the hinge has no gradient on a pair that is learned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from unrank.collection.collection import Pairs
from unrank.engine.samples import Phase, Samples
from unrank.methods.base import OneShot
from unrank.methods.ranking import soft_ranking_loss, triples
from unrank.methods.task import Task


@dataclass(frozen=True)
class SelectiveDampening(OneShot):
    """Dampens the weights that matter most to the forget pairs."""

    name = "ssd"
    limits = MappingProxyType({"alpha": (0.0, math.inf), "strength": (0.0, math.inf)})

    batch: int = 16
    """Triples of one gradient."""
    alpha: float = 10.0
    """How many times as much a weight must matter to the forget pairs as to all, to be dampened."""
    strength: float = 1.0
    """The paper's lambda: the higher, the less a weight is dampened."""

    def plan(self, task: Task) -> Sequence[Phase]:
        """Measure importance on the forget pairs, and on all pairs."""
        everything = np.concatenate([task.partition.forget, task.partition.retain])
        return [self._phase(task, "forget", task.partition.forget), self._phase(task, "all", everything)]

    def edit(self, weight: Tensor, importance: Sequence[Tensor]) -> Tensor:
        of_forget, of_all = importance
        factor = (self.strength * of_all / of_forget).clamp(max=1.0)
        return torch.where(of_forget > self.alpha * of_all, factor * weight, weight)

    def _phase(self, task: Task, name: str, pairs: Pairs) -> Phase:
        def draw(generator: np.random.Generator, epoch: int) -> Samples:
            return triples(task, pairs, 1, generator)

        return Phase(name, len(pairs), draw, soft_ranking_loss, self.batch)
