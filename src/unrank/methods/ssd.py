"""SSD: dampen the weights that matter more to the forget pairs than to the kept pairs. It has no steps and no target.

Reference: Foster, Schoepf, Brintrup, Fast Machine Unlearning Without Retraining Through Selective Synaptic Dampening
(2024).
Differs: a weight is compared with its importance to the kept pairs, in five rounds, as the released code for unranking
does. The paper has one round, and all pairs in place of the kept ones (`--preset paper`). Then a quarter of the pairs
can be at most about four times as important as all of them, so `alpha=10` dampens nothing. Importance is the mean, over
batches of 16 triples, of the squared gradient of the soft ranking loss: the hinge has no gradient on a learned pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

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
    presets = MappingProxyType({"paper": {"compared_with": "all", "rounds": 1}})
    limits = MappingProxyType({"alpha": (0.0, math.inf), "strength": (0.0, math.inf)})

    batch: int = 16
    """Triples of one gradient."""
    alpha: float = 10.0
    """How many times as much a weight must matter to the forget pairs as to the others, to be dampened."""
    strength: float = 1.0
    """The paper's lambda: the higher, the less a weight is dampened."""
    compared_with: Literal["kept", "all"] = "kept"
    """The pairs that the forget pairs are compared with."""
    rounds: int = 5

    def plan(self, task: Task) -> Sequence[Phase]:
        """Measure importance on the forget pairs, and on those that they are compared with."""
        others = task.partition.retain
        if self.compared_with == "all":
            others = np.concatenate([task.partition.forget, others])
        return [self._phase(task, "forget", task.partition.forget), self._phase(task, self.compared_with, others)]

    def edit(self, weight: Tensor, importance: Sequence[Tensor]) -> Tensor:
        of_forget, of_others = importance
        factor = (self.strength * of_others / of_forget).clamp(max=1.0)
        return torch.where(of_forget > self.alpha * of_others, factor * weight, weight)

    def _phase(self, task: Task, name: str, pairs: Pairs) -> Phase:
        def draw(generator: np.random.Generator, epoch: int) -> Samples:
            return triples(task, pairs, 1, generator)

        return Phase(name, len(pairs), draw, soft_ranking_loss, self.batch)
