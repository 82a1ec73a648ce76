"""Comparisons: means over cells, whether a difference from the retrained ranker is more than chance, and its noise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import numpy as np

from unrank.evaluation.bootstrap import paired_interval
from unrank.record import KEPT, SETS
from unrank.report.cell import DESTINATION, Bench, Cell, Setting

ENOUGH = 50
"""Queries from which on a set of one cell says something by itself."""


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that are there."""
    there = [value for value in values if value is not None]
    return fmean(there) if there else None


def differs(cells: Sequence[Cell], name: str) -> bool:
    """Whether the 95 % interval of the paired difference from the retrained rankers leaves out 0. Of several seeds a
    query counts once, with its mean: to be measured again makes no new query."""
    pairs = [
        (cell.twin.ranks[name].reciprocal, cell.ranks[name].reciprocal)
        for cell in cells
        if not cell.is_yardstick and cell.twin and name in cell.ranks and name in cell.twin.ranks
    ]
    if not pairs:
        return False
    theirs, ours = (np.mean(side, axis=0) for side in zip(*pairs, strict=True))
    low, high = paired_interval(theirs, ours)
    return not low <= 0 <= high


def rivals(bench: Bench, setting: Setting | None = None) -> list[list[str]]:
    """The methods that can be compared, in one setting or over all: retrain apart, those of one aim, if they were all
    run in the same settings."""
    aims: dict[str, dict[str, frozenset[Setting]]] = defaultdict(dict)
    for name in bench.series:
        cells = bench.of(name, setting)
        if cells and not cells[0].is_yardstick:
            aims[cells[0].target or DESTINATION][name] = frozenset(cell.setting for cell in cells)
    return [list(where) for where in aims.values() if len(set(where.values())) == 1]


def least_kept(cells: Iterable[Cell], name: str) -> float | None:
    """Of a set, over the cells that measure it with enough queries to say something."""
    kept = [cell.kept(name) for cell in cells if name in cell.run.after and cell.run.after[name].queries >= ENOUGH]
    return min((share for share in kept if share is not None), default=None)


def retention(cell: Cell) -> float | None:
    """The mean share that the three other sets have kept."""
    return mean(cell.kept(name) for name in KEPT)


def noise(bench: Bench) -> dict[str, float]:
    """How far two retrained rankers of different seeds are apart on each set, on average."""
    apart: dict[str, list[float]] = defaultdict(list)
    for cells in retrained_twice(bench).values():
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
        twins = [(cell.setting, cell.run.after, cell.retrained.after) for cell in _rivals(cells) if cell.retrained]
        both = [(where, ours, theirs) for where, ours, theirs in twins if name in ours and name in theirs]
        return self._hides([(where, ours[name].mrr - theirs[name].mrr) for where, ours, theirs in both], name)

    def hides_loss(self, cells: Iterable[Cell], name: str) -> bool:
        """Of a set's MRR, from the lower of the original's and the retrained ranker's."""
        lowers = [(cell, cell.lower(name)) for cell in _rivals(cells)]
        there = [(cell.setting, cell.run.after[name].mrr - lower) for cell, lower in lowers if lower is not None]
        return self._hides(there, name)

    def hides_distance(self, cells: Iterable[Cell]) -> bool:
        """Of the forget MRR, from the retrained ranker's test MRR."""
        return self._hides([(cell.setting, cell.distance) for cell in _rivals(cells)], "test")

    def _hides(self, differences: Sequence[tuple[Setting, float | None]], name: str) -> bool:
        """On average over settings: what one gains is not set off against what another loses. Over seeds it is."""
        apart: dict[Setting, list[float]] = defaultdict(list)
        for setting, difference in differences:
            if difference is not None:
                apart[setting].append(difference)
        return bool(apart) and name in self.noise and fmean(abs(fmean(of)) for of in apart.values()) < self.noise[name]


def _rivals(cells: Iterable[Cell]) -> list[Cell]:
    return [cell for cell in cells if not cell.is_yardstick]


def retrained_twice(bench: Bench) -> dict[Setting, list[Cell]]:
    """The retrained rankers of each setting that has several."""
    found: dict[Setting, list[Cell]] = defaultdict(list)
    for cell in bench.cells:
        if cell.is_yardstick:
            found[cell.setting].append(cell)
    return {setting: cells for setting, cells in found.items() if len(cells) > 1}
