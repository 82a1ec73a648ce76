"""SimNPO: make forget pairs less likely, the less strongly the less likely they are. It needs no teacher.

Reference: Fan et al., Simplicity Prevails: Rethinking Negative Preference Optimization for LLM Unlearning (2024):
−(2/β)·E_F log σ(β·(ℓ − δ)) + α·E_R[ℓ].
Differs: ℓ is −log p of a pair within a list of it and some negatives of its query, so no length divides it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor
from torch.nn.functional import logsigmoid

from unrank.engine.losses import list_loss
from unrank.engine.samples import Scored
from unrank.methods.contrast import Contrast


@dataclass(frozen=True)
class SimplePreference(Contrast):
    """Makes forget pairs less likely, without a teacher."""

    name = "simnpo"
    limits = MappingProxyType({"alpha": (0.0, math.inf), "delta": (0.0, math.inf)})

    beta: float = 4.5
    """The higher, the sooner a pair is let go."""
    delta: float = 0.0
    """The loss of a pair beyond which it is let go."""

    def forget_loss(self, lists: Scored) -> Tensor:
        loss = list_loss(lists.score, lists.present)
        return -2 / self.beta * logsigmoid(self.beta * (loss - self.delta))
