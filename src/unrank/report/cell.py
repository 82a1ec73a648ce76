"""Cells: the runs of a bench, each with what it is measured by.

A cell's yardstick is the retrained ranker of the same setting: the cell of method `retrain` with the same collection,
ranker, training, removal, share and seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unrank.evaluation.measure import Floats
from unrank.record import Record
from unrank.report.wording import percent

YARDSTICK = "retrain"
DESTINATION = "destination-2"
"""The paper's main one: down to the retrained ranker's test MRR."""
REMOVALS = ("queries", "documents")


@dataclass(frozen=True)
class Setting:
    """Where methods meet: a row of the grid, whatever the seed."""

    collection: str
    ranker: str
    removal: str
    share: float

    @property
    def place(self) -> tuple[str, str, float, str]:
        """Among others in a table."""
        return self.collection, self.ranker, self.share, self.removal

    def __str__(self) -> str:
        return f"{self.collection}, {self.ranker}, {percent(self.share)} of pairs by {self.removal}"


@dataclass(frozen=True)
class Ranks:
    """The rank of each query's first right answer, 0 where there is none, in an order that twins share."""

    before: Sequence[int]
    after: Sequence[int]

    @property
    def reciprocal(self) -> Floats:
        """Afterwards.

        >>> Ranks([1, 1, 1], [1, 4, 0]).reciprocal.tolist()
        [1.0, 0.25, 0.0]
        """
        values = np.asarray(self.after, np.float64)
        return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


@dataclass(frozen=True)
class Cell:
    """One run of a bench."""

    name: str
    setting: Setting
    label: str
    target: str | None
    seed: int
    run: Record
    ranks: Mapping[str, Ranks]
    alone: bool = True
    """Whether nothing else was run beside it, so that its time can be told."""
    twin: Cell | None = None
    """The retrained ranker's; a retrained ranker is its own."""

    @property
    def is_yardstick(self) -> bool:
        return self.run.method == YARDSTICK

    @property
    def retrained(self) -> Record | None:
        return self.twin.run if self.twin else None

    @property
    def distance(self) -> float | None:
        """The paper's: from the retrained ranker's test MRR. Who aims elsewhere has none."""
        aims_there = self.target in (None, DESTINATION)
        if not aims_there or self.retrained is None or "test" not in self.retrained.after:
            return None
        return abs(self.run.after["forget"].mrr - self.retrained.after["test"].mrr)

    @property
    def missed(self) -> float | None:
        """How far it ended from its target, or from the retrained ranker's test MRR where it has none."""
        return self.distance if self.target is None else self.run.gap

    def lower(self, name: str) -> float | None:
        """What a set is to keep: the lower of the original's and the retrained ranker's MRR."""
        if self.retrained is None or name not in self.run.after:
            return None
        return min(self.run.before[name].mrr, self.retrained.after[name].mrr)

    def kept(self, name: str) -> float | None:
        """The share of that which is left."""
        lower = self.lower(name)
        return self.run.after[name].mrr / lower if lower else None

    @property
    def comeback(self) -> float | None:
        """How much higher the forget MRR comes back by an epoch on kept data than the retrained ranker's does."""
        mine, its = self.run.recovered, self.retrained.recovered if self.retrained else None
        return None if mine is None or its is None else mine - its

    @property
    def time(self) -> float | None:
        """In times of the retrained ranker's, where both had the machine to themselves."""
        if self.twin is None or not self.twin.run.seconds or not (self.alone and self.twin.alone):
            return None
        return self.run.seconds / self.twin.run.seconds


@dataclass(frozen=True)
class Bench:
    """All cells, in a fixed order."""

    cells: Sequence[Cell]

    @cached_property
    def settings(self) -> list[Setting]:
        return sorted({cell.setting for cell in self.cells}, key=lambda setting: setting.place)

    @cached_property
    def series(self) -> list[str]:
        """The methods as they are named in tables: the yardstick first, then by name."""
        first = {self.name_of(cell): not cell.is_yardstick for cell in self.cells}
        return sorted(first, key=lambda name: (first[name], name))

    @cached_property
    def _several_targets(self) -> bool:
        return len({cell.target for cell in self.cells if cell.target is not None}) > 1

    def name_of(self, cell: Cell) -> str:
        """The method's label, with its destination where there are several."""
        return f"{cell.label} → {cell.target}" if self._several_targets and cell.target else cell.label

    @cached_property
    def shared(self) -> Bench:
        """The settings in which every method was run; there may be none."""
        return Bench(self.in_shared_settings(self.cells))

    def in_shared_settings(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those where every method among these cells was run: there they can be compared."""
        run = {setting: {self.name_of(cell) for cell in cells if cell.setting == setting} for setting in self.settings}
        everyone = set().union(*run.values())
        return [cell for cell in cells if run[cell.setting] == everyone]

    def originals(self, setting: Setting | None = None) -> list[Cell]:
        """Of one setting or of all, one cell for each trained ranker, whatever was done to it: its `before`."""
        cells = [cell for cell in self.cells if setting in (None, cell.setting)]
        return list({(cell.setting, cell.seed): cell for cell in cells}.values())

    def of(self, series: str, setting: Setting | None = None) -> list[Cell]:
        """The cells of a method: of one setting (one a seed), or of all."""
        return [c for c in self.cells if self.name_of(c) == series and setting in (None, c.setting)]
