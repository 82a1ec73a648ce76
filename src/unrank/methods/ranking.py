"""Ranking as training does it: a relevant document above a negative of its query, by a margin of 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor
from torch.nn.functional import softplus

from unrank.collection.collection import Pairs
from unrank.engine.losses import margin_loss
from unrank.engine.samples import Phase, Samples, Scored, all_present
from unrank.methods.base import Method
from unrank.methods.task import Task


@dataclass(frozen=True)
class Learning(Method):
    """A method that learns the kept pairs, as training does."""

    batch: int = 256
    """Triples in a step."""
    negatives: int = 8
    """Negatives of a positive in an epoch."""
    together: int = 4
    """Negatives of a positive in the same step, where the positive is scored once."""

    def plan(self, task: Task) -> Sequence[Phase]:
        return [learn(task, task.partition.retain, self.negatives, self.batch, self.together)]


def learn(task: Task, pairs: Pairs, negatives: int, batch: int, together: int = 1) -> Phase:
    """Return a phase that learns pairs, each with fresh negatives."""

    def draw(generator: np.random.Generator, epoch: int) -> Samples:
        return triples(task, pairs, negatives, generator)

    return Phase("learn", negatives * len(pairs), draw, ranking_loss, batch, together)


def planned(method: Method, task: Task) -> Sequence[Phase]:
    """Return the phases of an epoch of a method. With `gru`, kept pairs guard each of them."""
    plan = method.plan(task)
    return [replace(phase, guard=_guard(task, phase)) for phase in plan] if method.gru else plan


def _guard(task: Task, phase: Phase) -> Phase:
    """Return a phase with as many kept pairs as another one has samples, each with a negative."""

    def draw(generator: np.random.Generator, epoch: int) -> Samples:
        return triples(task, task.draw_kept(phase.size, generator)[0], 1, generator)

    return Phase("kept", phase.size, draw, soft_ranking_loss, phase.batch)


def triples(task: Task, pairs: Pairs, negatives: int, generator: np.random.Generator, swapped: bool = False) -> Samples:
    """Draw negatives for each pair. With `swapped`, the negative takes the role of the positive."""
    positive = np.repeat(pairs, negatives, axis=0)
    negative, has = task.negatives.draw(positive[:, 0], generator)
    better, worse = (negative, positive) if swapped else (positive, negative)
    return Samples.of({"positive": all_present(better[has]), "negative": all_present(worse[has])})


def ranking_loss(scored: Scored) -> Tensor:
    """Return the mean margin loss, the loss of training."""
    return margin_loss(scored["positive"].score, scored["negative"].score).mean()


def soft_ranking_loss(scored: Scored) -> Tensor:
    """Return the mean ranking loss without the hinge, so that learned pairs have a gradient too."""
    return softplus(1 - scored["positive"].score + scored["negative"].score).mean()
