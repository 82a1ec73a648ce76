"""Amnesiac: go on training on swapped forget pairs, each below a negative, and on the entangled pairs as they were.

Reference: Graves, Nagisetty, Ganesh, Amnesiac Machine Learning (2021): wrong labels for what is to be forgotten.
Differs: a ranker has no labels, so a pair and its negative change places, as in the paper on unranking. The entangled
pairs are learned as well; `forget_only` leaves them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unrank.engine.samples import Phase, Samples
from unrank.methods.base import Method
from unrank.methods.ranking import ranking_loss, triples
from unrank.methods.task import Task


@dataclass(frozen=True)
class Amnesiac(Method):
    """Trains on swapped forget pairs and on the entangled pairs."""

    name = "amnesiac"

    batch: int = 256
    """Triples in a step."""
    negatives: int = 8
    """Negatives of a positive in an epoch."""
    forget_only: bool = False
    """Whether the entangled pairs are left out."""

    def plan(self, task: Task) -> Sequence[Phase]:
        kept = task.partition.entangled[:0] if self.forget_only else task.partition.entangled

        def draw(generator: np.random.Generator, epoch: int) -> Samples:
            swapped = triples(task, task.partition.forget, self.negatives, generator, swapped=True)
            return swapped + triples(task, kept, self.negatives, generator)

        size = self.negatives * (len(task.partition.forget) + len(kept))
        return [Phase("turn round", size, draw, ranking_loss, self.batch)]
