"""CE-U: learn each forget pair's list as if the pair were not in it.

Reference: CE-U, Cross Entropy Unlearning (arXiv 2503.01224): the cross-entropy of softmax(s) to softmax(s), detached,
with the score of the forget pair at −∞.
Differs: a list is a forget pair and some negatives of its query. Random kept pairs are held, with the weight `hold`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from unrank.engine.losses import mean_where
from unrank.engine.samples import Phase, Samples, Scored, all_present
from unrank.methods.base import Method, Task


@dataclass(frozen=True)
class CrossEntropyUnlearning(Method):
    """Learns the lists of the forget pairs as if the pairs were not in them."""

    name = "ce-u"
    limits: ClassVar = {"hold": (0, 10)}

    hold: float = 1.0
    """The weight of the kept pairs."""
    batch: int = 64
    """Forget pairs in a step, each with its negatives and a kept pair."""
    negatives: int = 4
    """Negatives in a list."""

    def plan(self, task: Task) -> Sequence[Phase]:
        forget = task.partition.forget

        def draw(generator: np.random.Generator, epoch: int) -> Samples:
            negatives = [task.negatives.draw(forget[:, 0], generator) for _ in range(self.negatives)]
            lists = {"forget": all_present(forget), **{f"negative_{n}": drawn for n, drawn in enumerate(negatives)}}
            return Samples.of(lists | {"kept": task.draw_kept(len(forget), generator)}, task.teacher)

        return [Phase("unlearn", len(forget), draw, self._loss, self.batch)]

    def _loss(self, scored: Scored) -> Tensor:
        score, present = scored.score[:, :-1], scored.present[:, :-1]
        given = score.masked_fill(~present, -torch.inf).log_softmax(1).masked_fill(~present, 0.0)
        others = torch.cat([torch.zeros_like(present[:, :1]), present[:, 1:]], dim=1)
        wanted = score.detach().masked_fill(~others, -torch.inf).softmax(1)
        kept, has_negatives = scored["kept"], others.any(1)
        forget = mean_where(-(wanted.nan_to_num() * given).sum(1), has_negatives)
        return forget + self.hold * mean_where(kept.drift.abs(), kept.present)
