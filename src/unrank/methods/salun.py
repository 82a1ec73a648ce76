"""SalUn: teach the forget pairs a wrong answer, and let only those weights move that matter most to them.

Reference: Fan et al., SalUn: Empowering Machine Unlearning via Gradient-based Weight Saliency (2024): the mask
1[|∇ℓ_F(θ₀)| ≥ γ], and random labels.
Differs: a wrong answer is a random negative of the query, which is learned as if it were relevant. Weights whose
gradient is 0 do not move, even if they are among the chosen share.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from unrank.engine.losses import list_loss
from unrank.engine.samples import Phase, Samples, Scored, all_present
from unrank.methods.base import Weights
from unrank.methods.contrast import NEGATIVES_SEEN, Contrast, draw_lists
from unrank.methods.task import Task


@dataclass(frozen=True)
class SalientUnlearning(Contrast):
    """Teaches forget pairs a wrong answer, with only the weights that matter most to them."""

    name = "salun"
    limits = MappingProxyType({"alpha": (0.0, math.inf), "share": (0.0, 1.0)})

    share: float = 0.5
    """The share of weights that may move."""

    def forget_loss(self, lists: Scored) -> Tensor:
        return list_loss(lists.score, lists.present, label=1)

    def masks(self, task: Task, gradients: Callable[[Phase], Weights]) -> Weights:
        task, forget = task.limit_negatives(NEGATIVES_SEEN), task.partition.forget

        def draw(generator: np.random.Generator, epoch: int) -> Samples:
            return Samples.of(draw_lists(task, "forget", all_present(forget), self.negatives, generator))

        return largest(gradients(Phase("forget", len(forget), draw, _pair_loss, self.batch)), self.share)


def largest(gradients: Weights, share: float) -> dict[str, Tensor]:
    """Mark the numbers of all weights that are farthest from 0, a share of them; 0 is never marked.

    >>> marked = largest({"a": torch.tensor([1.0, -4.0, 0.0]), "b": torch.tensor([[2.0]])}, 0.5)
    >>> marked["a"].tolist(), marked["b"].tolist()
    ([False, True, False], [[True]])
    """
    sizes = torch.cat([gradient.abs().flatten() for gradient in gradients.values()])
    chosen = round(share * len(sizes))
    least = sizes.kthvalue(len(sizes) - chosen + 1).values if chosen else torch.inf
    return {name: (gradient.abs() >= least) & (gradient != 0) for name, gradient in gradients.items()}


def _pair_loss(scored: Scored) -> Tensor:
    return list_loss(scored.score, scored.present).mean()
