"""Estimates of a bench, row by row: queries within draws within seeds are resampled, alike for rows of the same cells.

A row is a method, or doing nothing. Rows can be compared if they are over the same trials: setting, seed and draw.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar
from zlib import crc32

import numpy as np

from unrank.evaluation.bootstrap import BootstrapEstimate, resampled_nested
from unrank.evaluation.measure import Floats
from unrank.report.cell import Bench, Cell, Setting, Trial

NOTHING = "nothing (the original)"
Side = Literal["before", "after"]
Nested = Mapping[tuple[int, int], Floats]
"""For each seed and draw one value for each query."""
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Row:
    """The cells of a method; `before` are those of doing nothing, the originals."""

    name: str
    cells: Sequence[Cell]
    side: Side = "after"
    comparable: bool = True

    @property
    def is_retrained(self) -> bool:
        return self.side == "after" and all(cell.is_retrained for cell in self.cells)

    def within(self, trials: frozenset[Trial]) -> list[Cell]:
        return [cell for cell in self.cells if cell.trial in trials]


def rows_of(bench: Bench, removal: str | None = None) -> list[Row]:
    """Return retrain, doing nothing and the methods that can be compared over the same trials, then the other methods.

    The trials are those that give the most comparable cells. A method that was run in more is shown in these alone.
    """
    cells = [cell for cell in bench.cells if removal in (None, cell.setting.removal)]
    own = {name: [cell for cell in cells if bench.name_of(cell) == name] for name in bench.series}
    methods = {name: some for name, some in own.items() if some and not some[0].is_retrained}
    trials = comparable_trials(methods) or frozenset(cell.trial for cell in cells)
    retrained_last = sorted(cells, key=lambda cell: cell.is_retrained)  # these alone keep the original's lists
    originals = {cell.trial: cell for cell in retrained_last if cell.trial in trials}
    rows, others = [Row(NOTHING, list(originals.values()), "before")], []
    for name, some in own.items():
        if some and some[0].is_retrained:
            rows.insert(0, Row(name, [cell for cell in some if (cell.setting, cell.draw) in _places(trials)] or some))
        elif some and trials <= {cell.trial for cell in some}:
            rows.append(Row(name, [cell for cell in some if cell.trial in trials]))
        elif some:
            others.append(Row(name, some, comparable=False))
    return [row for row in rows if row.cells] + others


def _places(trials: frozenset[Trial]) -> set[tuple[Setting, int]]:
    """Return the settings and draws of some trials: a retrained ranker of any seed judges there."""
    return {(setting, draw) for setting, _, draw in trials}


def comparable_trials(methods: Mapping[str, Sequence[Cell]]) -> frozenset[Trial]:
    """Return the trials, of one method or of all, for which the number of cells that share them is the largest."""
    run = {name: frozenset(cell.trial for cell in cells) for name, cells in methods.items()}
    everywhere = frozenset.intersection(*run.values()) if run else frozenset()
    choices = sorted({everywhere, *run.values()}, key=lambda some: (len(some), sorted(map(str, some))))

    def shared(trials: frozenset[Trial]) -> int:
        methods = sum(trials <= other for other in run.values())
        return len(trials) * methods * (methods > 1 or len(run) == 1)

    return max(choices, key=shared, default=frozenset()) if any(map(shared, choices)) else frozenset()


@dataclass(frozen=True)
class Estimates:
    """A figure of each query of each row, as the mean of each setting with resamples."""

    rows: Sequence[Row]
    value: Callable[[Row, Cell], Floats | None]

    @cached_property
    def _found(self) -> dict[int, dict[Setting, BootstrapEstimate]]:
        nested: dict[tuple[int, Setting], dict[tuple[int, int], Floats]] = defaultdict(dict)
        for row in self.rows:
            for cell in row.cells:
                if (of := self.value(row, cell)) is not None and len(of):
                    nested[id(row), cell.setting][cell.seed, cell.draw] = of
        found: dict[int, dict[Setting, BootstrapEstimate]] = {id(row): {} for row in self.rows}
        estimates = estimates_of({key: (key[1].collection, values) for key, values in nested.items()})
        for (owner, setting), estimate in estimates.items():
            found[owner][setting] = estimate
        return found

    def of(self, row: Row) -> Mapping[Setting, BootstrapEstimate]:
        """Return the estimate of each setting of a row."""
        return self._found[id(row)]

    def mean(self, row: Row) -> BootstrapEstimate | None:
        """Return the mean over the settings of a row."""
        found = list(self.of(row).values())
        return BootstrapEstimate.mean_of(found) if found else None

    def difference(self, one: Row, other: Row) -> BootstrapEstimate | None:
        """Return the mean difference of two comparable rows over the settings that both have."""
        first, second = self.of(one), self.of(other)
        both = [first[setting] - second[setting] for setting in first if setting in second]
        return BootstrapEstimate.mean_of(both) if both else None


def estimates_of(values: Mapping[Key, tuple[str, Nested]]) -> dict[Key, BootstrapEstimate]:
    """Return the mean of one value for each query, with resamples. Each comes with the name of its collection.

    Values of one collection, with the same seeds, draws and numbers of queries, are resampled alike, so that their
    differences are paired.
    """
    groups: dict[tuple[str, tuple[tuple[int, int, int], ...]], list[Key]] = defaultdict(list)
    for key, (collection, nested) in values.items():
        groups[collection, tuple((*place, len(nested[place])) for place in sorted(nested))].append(key)
    found = {}
    for (collection, shape), keys in groups.items():
        seeds: dict[int, list[Floats]] = defaultdict(list)
        for seed, draw, _ in shape:
            seeds[seed].append(np.stack([values[key][1][seed, draw] for key in keys], axis=1))
        resampled = resampled_nested(list(seeds.values()), crc32(collection.encode()))
        means = np.mean([np.mean([each.mean(axis=0) for each in draws], axis=0) for draws in seeds.values()], axis=0)
        queries = sum(number for _, _, number in shape)
        for place, key in enumerate(keys):
            found[key] = BootstrapEstimate(float(means[place]), resampled[:, place], queries)
    return found
