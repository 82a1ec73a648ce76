"""CuRD: send forget pairs to the end of their lists, and raise the substitutes of their documents to where they were.

Reference: Hou, Finke, Cosma, Neural Corrective Machine Unranking (arXiv 2411.08562): with h(x, y; a, b) =
max(0, a·x − b·y), forget h(s(d), the lowest s₀; 1, 1), correct h(s(new), s₀(d); −1, −5), retain h(s⁺, s₀⁺; −1, −2) and
h(s⁻, s₀⁻; 1, 1).
Differs: scores are heights above the lowest of the original's list, in units of its range, and both factors are 1. The
printed factors ask a pair with a negative score to fall, and have no meaning where only differences count;
`--preset paper` keeps them, with raw scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from unrank.engine.losses import mean_where
from unrank.engine.samples import Phase, Samples, Scored, all_present
from unrank.methods.base import Method
from unrank.methods.contrast import NEGATIVES_SEEN, draw_lists, lists_of
from unrank.methods.task import Task, are_in


@dataclass(frozen=True)
class Corrective(Method):
    """Lowers the forget pairs, and raises the substitutes of their documents to where these were."""

    name = "curd"
    needs_substitutes = True
    presets = MappingProxyType({"paper": {"scale": "paper", "lift": 5.0, "hold": 2.0}})

    batch: int = 64
    """Forget pairs in a step, each with its substitute, and as many kept pairs."""
    negatives: int = 2
    """Negatives of a kept pair that are held down."""
    lift: float = 1.0
    """The height that a substitute is raised to, in heights that the original gives the removed document."""
    hold: float = 1.0
    """The height that a kept pair is held at, in heights that the original gives it."""
    scale: Literal["range", "paper"] = "range"
    """Whether heights are measured in units of the list's range, or are raw scores."""

    def prepare(self, task: Task) -> None:
        task.limit_negatives(NEGATIVES_SEEN).teacher.learn(task.partition.forget[:, 0])

    def plan(self, task: Task) -> Sequence[Phase]:
        task, size = task.limit_negatives(NEGATIVES_SEEN), len(task.partition.forget)
        substitutes, has_one = task.partition.substitute_pairs
        raised = substitutes[has_one]  # not held down as negatives of their queries

        def draw(generator: np.random.Generator, epoch: int) -> Samples:
            kept = draw_lists(task, "kept", task.draw_kept(size, generator), self.negatives, generator)
            kept |= {
                role: (pairs, has & ~are_in(pairs, raised)) for role, (pairs, has) in kept.items() if role != "kept"
            }
            forget = {"forget": all_present(task.partition.forget), "substitute": (substitutes, has_one)}
            return Samples.of(forget | kept, task.teacher)

        return [Phase("correct", size, draw, self._loss, self.batch)]

    def _loss(self, scored: Scored) -> Tensor:
        now, before = (self._heights(scores, scored) for scores in (scored.score, scored.teacher))
        place = {role: number for number, role in enumerate(scored.roles)}
        old, new = place["forget"], place["substitute"]
        lowest = self._heights(scored.list_min, scored)[:, old]
        forget = (now[:, old] - lowest).relu().mean()
        correct = mean_where((self.lift * before[:, old] - now[:, new]).relu(), scored.present[:, new])
        kept = [place[role] for role in lists_of(scored, "kept").roles]
        fallen = (self.hold * before[:, kept[:1]] - now[:, kept[:1]]).relu()
        risen = (now[:, kept[1:]] - before[:, kept[1:]]).relu()
        return forget + correct + mean_where(torch.cat([fallen, risen], dim=1), scored.present[:, kept]).sum()

    def _heights(self, scores: Tensor, scored: Scored) -> Tensor:
        return scores if self.scale == "paper" else (scores - scored.list_min) / scored.list_range
