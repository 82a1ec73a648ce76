"""CoCoL: push the forget pairs down to the lowest of their query, hold everything around them in place.

Reference: Hou, Finke, Cosma, Neural Machine Unranking: contrastive and consistent loss.
Differs: gaps are measured in units of the teacher's range for the query, because the printed quotient turns real
rankers into noise (`scale="paper"` keeps it); a step also holds negatives and random kept pairs in place
(`anchors="paper"` does not). See docs/reference/differences.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, repeat
from types import MappingProxyType
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from unrank.collection.collection import Pairs
from unrank.engine.loop import Schedule
from unrank.engine.losses import mean_where, paper_gap, range_gap
from unrank.engine.samples import Phase, Samples, Scored
from unrank.errors import UnrankError
from unrank.methods.base import Drawn, Method, Task, all_present

LEAST_KNOWN = 1024
"""So many disjoint pairs are known to the teacher at least, however small the request. If the ranker has forgotten
before, an epoch holds as many: what request after request loses adds up."""
ALL = 1_000_000
STAYS, MAY_RISE, MAY_FALL = 0, 1, -1
"""What a score may do: stay in its place, or leave it on one side."""
Ways = tuple[int, int]
"""What a kept pair may do, and a negative of its query."""


@dataclass(frozen=True)
class Cocol(Method):
    name = "cocol"
    presets = MappingProxyType(
        {
            "paper": {
                "learning_rate": 5e-5,
                "warm_up": 1,
                "scale": "paper",
                "anchors": "paper",
                "phases": "two",
                "min_steps": 1,
                "hold_factor": 1,
                "negatives_seen": ALL,
                "disjoint_per_pair": ALL,
                "disjoint_per_epoch": ALL,
            },
        }
    )

    learning_rate: float = 8.5e-5
    batch: int = 64
    """Pairs a step at most: forget pairs in the first phase, disjoint ones in the second."""
    min_steps: int = 16
    """Steps of the first phase: a small request takes smaller ones, because a step moves as far whatever its size. Each
    still holds about as many pairs of every kind: what fewer of them ask of all weights is chance."""
    hold_factor: int = 2
    """So many times as many pairs in a step of the second phase."""
    scale: Literal["range", "paper"] = "range"
    """What a gap between two scores is divided by."""
    anchors: Literal["wide", "paper"] = "wide"
    """What the first phase holds in place: partners alone, or negatives and other kept pairs too."""
    anchors_per_pair: int = 1
    """With wide anchors: how many kept pairs a forget pair holds in place. More hold firmer, and cost more."""
    disjoint_per_pair: int = 4
    """The most disjoint pairs that are held for each forget pair."""
    disjoint_per_epoch: int = 1
    """So many of them an epoch holds, drawn anew each time; a thousand at least, if the ranker has forgotten before."""
    negatives_seen: int = 8
    """How many negatives of a query the teacher looks at, and may be held in place."""
    phases: Literal["two", "joint"] = "two"
    """Whether a second phase holds the disjoint pairs."""
    without_entangled: bool = False
    """For the ablation: nothing entangled is held."""
    without_disjoint: bool = False
    """For the ablation: nothing disjoint is held."""
    warm_up: int = 24
    """Steps in which the rate rises: the first steps of an optimiser that knows no scale yet are its largest."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.phases == "joint" and self.anchors == "paper":
            raise UnrankError(
                "phases=joint needs anchors=wide: with the paper's anchors nothing holds the disjoint pairs"
            )

    def schedule(self, seed: int, check_every: int | None = None) -> Schedule:
        return replace(super().schedule(seed, check_every), warm_up=self.warm_up)

    def prepare(self, task: Task) -> None:
        task = self._narrowed(task)
        earlier = [task.partition.earlier, task.partition.risen] if self.anchors == "wide" else []
        task.teacher.learn(np.concatenate([task.partition.forget, self._held(task), *earlier])[:, 0])

    def plan(self, task: Task) -> Sequence[Phase]:
        task = self._narrowed(task)
        draw_forget, draw_hold = partial(self._draw_forget, task), partial(self._draw_hold, task)
        rows, kept = self._rows_of_each(task), self._ways_of_kept(task)
        batch, size = rows * self._batch(task), rows * self._forgotten_now(task)
        plan = [Phase("forget", size, draw_forget, partial(self._forget_loss, kept), batch, together=rows)]
        if self.phases == "two" and not self.without_disjoint and len(task.partition.disjoint):
            hold_loss = partial(self._hold_loss, kept)
            plan.append(Phase("hold", self._held_now(task), draw_hold, hold_loss, self.hold_factor * batch))
        return plan

    def _draw_forget(self, task: Task, generator: np.random.Generator) -> Samples:
        """Each forget pair x with a partner and, with wide anchors, a negative of its query, other kept pairs, and a
        negative of the query of each. If it has several rows, it falls in the first and holds in all of them. What was
        forgotten before stands beside it, and falls where it has to."""
        rows = self._rows_of_each(task)
        forget = np.resize(task.partition.forget, (self._forgotten_now(task), 2)).repeat(rows, axis=0)
        partner, has_partner = task.partition.draw_partners(forget, generator)
        falls = np.arange(len(forget)) % rows == 0
        roles = [(forget, falls), (partner, has_partner & (not self.without_entangled))]
        if self.anchors == "wide":
            draws = [self._draw_kept(task, len(forget), generator) for _ in range(self.anchors_per_pair)]
            roles.append(task.negatives.draw(forget[:, 0], generator))
            for kept, has_kept in draws:
                negative, has_negative = task.negatives.draw(kept[:, 0], generator)
                roles += [(kept, has_kept), (negative, has_kept & has_negative)]
        return self._beside_earlier(task, roles, generator, falls=True)

    def _narrowed(self, task: Task) -> Task:
        return task.holding(max(LEAST_KNOWN, self.disjoint_per_pair * len(task.partition.forget))).glancing(
            self.negatives_seen
        )

    def _held(self, task: Task) -> Pairs:
        sides = [
            *([] if self.without_entangled else [task.partition.entangled]),
            *([] if self.without_disjoint else [task.partition.disjoint]),
        ]
        return np.concatenate([np.empty((0, 2), np.int64), *sides])

    def _draw_kept(self, task: Task, size: int, generator: np.random.Generator) -> Drawn:
        kept = self._held(task)
        if not len(kept):
            return np.zeros((size, 2), np.int64), np.zeros(size, bool)
        return all_present(kept[generator.integers(len(kept), size=size)])

    def _draw_hold(self, task: Task, generator: np.random.Generator) -> Samples:
        """Some disjoint pairs, each with a negative of its query, and beside them what was forgotten before."""
        disjoint = task.partition.disjoint
        pairs = disjoint[generator.permutation(len(disjoint))[: self._held_now(task)]]
        roles = [all_present(pairs), task.negatives.draw(pairs[:, 0], generator)]
        return self._beside_earlier(task, roles, generator, falls=False)

    def _beside_earlier(self, task: Task, roles: list[Drawn], generator: np.random.Generator, falls: bool) -> Samples:
        """Samples of these roles and, with wide anchors, of what was forgotten before: it stays where it is. What has
        risen falls, each pair as often as one that is forgotten now, but never more of them than of the others."""
        size, stays = len(roles[0][0]), task.partition.earlier
        risen = task.partition.risen if falls else stays[:0]
        if self.anchors == "paper" or not len(stays) + len(risen):
            return Samples.of(*roles, teacher=task.teacher)
        share = min(0.5, len(risen) / self._forgotten_now(task)) if len(stays) else 1.0
        falling = generator.random(size) < share
        pairs = np.empty((size, 2), np.int64)
        for rows, some in ((falling, risen), (~falling, stays)):
            pairs[rows] = np.resize(generator.permutation(some), (np.count_nonzero(rows), 2))
        negative = task.negatives.draw(pairs[:, 0], generator)
        return Samples.of(*roles, all_present(pairs), negative, teacher=task.teacher).sinking(falling, role=len(roles))

    def _forgotten_now(self, task: Task) -> int:
        """Each forget pair once; the few of a very small request again and again."""
        return max(self.min_steps, len(task.partition.forget))

    def _batch(self, task: Task) -> int:
        """How many forget pairs a step takes."""
        return max(1, min(self.batch, len(task.partition.forget) // self.min_steps))

    def _rows_of_each(self, task: Task) -> int:
        """How many partners, negatives and other kept pairs are drawn for each forget pair."""
        return max(1, self.min_steps // self._batch(task))

    def _held_now(self, task: Task) -> int:
        held = self.disjoint_per_epoch * self._rows_of_each(task) * self._forgotten_now(task)
        return min(len(task.partition.disjoint), max(held, LEAST_KNOWN) if self._forgot_before(task) else held)

    def _forgot_before(self, task: Task) -> bool:
        """Whether there is something to hold that is neither kept nor asked for now."""
        return self.anchors == "wide" and len(task.partition.earlier) + len(task.partition.risen) > 0

    def _ways_of_kept(self, task: Task) -> Ways:
        """If the ranker has forgotten before, they may part: what one request gains makes up for what another loses.
        Not by the paper's quotient, which cannot tell up from down where scores are negative."""
        return (MAY_RISE, MAY_FALL) if self._forgot_before(task) and self.scale == "range" else (STAYS, STAYS)

    def _forget_loss(self, kept: Ways, scored: Scored) -> Tensor:
        """The forget pairs fall to the lowest of their query; the place of the other roles is where the teacher has
        them."""
        wanted = torch.cat([scored.low[:, :1], scored.teacher[:, 1:]], dim=1)
        return self._strayed(wanted, [MAY_FALL, kept[0], STAYS, *kept * self.anchors_per_pair], scored)

    def _hold_loss(self, kept: Ways, scored: Scored) -> Tensor:
        return self._strayed(scored.teacher, kept, scored)

    def _strayed(self, wanted: Tensor, ways: Sequence[int], scored: Scored) -> Tensor:
        """How far a score is from its place where it may not go, on average, summed over the roles. What was forgotten
        before comes after the others, and stays in its place; that of what has risen is the lowest."""
        gaps = self._gap(wanted, scored).unbind(1)
        strayed = [
            gap.abs() if way == STAYS else (gap if way == MAY_FALL else -gap).relu()
            for gap, way in zip(gaps, chain(ways, repeat(STAYS)), strict=False)
        ]
        return mean_where(torch.stack(strayed, dim=1), scored.present).sum()

    def _gap(self, wanted: Tensor, scored: Scored) -> Tensor:
        """How far above its place each score is. [batch, roles]"""
        if self.scale == "range":
            return range_gap(scored.score, wanted, scored.span)
        # What a sample lacks must not divide by zero: its gradient would be NaN even where it is masked.
        return paper_gap(*(torch.where(scored.present, scores, 1.0) for scores in (scored.score, wanted)))
