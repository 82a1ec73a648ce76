"""Cells: the runs of a bench, each beside the retrained ranker that it is measured by.

That is the cell of method `retrain` with the same collection, ranker, training, removal, share and seeds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from unrank.evaluation.agreement import ForgetFigures
from unrank.evaluation.measure import Floats, reciprocal_of
from unrank.forgetting.target import tolerance
from unrank.record import RETRAIN, Record, Said
from unrank.report.wording import percent

DESTINATION = "destination-2"
"""The main one of the paper: the test MRR of the retrained ranker."""
REMOVALS = ("queries", "documents")


@dataclass(frozen=True)
class Setting:
    """A row of the grid: everything that cells have in common but their method and seed."""

    collection: str
    ranker: str
    removal: str
    share: float

    @property
    def order(self) -> tuple[str, str, float, str]:
        """The key that settings are sorted by."""
        return self.collection, self.ranker, self.share, self.removal

    def __str__(self) -> str:
        return f"{self.collection}, {self.ranker}, {percent(self.share)} of pairs by {self.removal}"


Trial = tuple[Setting, int, int]
"""A setting, the seed of training and the seed of the removal."""


@dataclass(frozen=True)
class Ranks:
    """The rank of the first relevant document of each query, 0 if there is none; twins have the same queries."""

    before: Sequence[int]
    after: Sequence[int]

    @property
    def reciprocal(self) -> Floats:
        """The reciprocal ranks afterwards.

        >>> Ranks([1, 1, 1], [1, 4, 0]).reciprocal.tolist()
        [1.0, 0.25, 0.0]
        """
        return reciprocal_of(np.asarray(self.after, np.float64))

    @property
    def reciprocal_before(self) -> Floats:
        return reciprocal_of(np.asarray(self.before, np.float64))


def there_before(record: Record) -> bool:
    """Return whether F was at the target or below before the run, within the tolerance for its queries.

    If each pair has a goal of its own, a mean does not say so: then a run that changed no weight found all there.
    """
    if record.target is None:
        return False
    if record.places is not None or (record.pairs is not None and record.pairs.least_ranks):
        return record.reached is True and not record.changed
    forget = record.before["forget"]
    return forget.mrr <= record.target + tolerance(max(1, forget.queries))


@dataclass(frozen=True)
class Cell:
    """One run of a bench."""

    name: str
    setting: Setting
    label: str
    target: str | None
    """The name of the destination; `None` if the method has no target."""
    seed: int
    record: Record
    ranks: Mapping[str, Ranks]
    alone: bool = True
    """Whether no other cell ran at the same time, so that its time can be compared."""
    twin: Cell | None = None
    """The cell of the retrained ranker; a retrained ranker is its own."""
    draw: int = 0
    """The seed of what was removed."""
    said: Said | None = None
    """What the grid said about comparisons beforehand; `None` in cells of earlier versions."""
    forget: Mapping[str, ForgetFigures] = field(default_factory=dict)
    """The forget set query by query, `before` and `after`; without lists in cells of earlier versions."""

    @property
    def trial(self) -> Trial:
        """The facts that cells of different methods must share to be compared."""
        return self.setting, self.seed, self.draw

    @property
    def is_retrained(self) -> bool:
        return self.record.method == RETRAIN

    @property
    def retrained(self) -> Record | None:
        return self.twin.record if self.twin else None

    @property
    def forgot(self) -> bool:
        """The forget MRR fell, and the target was reached; without a target, the test MRR of the retrained ranker.

        All MRRs have the three digits that tables show. Without such a ranker it is enough that the forget MRR fell.
        """
        before, after = (round(side["forget"].mrr, 3) for side in (self.record.before, self.record.after))
        if self.target is not None:
            return after < before and self.record.reached is True
        tests = self.retrained.after.get("test") if self.retrained else None
        return after < before and (tests is None or after <= round(tests.mrr, 3))

    @property
    def distance(self) -> float | None:
        """The paper's distance: from the test MRR of the retrained ranker; `None` if the target is another."""
        aims_there = self.target in (None, DESTINATION)
        if not aims_there or self.retrained is None or "test" not in self.retrained.after:
            return None
        return abs(self.record.after["forget"].mrr - self.retrained.after["test"].mrr)

    @property
    def gap_before(self) -> float | None:
        """The distance of the original's forget MRR from the target."""
        return None if self.record.target is None else abs(self.record.before["forget"].mrr - self.record.target)

    @property
    def missed(self) -> float | None:
        """The distance from the target, or from the test MRR of the retrained ranker if there is no target."""
        return self.distance if self.target is None else self.record.gap

    def kept(self, name: str, side: str = "after") -> float | None:
        """Return the share of the original's MRR that a set kept; `None` if the original has none there.

        `side` before is the original itself.
        """
        there, now = self.record.before.get(name), getattr(self.record, side).get(name)
        return now.mrr / there.mrr if there and now and there.mrr else None

    def kept_of_retrain(self, name: str) -> float | None:
        """Return a set's MRR as a share of the retrained ranker's."""
        there = self.retrained.after.get(name) if self.retrained else None
        return self.record.after[name].mrr / there.mrr if there and there.mrr and name in self.record.after else None

    @property
    def beside_retrain(self) -> tuple[ForgetFigures, ForgetFigures] | None:
        """The forget set of this ranker and of the retrained one; `None` if there is none, or if it is this."""
        if self.twin is None or self.is_retrained or "after" not in self.forget or "after" not in self.twin.forget:
            return None
        return self.forget["after"], self.twin.forget["after"]

    @property
    def recovered_over_retrain(self) -> float | None:
        """The forget MRR after an epoch on kept data, less that of the retrained ranker after such an epoch."""
        mine, its = self.record.recovered, self.retrained.recovered if self.retrained else None
        return None if mine is None or its is None else mine - its

    @property
    def time(self) -> float | None:
        """The time as a multiple of the retraining time, if no other cell ran beside either of the two."""
        if self.twin is None or not self.twin.record.seconds or not (self.alone and self.twin.alone):
            return None
        return self.record.seconds / self.twin.record.seconds


