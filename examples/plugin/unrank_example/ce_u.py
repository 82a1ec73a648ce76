"""NegGrad+: lower the ranking loss on kept pairs and raise it on the forget pairs, in the same steps.

Reference: Kurmanji et al., Towards Unbounded Machine Unlearning (2023): α·E_R[ℓ] − (1 − α)·E_F[ℓ].
Differs: ℓ is the ranking loss of a pair and a negative of its query, without the hinge: a pair that is learned already
has a gradient too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor
from torch.nn.functional import softplus

from unrank.engine.losses import mean_where
from unrank.engine.samples import Phase, Samples, Scored, all_present
from unrank.methods.base import Method, Task


@dataclass(frozen=True)
class NegGradPlus(Method):
    """Lowers the ranking loss on kept pairs and raises it on the forget pairs."""

    name = "neggrad-plus"
    limits: ClassVar = {"alpha": (0, 1)}

    alpha: float = 0.9
    """The weight of the kept pairs; 0 is plain NegGrad, 1 plain training."""
    batch: int = 64
    """Forget pairs in a step, each with a kept pair and two negatives."""
    negatives: int = 4
    """Negatives of a forget pair in an epoch."""

    def plan(self, task: Task) -> Sequence[Phase]:
        forget = np.repeat(task.partition.forget, self.negatives, axis=0)

        def draw(generator: np.random.Generator, epoch: int) -> Samples:
            kept, has_kept = task.draw_kept(len(forget), generator)
            negative, has_negative = task.negatives.draw(kept[:, 0], generator)
            return Samples.of(
                {
                    "forget": all_present(forget),
                    "forget_negative": task.negatives.draw(forget[:, 0], generator),
                    "kept": (kept, has_kept),
                    "kept_negative": (negative, has_kept & has_negative),
                }
            )

        return [Phase("contrast", len(forget), draw, self._loss, self.batch)]

    def _loss(self, scored: Scored) -> Tensor:
        kept = _ranking_loss(scored["kept"], scored["kept_negative"])
        forget = _ranking_loss(scored["forget"], scored["forget_negative"])
        return self.alpha * kept - (1 - self.alpha) * forget


def _ranking_loss(relevant: Scored, negative: Scored) -> Tensor:
    losses = softplus(1 - relevant.score + negative.score)
    return mean_where(losses, relevant.present & negative.present)
