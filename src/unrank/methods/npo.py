"""NPO: make forget pairs less likely than the original has them, the less strongly the farther they are gone.

Reference: Zhang et al., Negative Preference Optimization (2024): −(2/β)·E_F log σ(β·(ℓ − ℓ₀)) + α·E_R[ℓ], where ℓ₀ is
the original's loss.
Differs: ℓ is −log p of a pair within a list of it and some negatives of its query.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import logsigmoid

from unrank.engine.losses import list_loss
from unrank.engine.samples import Scored
from unrank.methods.contrast import Contrast


@dataclass(frozen=True)
class NegativePreference(Contrast):
    """Makes forget pairs less likely than the original has them."""

    name = "npo"
    asks_teacher = True

    beta: float = 0.1
    """The higher, the sooner a pair that is less likely is let go."""

    def forget_loss(self, lists: Scored) -> Tensor:
        student, original = (list_loss(scores, lists.present) for scores in (lists.score, lists.teacher))
        return -2 / self.beta * logsigmoid(self.beta * (student - original))
