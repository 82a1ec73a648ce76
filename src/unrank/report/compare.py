"""Comparisons: means over cells, differences from the retrained ranker, and the noise of retraining."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from unrank.evaluation.bootstrap import MIN_QUERIES, BootstrapEstimate
from unrank.evaluation.measure import Floats
from unrank.record import KEPT, SETS
from unrank.report.cell import DESTINATION, Bench, Cell, Setting
from unrank.report.estimates import Row

ENOUGH = 50
"""The fewest queries of a set for which one cell is looked at by itself."""


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not `None`."""
    there = [value for value in values if value is not None]
    return fmean(there) if there else None


def change_from_retrain(name: str, row: Row, cell: Cell) -> Floats | None:
    """Return the change of each query's reciprocal rank from that of retrain of the same seed."""
    twin = cell.twin
    if row.side == "before" or cell.is_retrained or twin is None or name not in cell.ranks.keys() & twin.ranks.keys():
        return None
    return cell.ranks[name].reciprocal - twin.ranks[name].reciprocal


def has_few_queries(cells: Iterable[Cell], name: str) -> bool:
    """Return whether a set has too few queries in some cells for an interval or a test to say anything.

    Two cells on one collection may have the same queries, whatever they removed, so the larger one counts alone.
    """
    sizes: dict[str, int] = {}
    for cell in cells:
        if name in cell.ranks:
            collection = cell.setting.collection
            sizes[collection] = max(len(cell.ranks[name].after), sizes.get(collection, 0))
    return sum(sizes.values()) < MIN_QUERIES


def differs(change: BootstrapEstimate | None, has_few: bool) -> bool:
    """Return whether the 95 % interval of a change leaves out 0; with few queries it says nothing."""
    return change is not None and not has_few and not change.low <= 0 <= change.high


def rivals(bench: Bench, setting: Setting | None = None) -> list[dict[str, bool]]:
    """Return the groups of methods that can be compared, in one setting or over all, and which of them can be best.

    A group has one destination, and its methods were all run in the same trials. A method can be
    the best if it forgot in at least half of its cells. The retrained ranker is in no group.
    """
    groups: dict[str, dict[str, list[Cell]]] = defaultdict(dict)
    for name in bench.series:
        cells = bench.of(name, setting)
        if cells and not cells[0].is_retrained:
            groups[cells[0].target or DESTINATION][name] = cells
    return [
        {name: 2 * sum(cell.forgot for cell in cells) >= len(cells) for name, cells in group.items()}
        for group in groups.values()
        if len({frozenset(cell.trial for cell in cells) for cells in group.values()}) == 1
    ]


def least_kept(cells: Iterable[Cell], name: str, side: str = "after") -> float | None:
    """Return the least share of the original's MRR that a cell kept, over the cells with enough queries of the set."""
    sizes = [(cell, cell.record.after[name].queries) for cell in cells if name in cell.record.after]
    kept = [cell.kept(name, side) for cell, queries in sizes if queries >= ENOUGH]
    return min((share for share in kept if share is not None), default=None)


def retention(cell: Cell) -> float | None:
    """Return the mean of the shares of the original's MRR that the three other sets kept."""
    return mean(cell.kept(name) for name in KEPT)


def noise(bench: Bench) -> dict[str, float]:
    """Return the mean difference of two retrained rankers of different seeds, for each set."""
    apart: dict[str, list[float]] = defaultdict(list)
    for cells in retrained_twice(bench).values():
        for one, other in combinations(cells, 2):
            for name in SETS:
                if one.draw == other.draw and name in one.record.after and name in other.record.after:
                    apart[name].append(abs(one.record.after[name].mrr - other.record.after[name].mrr))
    return {name: fmean(values) for name, values in apart.items()}


@dataclass(frozen=True)
class Floor:
    """The noise of retraining on each set; it hides smaller differences from a retrained ranker."""

    noise: Mapping[str, float]

    def hides_change(self, cells: Iterable[Cell], name: str) -> bool:
        """Return whether the noise is more than the difference of a set's MRR from the retrained ranker's."""
        twins = [(cell.setting, cell.record.after, cell.retrained.after) for cell in _others(cells) if cell.retrained]
        both = [(where, ours, theirs) for where, ours, theirs in twins if name in ours and name in theirs]
        return self._hides([(where, ours[name].mrr - theirs[name].mrr) for where, ours, theirs in both], name)

    def hides_distance(self, cells: Iterable[Cell]) -> bool:
        """Return whether the noise is more than the paper's distance."""
        return self._hides([(cell.setting, cell.distance) for cell in _others(cells)], "test")

    def _hides(self, differences: Sequence[tuple[Setting, float | None]], name: str) -> bool:
        """Compare with the mean over settings of the difference, averaged over seeds and without its sign."""
        apart: dict[Setting, list[float]] = defaultdict(list)
        for setting, difference in differences:
            if difference is not None:
                apart[setting].append(difference)
        return bool(apart) and name in self.noise and fmean(abs(fmean(of)) for of in apart.values()) < self.noise[name]


def _others(cells: Iterable[Cell]) -> list[Cell]:
    return [cell for cell in cells if not cell.is_retrained]


def retrained_twice(bench: Bench) -> dict[Setting, list[Cell]]:
    """Return the retrained rankers of each setting that has several."""
    found: dict[Setting, list[Cell]] = defaultdict(list)
    for cell in bench.cells:
        if cell.is_retrained:
            found[cell.setting].append(cell)
    return {setting: cells for setting, cells in found.items() if len(cells) > 1}
