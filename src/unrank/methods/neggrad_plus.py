"""NegGrad+: lower the loss of kept pairs and raise that of the forget pairs, in the same steps.

Reference: Kurmanji et al., Towards Unbounded Machine Unlearning (2023): α·E_R[ℓ] − (1 − α)·E_F[ℓ].
Differs: ℓ is −log p of a pair within a list of it and some negatives of its query.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from unrank.engine.losses import list_loss
from unrank.engine.samples import Scored
from unrank.methods.contrast import Contrast


@dataclass(frozen=True)
class NegGradPlus(Contrast):
    """Lowers the loss of kept pairs and raises that of the forget pairs."""

    name = "neggrad-plus"
    limits = MappingProxyType({"alpha": (0.0, 1.0)})

    alpha: float = 0.9
    """The weight of the kept pairs; that of the forget pairs is 1 less it."""

    def forget_loss(self, lists: Scored) -> Tensor:
        return -(1 - self.alpha) * list_loss(lists.score, lists.present)
