"""SCRUB: move away from the original's lists of the forget pairs, and back to its lists of the kept pairs, in turn.

Reference: Kurmanji et al., Towards Unbounded Machine Unlearning (2023): on R minimise α·KL(p₀‖p) + γ·ℓ, and in some
epochs maximise KL(p₀‖p) on F before that.
Differs: a list is a pair and some negatives of its query. The first epoch has no forget pairs: the student is the
original there, so the divergence has no gradient. The rewinding of SCRUB+R, back to the epoch with the error of unseen
data, is what the target and the landing do in every method here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np
from torch import Tensor

from unrank.collection.collection import Pairs
from unrank.engine.losses import list_divergence, list_loss
from unrank.engine.samples import Phase, Samples, Scored, all_present
from unrank.methods.base import Method
from unrank.methods.contrast import NEGATIVES_SEEN, draw_lists
from unrank.methods.task import Task


@dataclass(frozen=True)
class Scrub(Method):
    """Moves away from the original on forget pairs and stays with it on kept pairs."""

    name = "scrub"
    limits = MappingProxyType(dict.fromkeys(["alpha", "gamma", "push_epochs"], (0.0, math.inf)))

    batch: int = 128
    """Lists of kept pairs in a step."""
    push_batch: int = 32
    """Lists of forget pairs in a step."""
    negatives: int = 4
    """Negatives in a list."""
    alpha: float = 0.001
    """The weight of the distance to the original on kept pairs."""
    gamma: float = 0.99
    """The weight of the ranking loss of kept pairs."""
    push_epochs: int = 10
    """The epochs, from the second on, that also move away on forget pairs. Those after them only keep."""

    def prepare(self, task: Task) -> None:
        queries = np.concatenate([task.partition.forget, task.partition.retain])[:, 0]
        task.limit_negatives(NEGATIVES_SEEN).teacher.learn(queries)

    def plan(self, task: Task) -> Sequence[Phase]:
        task = task.limit_negatives(NEGATIVES_SEEN)
        forget, retain = task.partition.forget, task.partition.retain
        push, keep = partial(self._draw, task, forget, True), partial(self._draw, task, retain, False)
        return [
            Phase("push", len(forget), push, _push_loss, self.push_batch),
            Phase("keep", len(retain), keep, self._keep_loss, self.batch),
        ]

    def _draw(self, task: Task, pairs: Pairs, push: bool, generator: np.random.Generator, epoch: int) -> Samples:
        """Draw a list for each pair; none for a pair that is pushed if the epoch only keeps."""
        some = pairs if not push or 1 < epoch <= 1 + self.push_epochs else pairs[:0]
        lists = draw_lists(task, "pair", all_present(some), self.negatives, generator)
        return Samples.of(lists, task.teacher, list_ranges=False)

    def _keep_loss(self, scored: Scored) -> Tensor:
        apart = list_divergence(scored.teacher, scored.score, scored.present).mean()
        return self.alpha * apart + self.gamma * list_loss(scored.score, scored.present).mean()


def _push_loss(scored: Scored) -> Tensor:
    return -list_divergence(scored.teacher, scored.score, scored.present).mean()
