"""The section on control: how near each method brought the forget MRR to its target, each destination by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from unrank.errors import count
from unrank.report.bench_figures import mean_tradeoff
from unrank.report.cell import Bench, Cell
from unrank.report.compare import mean, retention
from unrank.report.page import Figures, Section, paragraph
from unrank.report.table import Table, to_html

CRITERION = (
    "Best: the least sum of the distance from the target and the share of the other sets' MRR that was lost, among "
    "methods that reached their target in at least half of their cells."
)


def control_section(bench: Bench, table: Table) -> Section:
    caption = (
        f"Means {where(bench)}. Forgetting is 1 − the distance from the target, or from retrain's test MRR if a "
        "method has none; retention is the share of the original's MRR that the other sets kept."
    )
    drawing = mean_tradeoff(bench)
    figures = Figures([(drawing, caption)] if drawing else [])
    said = paragraph(control_words(bench))
    return Section("control", "Control", "Control: how near to the target", [said, to_html(table), figures])


def where(bench: Bench) -> str:
    """Say which cells a figure of all methods is over."""
    if not bench.common.cells:
        return "over the cells of each method, for the methods have no setting and seed in common"
    number = count(len(bench.common.originals()), "combination")
    return f"over {number} of setting and seed, all in which every method was run"


@dataclass(frozen=True)
class Means:
    """The means of a method with a target over some cells."""

    name: str
    cells: int
    reached: int
    """The number of cells that reached their target."""
    gap: float
    worst: float
    kept: float | None
    time: float | None
    timed: int
    """The number of cells that the time is a mean of."""

    @classmethod
    def of(cls, name: str, cells: Sequence[Cell]) -> Means:
        gaps, times = (
            [v for v in of if v is not None] for of in zip(*((c.record.gap, c.time) for c in cells), strict=True)
        )
        reached = sum(cell.record.reached is True for cell in cells)
        kept = mean(retention(cell) for cell in cells)
        return cls(name, len(cells), reached, mean(gaps) or 0.0, max(gaps, default=0.0), kept, mean(times), len(times))

    @property
    def order(self) -> tuple[float, float]:
        """The key by which the best comes first: distance and loss together; of two alike, the faster."""
        lost = self.gap + max(0.0, 1.0 - (1.0 if self.kept is None else self.kept))
        return round(lost, 3), math.inf if self.time is None else self.time

    def __str__(self) -> str:
        hits = f"reached in {self.reached:,} of {count(self.cells, 'cell')}, {self.gap:.3f} away on average"
        return hits + ("" if self.kept is None else f", {self.kept:.1%} of the rest kept")


def control_words(bench: Bench) -> str:
    """Return the verdict on control; each destination is compared by itself."""
    found = {target: _compared(bench, target) for target in bench.destinations}
    if not found:
        return "No method with a target was run."
    said = {target: " ".join(filter(None, _verdict(*of))) for target, of in found.items()}
    if len(said) > 1:
        return " ".join(f"To {target}: {text}" for target, text in said.items()) + f" {CRITERION}"
    ((methods, shared),) = found.values()
    ranked = len(methods) > 1 and _best(methods, shared) is not None
    return " ".join(filter(None, [*said.values(), CRITERION if ranked else ""]))


def _compared(bench: Bench, target: str) -> tuple[list[Means], bool]:
    """Return the means of the methods with a target, over the cells that they have in common.

    Without common cells each mean is over the method's own, and the second value is false.
    """
    cells = [cell for cell in bench.cells if cell.target == target and cell.record.gap is not None]
    common = bench.common_cells(cells)
    names = sorted({cell.label for cell in cells})
    return [Means.of(name, [cell for cell in common or cells if cell.label == name]) for name in names], bool(common)


def _best(methods: Sequence[Means], shared: bool) -> Means | None:
    """Return the method that did best; `None` if none reached its target often enough, or if none can be compared."""
    reached = [means for means in methods if 2 * means.reached >= means.cells]
    return min(reached, key=lambda means: means.order) if reached and shared else None


def _verdict(methods: Sequence[Means], shared: bool) -> tuple[str, str]:
    """Return the verdict on the methods of one destination, and what it leaves out."""
    if len(methods) == 1:
        return f"{methods[0].name}: target {methods[0]}.", ""
    best = _best(methods, shared)
    others = "; ".join(f"{means.name} ({means})" for means in methods if means is not best)
    if not shared:
        return "No best method: the methods have no setting and seed in common.", f"Each over its own cells: {others}."
    over = f"In the {count(methods[0].cells, 'cell')} of each that all methods with this target have in common"
    if best is None:
        often = " in half of its cells" if any(means.reached for means in methods) else ""
        return f"No method reached its target{often}.", f"{over}: {others}."
    return f"{best.name} did best: target {best}.", f"{over}, the others: {others}."
