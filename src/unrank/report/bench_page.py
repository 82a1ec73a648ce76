"""The page of a bench: every method beside the retrained ranker, and beside the paper's numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from unrank.errors import count
from unrank.report.agreement_tables import agreement_table, kept_table
from unrank.report.bench_figures import (
    curves_of,
    mean_radars,
    mean_tradeoff,
    paper_radars,
    radars_of,
    rank_changes,
    times,
)
from unrank.report.bench_tables import (
    detail_note,
    detail_tables,
    making_tables,
    paper_table,
    removed_table,
    shared_table,
    summary_table,
)
from unrank.report.cell import Bench, Cell
from unrank.report.compare import mean, retention
from unrank.report.drawing import Drawing
from unrank.report.page import Card, Content, Figures, Page, Section, paragraph
from unrank.report.paper import the_paper
from unrank.report.table import Table, to_html
from unrank.report.wording import distinct

CRITERION = (
    "Best: the least sum of the distance from the target and the share of the other sets' MRR that was lost, among "
    "methods that reached their target in at least half of their cells."
)


def bench_page(bench: Bench) -> tuple[Page, list[Table]]:
    """Make the page, and its tables for files."""
    summary = [table for table in (summary_table(bench), shared_table(bench), paper_table(bench)) if table]
    compared = [kept_table(bench), *([table] if (table := agreement_table(bench)) else [])]
    details, paths = detail_tables(bench), _named_apart(curves_of(bench))
    sections = [
        _summary(bench, summary),
        _by_query(compared),
        _radars(mean_radars(bench), paper_radars(bench), _named_apart(radars_of(bench))),
        _removed(bench),
        _details(bench, details),
        *([_paths(bench, paths)] if paths else []),
        Section("making", "Making", "How it was made", [to_html(table) for table in making_tables(bench)]),
    ]
    verdict, lead, cards = _headline(bench)
    return Page(_kind(bench), verdict, lead, cards, sections), [*summary, *compared, *details]


def _named_apart(drawings: Sequence[Drawing]) -> list[Drawing]:
    """Return the drawings with names that differ: a page may hold each name once."""
    names = distinct(drawing.name for drawing in drawings)
    return [replace(drawing, name=name) for drawing, name in zip(drawings, names, strict=True)]


def _kind(bench: Bench) -> str:
    settings = bench.settings
    parts = [
        count(len({s.collection for s in settings}), "collection"),
        count(len({s.ranker for s in settings}), "ranker"),
        count(len({cell.label for cell in bench.cells}), "method"),
        count(len(bench.cells), "cell"),
    ]
    return f"A bench: {', '.join(parts)}"


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


def _headline(bench: Bench) -> tuple[str, str, list[Card]]:
    """Return the verdict, the paragraph below it and the cards; each destination is compared by itself."""
    found = {target: _compared(bench, target) for target in bench.destinations}
    if not found:
        return "No method with a target was run.", "", []
    if len(found) > 1:
        lead = " ".join(f"To {target}: {' '.join(filter(None, _verdict(*of)))}" for target, of in found.items())
        cards = [_destination_card(target, *of) for target, of in found.items()]
        return f"{count(len(found), 'destination')}, each compared by itself.", f"{lead} {CRITERION}", cards
    ((methods, shared),) = found.values()
    verdict, others = _verdict(methods, shared)
    best = _best(methods, shared)
    criterion = CRITERION if best and len(methods) > 1 else ""
    return verdict, " ".join(filter(None, [others, criterion])), _cards(best) if best else []


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


def _cards(best: Means) -> list[Card]:
    over = f"{best.name}, on average over {count(best.cells, 'cell')}"
    cards = [Card("From the target", f"{best.gap:.3f}", f"{over}; at worst {best.worst:.3f}")]
    if best.kept is not None:
        cards.append(Card("Kept of the rest", f"{best.kept:.1%}", "of the original's MRR"))
    if best.time is not None:
        cards.append(Card("Time", f"{best.time:.2f} ×", f"of what retraining takes, over {count(best.timed, 'cell')}"))
    return cards


def _destination_card(target: str, methods: Sequence[Means], shared: bool) -> Card:
    best = _best(methods, shared)
    return Card(target, best.name, str(best)) if best else Card(target, "none", _verdict(methods, shared)[0])


def _summary(bench: Bench, tables: Sequence[Table]) -> Section:
    captions = (
        f"Means {_where(bench)}. Forgetting is 1 − the distance from the target, or from retrain's test MRR if a "
        "method has none; retention is the share of the original's MRR that the other sets kept.",
        "Time in times of retraining, checks and landing included, over the cells of each method that had the machine "
        "to themselves; the dashed line is retraining.",
    )
    drawn = zip((mean_tradeoff(bench), times(bench)), captions, strict=True)
    figures = Figures([(drawing, caption) for drawing, caption in drawn if drawing])
    return Section("summary", "Summary", "Method by method", [figures, *map(to_html, tables)])


def _by_query(tables: Sequence[Table]) -> Section:
    return Section("queries", "Query by query", "What was kept, and query by query", [*map(to_html, tables)])


def _where(bench: Bench) -> str:
    """Say which cells a figure of all methods is over."""
    if not bench.common.cells:
        return "over the cells of each method, for the methods have no setting and seed in common"
    number = count(len(bench.common.originals()), "combination")
    return f"over {number} of setting and seed, all in which every method was run"


def _details(bench: Bench, tables: Sequence[Table]) -> Section:
    """Show the tables, with their common note only once."""
    bare = [to_html(replace(table, note="")) for table in tables]
    return Section("tables", "Tables", "Setting by setting", [paragraph(detail_note(bench)), *bare])


def _radars(ours: Sequence[Drawing], theirs: Sequence[Drawing], each: Sequence[Drawing]) -> Section:
    text = (
        "In the paper's form: the forget corner is 1 − |forget MRR − retrain's test MRR|, or from the target if that "
        "is another; the others are MRRs, each for queries and for documents removed. Further out is better. A chart "
        "of several collections and rankers is over the settings and seeds in which all its methods were run, if there "
        "are any; a chart of one over the common seeds."
    )
    content: list[Content] = [paragraph(text)]
    for drawing in ours:
        beside = [other for other in theirs if other.name == f"paper-{drawing.name}"]
        content.append(Figures([(drawn, drawn.title) for drawn in (drawing, *beside)]))
    content.append(paragraph(f"The paper's numbers: {the_paper().source}.") if theirs else None)
    content.append(Figures([(drawn, drawn.title) for drawn in each], "For each collection and ranker"))
    return Section("radars", "Radar charts", "Radar charts", content)


def _removed(bench: Bench) -> Section:
    caption = (
        f"All queries {_where(bench)}. The rank of each forget query's first forgotten document for the original and "
        "for each method, counted as the forget MRR counts: among all candidates, other removed documents too, without "
        "its other relevant ones."
    )
    content: list[Content] = [to_html(removed_table(bench)), Figures([(rank_changes(bench), caption)])]
    return Section("removed", "Removed", "What was removed, and its ranks", content)


def _paths(bench: Bench, drawings: Sequence[Drawing]) -> Section:
    seeds = len({cell.seed for cell in bench.cells}) > 1
    text = "The forget MRR over epochs. Dashed lines across are targets; a large diamond is where a run was landed."
    text += " Of several seeds the lowest is drawn." if seeds else ""
    shown = Figures([(drawing, drawing.title) for drawing in drawings], count(len(drawings), "setting"))
    return Section("path", "Curves", "Check by check", [paragraph(text), shown])
