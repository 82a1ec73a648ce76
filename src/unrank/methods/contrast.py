"""Contrast: steps that push forget pairs away and keep as many other pairs. The base of several methods.

A pair is scored in a list: the pair and some negatives of its query. Its loss ℓ is −log p of the pair, by the softmax
of the list. A step is on the method's loss of forget pairs, plus `alpha` times the mean ℓ of random kept pairs.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from torch import Tensor

from unrank.engine.losses import list_loss, mean_where
from unrank.engine.samples import Drawn, Phase, Samples, Scored, all_present
from unrank.methods.base import Method
from unrank.methods.task import Task

NEGATIVES_SEEN = 16
"""Negatives of a query from which its lists are drawn, so that a teacher has few pairs to score."""


@dataclass(frozen=True)
class Contrast(Method):
    """A method whose steps have a loss of forget pairs and the ranking loss of kept pairs."""

    asks_teacher: ClassVar[bool] = False
    """Whether the loss of forget pairs needs the original's scores."""
    limits = MappingProxyType({"alpha": (0.0, math.inf)})

    batch: int = 64
    """Forget pairs in a step, and as many kept pairs."""
    negatives: int = 4
    """Negatives in a list."""
    alpha: float = 1.0
    """The weight of the kept pairs."""

    @abstractmethod
    def forget_loss(self, lists: Scored) -> Tensor:
        """Return the loss of the list of each forget pair, which is in the first column. [batch, list] -> [batch]"""

    def prepare(self, task: Task) -> None:
        if self.asks_teacher:
            task.limit_negatives(NEGATIVES_SEEN).teacher.learn(task.partition.forget[:, 0])

    def plan(self, task: Task) -> Sequence[Phase]:
        task, size = task.limit_negatives(NEGATIVES_SEEN), len(task.partition.forget)

        def draw(generator: np.random.Generator, epoch: int) -> Samples:
            forget = draw_lists(task, "forget", all_present(task.partition.forget), self.negatives, generator)
            kept, has = task.draw_kept(size, generator)
            roles = forget | draw_lists(task, "kept", (kept, has & (self.alpha > 0)), self.negatives, generator)
            return Samples.of(roles, task.teacher if self.asks_teacher else None, list_ranges=False, taught=[*forget])

        return [Phase("contrast", size, draw, self._loss, self.batch)]

    def _loss(self, scored: Scored) -> Tensor:
        forget, kept = lists_of(scored, "forget"), lists_of(scored, "kept")
        kept_loss = mean_where(list_loss(kept.score, kept.present), kept.present[:, 0])
        return self.forget_loss(forget).mean() + self.alpha * kept_loss


def draw_lists(task: Task, name: str, pairs: Drawn, negatives: int, generator: np.random.Generator) -> dict[str, Drawn]:
    """Draw the list of each pair: a role for the pair, and one for each negative of its query."""
    rows, has_pair = pairs
    roles = {name: pairs}
    for number in range(1, negatives + 1):
        drawn, has = task.negatives.draw(rows[:, 0], generator)
        roles[f"{name}_{number}"] = drawn, has & has_pair
    return roles


def lists_of(scored: Scored, name: str) -> Scored:
    """Return the scores of the lists that were drawn under a name."""
    return scored.only([role for role in scored.roles if role.partition("_")[0] == name])
