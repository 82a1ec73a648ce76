"""Bad teacher: learn from an untrained ranker on the forget pairs, and from the trained one on the kept ones.

Reference: Chundawat et al., Can Bad Teaching Induce Forgetting? (2023).
Differs: what is learned is a teacher's distribution over a list, one relevant document and negatives of its query,
never over a batch of unrelated queries; some of a query's negatives are looked at, not all. The untrained teacher is
the model that training began with; `teacher="random"` has random weights throughout, as in the paper on unranking, and
`teacher="disobey"` is none: the student moves away from the trained one.
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
from unrank.engine.samples import Phase, Samples, Scored
from unrank.engine.teacher import Teacher
from unrank.methods.base import Method, Task, all_present

LOOKED_AT = 16
"""Negatives of a query that its lists are drawn from."""


@dataclass(frozen=True)
class BadTeacher(Method):
    name = "bad-teacher"

    batch: int = 64
    """Lists a step."""
    negatives: int = 4
    """Negatives a list."""
    teacher: Literal["initial", "random", "disobey"] = "initial"
    """Who teaches the forget pairs."""

    @property
    def needs_base(self) -> bool:
        return self.teacher != "disobey"

    def prepare(self, task: Task) -> None:
        taught = task.partition.retain[:, 0]
        if self.teacher == "disobey":
            taught = np.concatenate([taught, task.partition.forget[:, 0]])
        task.glancing(LOOKED_AT).teacher.learn(taught)

    def plan(self, task: Task) -> Sequence[Phase]:
        task = task.glancing(LOOKED_AT)
        forget, retain = task.partition.forget, task.partition.retain
        bad = task.teacher if self.teacher == "disobey" else task.untrained(self.teacher == "random")
        sign = -1.0 if self.teacher == "disobey" else 1.0
        return [
            Phase("unlearn", len(forget), partial(self._draw, task, forget, bad), partial(_diverge, sign), self.batch),
            Phase("keep", len(retain), partial(self._draw, task, retain, task.teacher), _diverge_one, self.batch),
        ]

    def _draw(self, task: Task, pairs: Pairs, teacher: Teacher, generator: np.random.Generator) -> Samples:
        negatives = [task.negatives.draw(pairs[:, 0], generator) for _ in range(self.negatives)]
        return Samples.of(all_present(pairs), *negatives, teacher=teacher.of_pairs)


def _diverge(sign: float, scored: Scored) -> Tensor:
    return sign * list_divergence(scored.teacher, scored.score, scored.present).mean()


_diverge_one = partial(_diverge, 1.0)
