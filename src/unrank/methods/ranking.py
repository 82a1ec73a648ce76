"""Ranking as training has it: a relevant document above a negative of its query, by a margin of 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor
from torch.nn.functional import softplus

from unrank.collection.collection import Pairs
from unrank.engine.losses import margin_loss
from unrank.engine.samples import Phase, Samples, Scored
from unrank.methods.base import Method, Task, all_present


def learn(task: Task, pairs: Pairs, negatives: int, batch: int, together: int = 1) -> Phase:
    """A phase that learns pairs, each with so many fresh negatives, so many of them in one step."""

    def draw(generator: np.random.Generator) -> Samples:
        return triples(task, pairs, negatives, generator)

    return Phase("learn", negatives * len(pairs), draw, ranking_loss, batch, together)


@dataclass(frozen=True)
class Learning(Method):
    """A method that learns what is kept, as training does."""

    batch: int = 256
    """Triples a step."""
    negatives: int = 8
    """Negatives a positive and epoch."""
    together: int = 4
    """How many of them are in the same step, where their positive is then scored once."""

    def plan(self, task: Task) -> Sequence[Phase]:
        return [learn(task, task.partition.retain, self.negatives, self.batch, self.together)]


def triples(task: Task, pairs: Pairs, negatives: int, generator: np.random.Generator, swapped: bool = False) -> Samples:
    """Each pair so many times with a random negative of its query; swapped, the negative stands for the better one."""
    positive = np.repeat(pairs, negatives, axis=0)
    negative, has = task.negatives.draw(positive[:, 0], generator)
    roles = [all_present(positive[has]), all_present(negative[has])]
    return Samples.of(*(reversed(roles) if swapped else roles))


def ranking_loss(scored: Scored) -> Tensor:
    positive, negative = scored.score.unbind(1)
    return margin_loss(positive, negative).mean()


def soft_ranking_loss(scored: Scored) -> Tensor:
    """The same without the hinge: a pair that is learned already still has a gradient."""
    positive, negative = scored.score.unbind(1)
    return softplus(1 - positive + negative).mean()
