"""UNDIAL: learn the original's lists of the forget pairs, with the score of each forget pair lowered.

Reference: Dong et al., UNDIAL: Self-Distillation with Adjusted Logits for Robust Unlearning in Large Language Models
(2024): the cross-entropy of softmax(s) to softmax(s₀ − β·1[d⁺]).
Differs: a list is a pair and some negatives of its query. As published, nothing holds the kept pairs (`alpha=0`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unrank.engine.samples import Scored
from unrank.methods.contrast import Contrast


@dataclass(frozen=True)
class Undial(Contrast):
    """Learns the original's lists with the scores of forget pairs lowered."""

    name = "undial"
    asks_teacher = True

    alpha: float = 0.0
    beta: float = 10.0
    """How much lower the score of a forget pair is in the lists that are learned."""

    def forget_loss(self, lists: Scored) -> Tensor:
        lowered = torch.cat([lists.teacher[:, :1] - self.beta, lists.teacher[:, 1:]], dim=1)
        wanted = lowered.masked_fill(~lists.present, -torch.inf).softmax(1)
        given = lists.score.masked_fill(~lists.present, -torch.inf).log_softmax(1)
        return -(wanted * given.masked_fill(~lists.present, 0.0)).sum(1)
