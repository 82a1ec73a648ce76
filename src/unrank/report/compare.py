"""Comparisons: means over cells, whether a difference from the retrained ranker is more than chance, and its noise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import numpy as np

from unrank.evaluation.interval import paired_interval
from unrank.report.cell import Bench, Cell, Setting
from unrank.report.record import KEPT, SETS


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that are there."""
    there = [value for value in values if value is not None]
    return fmean(there) if there else None


def differs(cells: Sequence[Cell], name: str) -> bool:
    """Whether the 95 % interval of the paired difference from the retrained rankers, over all seeds, leaves out 0."""
    pairs = [
        (cell.twin.ranks[name].reciprocal, cell.ranks[name].reciprocal)
        for cell in cells
        if not cell.is_yardstick and cell.twin and name in cell.ranks and name in cell.twin.ranks
    ]
    if not pairs:
        return False
    theirs, ours = (np.concatenate(side) for side in zip(*pairs, strict=True))
    low, high = paired_interval(theirs, ours)
    return not low <= 0 <= high


def retention(cell: Cell) -> float | None:
    """The mean share that the three other sets have kept."""
    return mean(cell.kept(name) for name in KEPT)


def noise(bench: Bench) -> dict[str, float]:
    """How far two retrained rankers of different seeds are apart on each set, on average."""
    apart: dict[str, list[float]] = defaultdict(list)
    for cells in _yardsticks(bench).values():
        for one, other in combinations(cells, 2):
            for name in SETS:
                if name in one.run.after and name in other.run.after:
                    apart[name].append(abs(one.run.after[name].mrr - other.run.after[name].mrr))
    return {name: fmean(values) for name, values in apart.items()}


@dataclass(frozen=True)
class Floor:
    """The noise of retraining on each set, and which differences from a retrained ranker are less than it."""

    noise: Mapping[str, float]

    def hides_change(self, cells: Iterable[Cell], name: str) -> bool:
        """Of a set's MRR, from the retrained ranker's."""
        twins = [(cell.run.after, cell.retrained.after) for cell in cells if cell.retrained and not cell.is_yardstick]
        there = ((ours[name].mrr, theirs[name].mrr) for ours, theirs in twins if name in ours and name in theirs)
        return self.hides((ours - theirs for ours, theirs in there), name)

    def hides_loss(self, cells: Iterable[Cell], name: str) -> bool:
        """Of a set's MRR, from the lower of the original's and the retrained ranker's."""
        lowers = [(cell, cell.lower(name)) for cell in cells if not cell.is_yardstick]
        return self.hides((cell.run.after[name].mrr - lower for cell, lower in lowers if lower is not None), name)

    def hides_distance(self, cells: Iterable[Cell]) -> bool:
        """Of the forget MRR, from the retrained ranker's test MRR."""
        return self.hides((cell.distance for cell in cells if not cell.is_yardstick), "test")

    def hides(self, differences: Iterable[float | None], name: str) -> bool:
        difference = mean(differences)
        return difference is not None and name in self.noise and abs(difference) < self.noise[name]


def _yardsticks(bench: Bench) -> dict[Setting, list[Cell]]:
    found: dict[Setting, list[Cell]] = defaultdict(list)
    for cell in bench.cells:
        if cell.is_yardstick:
            found[cell.setting].append(cell)
    return found
