"""Task negation: learn the forget pairs alone, and go as far the other way: θ₀ − λ·(θ_F − θ₀).

Reference: Ilharco et al., Editing Models with Task Arithmetic (2023).
Differs: λ is not chosen from a list. After each epoch on forget pairs the run is checked at `strength`, and once it has
crossed the target, the landing finds the λ on the way there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from unrank.engine.samples import Phase
from unrank.engine.training_state import Interval
from unrank.methods.base import Method
from unrank.methods.ranking import learn, soft_ranking_loss
from unrank.methods.task import Task
from unrank.rankers.base import Ranker


@dataclass(frozen=True)
class TaskNegation(Method):
    """Learns the forget pairs alone, and goes as far the other way."""

    name = "task-negation"

    batch: int = 256
    """Triples in a step."""
    negatives: int = 8
    """Negatives of a positive in an epoch."""
    strength: float = 1.0
    """The paper's lambda: how far the other way, as a share of the way that was learned."""

    def plan(self, task: Task) -> Sequence[Phase]:
        """Learn the forget pairs with the soft loss: the hinge has no gradient on a pair that is learned."""
        return [replace(learn(task, task.partition.forget, self.negatives, self.batch), loss=soft_ranking_loss)]

    def walk(self, student: Ranker, steps: Iterator[Interval]) -> Iterator[Interval]:
        begin = [weight.detach().clone() for weight in student.parameters()]
        for interval in steps:
            learned = [weight.detach().clone() for weight in student.parameters()]
            with torch.no_grad():
                for weight, first in zip(student.parameters(), begin, strict=True):
                    weight.copy_(first - self.strength * (weight - first))
            yield interval
            with torch.no_grad():
                for weight, trained in zip(student.parameters(), learned, strict=True):
                    weight.copy_(trained)
