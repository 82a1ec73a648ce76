"""Bad teacher: learn from an untrained ranker on the forget pairs, and from the trained one on the kept pairs.

Reference: Chundawat et al., Can Bad Teaching Induce Forgetting? (2023).
Differs: the student learns a teacher's distribution over a list, one relevant document and negatives of its query,
never over a batch of unrelated queries; only some of a query's negatives are used. The untrained teacher is the model
that training began with. `teacher="random"` has random weights throughout, as in the paper on unranking. With
`teacher="disobey"` there is none: the student moves away from the trained one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from torch import Tensor

from unrank.collection.collection import Pairs
from unrank.engine.losses import list_divergence
from unrank.engine.samples import Phase, Samples, Scored, all_present
from unrank.engine.teacher import Teacher
from unrank.methods.base import Method
from unrank.methods.task import Task

NEGATIVES_SEEN = 16
"""Negatives of a query from which its lists are drawn."""


@dataclass(frozen=True)
class BadTeacher(Method):
    """Learns the forget pairs from an untrained teacher and the kept pairs from the original."""

    name = "bad-teacher"

    batch: int = 64
    """Lists in a step."""
    negatives: int = 4
    """Negatives in a list."""
    teacher: Literal["initial", "random", "disobey"] = "initial"
    """The teacher of the forget pairs."""

    @property
    def needs_base(self) -> bool:
        return self.teacher != "disobey"

    def prepare(self, task: Task) -> None:
        taught = task.partition.retain[:, 0]
        if self.teacher == "disobey":
            taught = np.concatenate([taught, task.partition.forget[:, 0]])
        task.limit_negatives(NEGATIVES_SEEN).teacher.learn(taught)

    def plan(self, task: Task) -> Sequence[Phase]:
        task = task.limit_negatives(NEGATIVES_SEEN)
        forget, retain = task.partition.forget, task.partition.retain
        bad = task.teacher if self.teacher == "disobey" else task.untrained(self.teacher)
        sign = -1.0 if self.teacher == "disobey" else 1.0
        draw_forget, draw_kept = partial(self._draw, task, forget, bad), partial(self._draw, task, retain, task.teacher)
        return [
            Phase("unlearn", len(forget), draw_forget, partial(_diverge, sign), self.batch),
            Phase("keep", len(retain), draw_kept, partial(_diverge, 1.0), self.batch),
        ]

    def _draw(self, task: Task, pairs: Pairs, teacher: Teacher, generator: np.random.Generator, epoch: int) -> Samples:
        negatives = {f"negative_{n}": task.negatives.draw(pairs[:, 0], generator) for n in range(self.negatives)}
        return Samples.of({"relevant": all_present(pairs), **negatives}, teacher, list_ranges=False)


def _diverge(sign: float, scored: Scored) -> Tensor:
    return sign * list_divergence(scored.teacher, scored.score, scored.present).mean()
