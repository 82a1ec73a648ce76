"""Finetune: go on training on what is kept, and hope that the rest is forgotten meanwhile. The paper's CF.

Reference: Warnecke et al., Machine Unlearning of Features and Labels (2023), and many before: catastrophic forgetting.
Differs: in nothing. A ranker that has learned its data has little left to learn, so little is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unrank.engine.samples import Phase
from unrank.methods.base import Method, Task
from unrank.methods.ranking import learn


@dataclass(frozen=True)
class Finetune(Method):
    name = "finetune"

    batch: int = 256
    """Triples a step."""
    negatives: int = 8
    """Negatives a positive and epoch."""
    together: int = 4
    """How many of them are in the same step, where their positive is then scored once."""

    def plan(self, task: Task) -> Sequence[Phase]:
        return [learn(task, task.parts.retain, self.negatives, self.batch, self.together)]
