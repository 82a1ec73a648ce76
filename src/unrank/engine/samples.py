"""Samples: the pairs that one phase of an epoch scores and steps on.

A sample is a row of pairs, one for each role: a positive and its negative, or a forget pair and its anchors. A phase
draws its samples anew in each epoch and computes a loss from their scores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrank.collection.collection import Pairs
from unrank.engine.teacher import Teacher, TeacherScores
from unrank.errors import UnknownName
from unrank.rankers.fast.pinned_memory import to_device

Drawn = tuple[Pairs, NDArray[np.bool_]]
"""A pair for each sample, and whether the sample has one."""


def all_present(pairs: Pairs) -> Drawn:
    """Return pairs of which every sample has one."""
    return pairs, np.ones(len(pairs), bool)


@dataclass(frozen=True)
class Samples:
    """Rows of pairs, a column for each role. A role that a row lacks is not scored."""

    roles: tuple[str, ...]
    pairs: Pairs  # [samples, roles, 2]
    present: NDArray[np.bool_]  # [samples, roles]
    teacher: TeacherScores | None = None  # each [samples, roles]

    @classmethod
    def of(
        cls,
        roles: Mapping[str, Drawn],
        teacher: Teacher | None = None,
        list_ranges: bool = True,
        taught: Collection[str] | None = None,
    ) -> Samples:
        """Join roles into samples, and ask the teacher, if there is one, for the score of every pair.

        With `list_ranges` it is also asked for the lowest score and the range of each query's list. With `taught` it is
        asked for these roles only.
        """
        pairs = np.stack([pairs for pairs, _ in roles.values()], axis=1)
        present = np.stack([present for _, present in roles.values()], axis=1)
        if teacher is None:
            return cls(tuple(roles), pairs, present)
        asked = present if taught is None else present & np.array([role in taught for role in roles])
        answer = teacher.ask(pairs[asked], list_ranges)
        return cls(tuple(roles), pairs, present, TeacherScores(*(_spread(values, asked) for values in answer)))

    def __len__(self) -> int:
        return len(self.pairs)

    def __add__(self, other: Samples) -> Samples:
        """Join samples of the same roles, neither with a teacher."""
        assert self.teacher is None and other.teacher is None and self.roles == other.roles
        joined = np.concatenate([self.pairs, other.pairs]), np.concatenate([self.present, other.present])
        return Samples(self.roles, *joined)

    def lowered(self, role: str, rows: NDArray[np.bool_]) -> Samples:
        """Return these samples with the list's lowest score as the teacher's score of a role, in some rows."""
        assert self.teacher is not None
        column = _column(self.roles, role)
        wanted = np.where(rows, self.teacher.list_min[:, column], self.teacher.score[:, column])
        return self.wanting(role, wanted)

    def wanting(self, role: str, wanted: NDArray[np.float32]) -> Samples:
        """Return these samples with other scores as the teacher's scores of a role."""
        assert self.teacher is not None
        score = self.teacher.score.copy()
        score[:, _column(self.roles, role)] = wanted
        return replace(self, teacher=self.teacher._replace(score=score))

    def take(self, rows: NDArray[np.int64]) -> Samples:
        teacher = None if self.teacher is None else TeacherScores(*(values[rows] for values in self.teacher))
        return Samples(self.roles, self.pairs[rows], self.present[rows], teacher)


@dataclass(frozen=True)
class Scored:
    """A batch of samples with the student's scores, as tensors. Each [batch, roles]; of one role [batch]."""

    roles: tuple[str, ...]
    score: Tensor
    present: Tensor
    teacher: Tensor
    list_min: Tensor
    list_range: Tensor

    @classmethod
    def of(cls, samples: Samples, scores: Tensor) -> Scored:
        """Join samples with the scores of the pairs that are present, row by row."""
        present = to_device(samples.present, scores.device)
        spread = torch.zeros(samples.present.shape, device=scores.device)
        spread = spread.masked_scatter(present, scores)
        if samples.teacher is None:
            zero = torch.zeros_like(spread)
            return cls(samples.roles, spread, present, zero, zero, zero)
        teacher = (to_device(values, scores.device) for values in samples.teacher)
        return cls(samples.roles, spread, present, *teacher)

    def only(self, roles: Collection[str]) -> Scored:
        """Return the scores of some roles. Each [batch, roles]"""
        columns = [number for number, role in enumerate(self.roles) if role in roles]
        tensors = self.score, self.present, self.teacher, self.list_min, self.list_range
        return Scored(tuple(self.roles[column] for column in columns), *(values[:, columns] for values in tensors))

    def __getitem__(self, role: str) -> Scored:
        """Return the scores of one role."""
        column = _column(self.roles, role)
        columns = self.score, self.present, self.teacher, self.list_min, self.list_range
        return Scored((role,), *(values[:, column] for values in columns))

    @property
    def height(self) -> Tensor:
        """The difference of each score and the lowest score of its list, in units of the list's range."""
        return (self.score - self.list_min) / self.list_range

    @property
    def drift(self) -> Tensor:
        """The difference of each score and the teacher's, in units of the list's range."""
        return (self.score - self.teacher) / self.list_range

    def teacher_with_lowest(self, role: str) -> Tensor:
        """Return the teacher's scores, with the lowest score of the list in place of one role's."""
        column = _column(self.roles, role)
        before, after = self.teacher[:, :column], self.teacher[:, column + 1 :]
        return torch.cat([before, self.list_min[:, column : column + 1], after], dim=1)


@dataclass(frozen=True)
class Phase:
    """A part of an epoch: its samples and their loss."""

    name: str
    size: int
    """The number of samples of an epoch, or about that."""
    draw: Callable[[np.random.Generator, int], Samples]
    """Draws the samples of an epoch, from a generator and the number of the epoch. The first epoch is 1."""
    loss: Callable[[Scored], Tensor]
    batch: int
    """Samples of a step."""
    together: int = 1
    """Consecutive samples that go into the same step. A pair that they share is scored once."""
    guard: Phase | None = None
    """A phase whose loss the steps of this one must not raise; see `projection.py`."""


def _column(roles: tuple[str, ...], role: str) -> int:
    if role not in roles:
        raise UnknownName("role of these samples", role, roles)
    return roles.index(role)


def _spread(values: NDArray[np.float32], present: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Put values where they are present, and 1 elsewhere."""
    whole = np.ones(present.shape, np.float32)
    whole[present] = values
    return whole
