"""The section on control: how near each method brought the forget MRR to its target, each destination by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unrank.errors import count
from unrank.report.bench_figures import mean_tradeoff
from unrank.report.cell import Bench, Cell, there_before
from unrank.report.compare import mean, retention
from unrank.report.page import Figures, Section, paragraph
from unrank.report.table import Table, to_html
from unrank.report.wording import listing

CRITERION = (
    "Best: the least sum of the distance from δ, the target, and the share of the other sets' MRR that was lost, among "
    "methods that brought F to δ or below, within the tolerance, in at least half of their cells; of two alike, the "
    "faster, if both times are known. Cells that were there before the run do not count."
)
TRIAL = "setting, seed and draw"


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
        return f"over the cells of each method, for the methods have no {TRIAL} in common"
    number = count(len(bench.common.originals()), "combination")
    return f"over {number} of {TRIAL}, all in which every method was run"


@dataclass(frozen=True)
class Means:
    """The means of a method with a target over some cells."""

    name: str
    cells: int
    reached: int
    """The number of cells with F at the target or below, within the tolerance."""
    before: int
    """The number of those that were there before the run."""
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
        there = [cell for cell in cells if cell.record.reached is True]
        before, kept = sum(there_before(cell.record) for cell in there), mean(retention(cell) for cell in cells)
        gap, worst = mean(gaps) or 0.0, max(gaps, default=0.0)
        return cls(name, len(cells), len(there), before, gap, worst, kept, mean(times), len(times))

    @property
    def did(self) -> bool:
        """Whether the method itself brought F to the target in at least half of its cells."""
        return 2 * (self.reached - self.before) >= self.cells

    @property
    def lost(self) -> float:
        """The distance from the target and the loss together, by the digits that are shown."""
        return round(self.gap + max(0.0, 1.0 - (1.0 if self.kept is None else self.kept)), 3)

    @property
    def pace(self) -> float | None:
        """The time by the digits that are shown; `None` if it is not known of every cell."""
        return None if self.time is None or self.timed < self.cells else round(self.time, 2)

    def __str__(self) -> str:
        hits = f"at δ or below, within the tolerance, in {self.reached:,} of {count(self.cells, 'cell')}"
        hits += f" ({self.before:,} of them before the run)" if self.before else ""
        kept = "" if self.kept is None else f", {self.kept:.1%} of the rest kept"
        return f"{hits}, {self.gap:.3f} away on average{kept}"


def control_words(bench: Bench) -> str:
    """Return the verdict on control; each destination is compared by itself."""
    found = {target: _compared(bench, target) for target in bench.destinations}
    if not found:
        return "No method with a target was run."
    said = {target: " ".join(filter(None, _verdict(*of))) for target, of in found.items()}
    if len(said) > 1:
        return " ".join(f"To {target}: {text}" for target, text in said.items()) + f" {CRITERION}"
    ((methods, shared),) = found.values()
    ranked = len(methods) > 1 and _best(methods, shared)
    return " ".join(filter(None, [*said.values(), CRITERION if ranked else ""]))


def _compared(bench: Bench, target: str) -> tuple[list[Means], bool]:
    """Return the means of the methods with a target, over the cells that they have in common.

    Without common cells each mean is over the method's own, and the second value is false.
    """
    cells = [cell for cell in bench.cells if cell.target == target and cell.record.gap is not None]
    common = bench.common_cells(cells)
    names = sorted({cell.label for cell in cells})
    return [Means.of(name, [cell for cell in common or cells if cell.label == name]) for name in names], bool(common)


def _best(methods: Sequence[Means], shared: bool) -> list[Means]:
    """Return the method that did best, or all that did so alike.

    There is none if no method reached its target often enough, or if none can be compared.
    """
    did = [means for means in methods if means.did] if shared else []
    least = min((means.lost for means in did), default=0.0)
    alike = [means for means in did if means.lost == least]
    paces = [means.pace for means in alike if means.pace is not None]
    return [means for means in alike if means.pace == min(paces)] if len(paces) == len(alike) else alike


def _verdict(methods: Sequence[Means], shared: bool) -> tuple[str, str]:
    """Return the verdict on the methods of one destination, and what it leaves out."""
    if len(methods) == 1:
        return f"{methods[0].name}: {methods[0]}.", ""
    best = _best(methods, shared)
    others = "; ".join(f"{means.name} ({means})" for means in methods if means not in best)
    if not shared:
        return f"No best method: the methods have no {TRIAL} in common.", f"Each over its own cells: {others}."
    over = f"In the {count(methods[0].cells, 'cell')} of each that all methods with this target have in common"
    if not best:
        often = ", in half of its cells" if any(means.reached > means.before for means in methods) else ""
        return f"No method brought F to δ or below, within the tolerance{often}.", f"{over}: {others}."
    names = f"{listing([means.name for means in best])} did best{' alike' if len(best) > 1 else ''}"
    did = "; ".join(map(str, best)) if len(best) == 1 else "; ".join(f"{means.name} {means}" for means in best)
    return f"{names}: {did}.", f"{over}, the others: {others}." if others else f"{over}, none did worse."
