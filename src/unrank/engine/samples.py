"""Samples: what one phase of an epoch scores and steps on.

A sample is a row of pairs, one a role (a positive and its negative; a forget pair and its anchors). A phase
draws its samples anew each epoch and says what loss their scores have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrank.collection.collection import Pairs
from unrank.engine.teacher import View
from unrank.rankers.fast.pinned_memory import to_device


@dataclass(frozen=True)
class Samples:
    """Rows of pairs. A role that a row does not have is not scored."""

    pairs: Pairs  # [samples, roles, 2]
    present: NDArray[np.bool_]  # [samples, roles]
    teacher: View | None = None  # each [samples, roles]

    @classmethod
    def of(cls, *roles: tuple[Pairs, NDArray[np.bool_]], teacher: Callable[[Pairs], View] | None = None) -> Samples:
        """Put roles side by side; with a teacher, what it says of each pair."""
        pairs = np.stack([pairs for pairs, _ in roles], axis=1)
        present = np.stack([present for _, present in roles], axis=1)
        if teacher is None:
            return cls(pairs, present)
        seen = teacher(pairs[present])
        return cls(pairs, present, View(*(_spread(values, present) for values in seen)))

    def __len__(self) -> int:
        return len(self.pairs)

    def __add__(self, other: Samples) -> Samples:
        """Samples of the same roles, neither with a teacher."""
        assert self.teacher is None and other.teacher is None
        return Samples(np.concatenate([self.pairs, other.pairs]), np.concatenate([self.present, other.present]))

    def sinking(self, rows: NDArray[np.bool_], role: int) -> Samples:
        """The same samples; in these rows the place of a role is the lowest of its query."""
        assert self.teacher is not None
        score = self.teacher.score.copy()
        score[rows, role] = self.teacher.low[rows, role]
        return replace(self, teacher=self.teacher._replace(score=score))

    def take(self, rows: NDArray[np.int64]) -> Samples:
        teacher = None if self.teacher is None else View(*(values[rows] for values in self.teacher))
        return Samples(self.pairs[rows], self.present[rows], teacher)


@dataclass(frozen=True)
class Scored:
    """A batch of samples with the student's scores, as tensors. Each [batch, roles]"""

    score: Tensor
    present: Tensor
    teacher: Tensor
    low: Tensor
    span: Tensor

    @classmethod
    def of(cls, samples: Samples, scores: Tensor) -> Scored:
        """`scores` are those of the pairs that are present, row by row."""
        present = to_device(samples.present, scores.device)
        spread = torch.zeros(samples.present.shape, device=scores.device)
        spread = spread.masked_scatter(present, scores)
        if samples.teacher is None:
            zero = torch.zeros_like(spread)
            return cls(spread, present, zero, zero, zero)
        teacher = (to_device(values, scores.device) for values in samples.teacher)
        return cls(spread, present, *teacher)


@dataclass(frozen=True)
class Phase:
    """A part of an epoch: how many samples and which, how many a step, and what loss."""

    name: str
    size: int
    draw: Callable[[np.random.Generator], Samples]
    loss: Callable[[Scored], Tensor]
    batch: int
    together: int = 1
    """How many samples that follow one another go into the same step: what they share is scored once."""


def _spread(values: NDArray[np.float32], present: NDArray[np.bool_]) -> NDArray[np.float32]:
    whole = np.ones(present.shape, np.float32)
    whole[present] = values
    return whole