@dataclass(frozen=True)
class Bench:
    """All cells, in a fixed order."""

    cells: Sequence[Cell]

    @cached_property
    def settings(self) -> list[Setting]:
        return sorted({cell.setting for cell in self.cells}, key=lambda setting: setting.order)

    @cached_property
    def series(self) -> list[str]:
        """The methods as tables name them: retrain first, then by name."""
        first = {self.name_of(cell): not cell.is_retrained for cell in self.cells}
        return sorted(first, key=lambda name: (first[name], name))

    @cached_property
    def destinations(self) -> list[str]:
        return sorted({cell.target for cell in self.cells if cell.target is not None})

    def name_of(self, cell: Cell) -> str:
        """Return the method's label, with its destination if there are several."""
        return f"{cell.label} → {cell.target}" if len(self.destinations) > 1 and cell.target else cell.label

    @cached_property
    def common(self) -> Bench:
        """The cells of the trials in which every method was run; there may be none."""
        return Bench(self.common_cells(self.cells))

    def common_cells(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells of the trials in which every method among them was run."""
        run: dict[Trial, set[str]] = {}
        for cell in cells:
            run.setdefault(cell.trial, set()).add(self.name_of(cell))
        everyone = set().union(*run.values())
        return [cell for cell in cells if run[cell.trial] == everyone]

    def originals(self, setting: Setting | None = None) -> list[Cell]:
        """Return one cell for each trial, of one setting or of all: its `before` is the original's."""
        cells = [cell for cell in self.cells if setting in (None, cell.setting)]
        return list({cell.trial: cell for cell in cells}.values())

    def of(self, series: str, setting: Setting | None = None) -> list[Cell]:
        """Return the cells of a method: of one setting (one for each seed and draw), or of all."""
        return [c for c in self.cells if self.name_of(c) == series and setting in (None, c.setting)]

    @cached_property
    def _judges(self) -> dict[tuple[Setting, int], list[Cell]]:
        found: dict[tuple[Setting, int], list[Cell]] = defaultdict(list)
        for cell in self.cells:
            if cell.is_retrained and "after" in cell.forget:
                found[cell.setting, cell.draw].append(cell)
        return found

    def judges(self, cell: Cell, itself: bool = False) -> list[Cell]:
        """Return the retrained rankers, of all seeds, that never saw what a cell removed; without the cell itself."""
        found = self._judges.get((cell.setting, cell.draw), [])
        return [judge for judge in found if itself or judge.name != cell.name]

    def distances(self, cell: Cell, side: str = "after") -> Floats | None:
        """Return the distance of each forget query to retrain: |RR − RR(retrain)|, as a mean over its seeds.

        `side` before is the original. `None` without a retrained ranker; for one by itself, without another seed.
        """
        judges = self.judges(cell, itself=side == "before")
        if not judges or side not in cell.forget:
            return None
        own = cell.forget[side].reciprocal
        return np.asarray(np.mean([np.abs(own - judge.forget["after"].reciprocal) for judge in judges], axis=0))
