"""The page of a bench: every method beside the retrained ranker, and beside the paper's numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from unrank.errors import count
from unrank.report.bench_figures import curves_of, mean_tradeoff, rank_changes, times
from unrank.report.bench_radars import mean_radars, paper_radars, radars_of
from unrank.report.bench_tables import (
    detail_note,
    detail_tables,
    making_tables,
    paper_table,
    removed_table,
    shared_table,
    summary_table,
)
from unrank.report.cell import Bench
from unrank.report.compare import mean, retention
from unrank.report.figure.shape import Drawing
from unrank.report.markup import Child
from unrank.report.page import Card, Page, Section, figure, folded, paragraph, side_by_side
from unrank.report.paper import the_paper
from unrank.report.table import Table, to_html
from unrank.report.wording import told_apart


def bench_page(bench: Bench) -> tuple[Page, list[Table]]:
    """The page, and its tables for those who want them as files."""
    summary = [table for table in (summary_table(bench), shared_table(bench), paper_table(bench)) if table]
    details, making = detail_tables(bench), making_tables(bench)
    trade, clock, stood = mean_tradeoff(bench), times(bench), rank_changes(bench)
    ours, theirs = mean_radars(bench), paper_radars(bench)
    each, paths = _named_apart(radars_of(bench)), _named_apart(curves_of(bench))
    sections = [
        _summary(bench, summary, [trade, clock]),
        _radars(ours, theirs, each),
        _removed(bench, removed_table(bench), stood),
        _details(bench, details),
        *([_paths(paths)] if paths else []),
        Section("making", "Making", "How it was made", [to_html(table) for table in making]),
    ]
    drawings = [drawing for drawing in (trade, clock, stood) if drawing] + [*ours, *theirs, *each, *paths]
    verdict, lead, cards = _headline(bench)
    return Page(_kind(bench), verdict, lead, cards, sections, drawings), [*summary, *details]


def _named_apart(drawings: Sequence[Drawing]) -> list[Drawing]:
    """What a page calls its figures by stands in it once."""
    names = told_apart(drawing.name for drawing in drawings)
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
    """What a method that was steered to a target came to, on average over its cells."""

    name: str
    cells: int
    settings: int
    gap: float
    worst: float
    kept: float | None
    time: float | None
    timed: int
    """Of how many cells that is the mean."""

    @classmethod
    def of(cls, bench: Bench, name: str) -> Means | None:
        cells = [cell for cell in bench.of(name) if cell.target is not None]
        gap = mean(cell.run.gap for cell in cells)
        if gap is None:
            return None
        kept, times = mean(retention(cell) for cell in cells), [cell.time for cell in cells if cell.time is not None]
        settings, worst = len({cell.setting for cell in cells}), max(cell.run.gap or 0.0 for cell in cells)
        return cls(name, len(cells), settings, gap, worst, kept, mean(times), len(times))

    @property
    def lost(self) -> float:
        """What it missed its targets by and what it lost of the rest, together."""
        return self.gap + max(0.0, 1.0 - (1.0 if self.kept is None else self.kept))

    def __str__(self) -> str:
        return f"{self.gap:.3f} away" + ("" if self.kept is None else f", {self.kept:.1%} of the rest kept")


def _headline(bench: Bench) -> tuple[str, str, list[Card]]:
    """What the method that did best has to show: best where all were run, or else of those that were run in the most
    settings; of two that did alike, the faster."""
    steered = _means_of(bench)
    if not steered:
        return "No method with a target was run.", "", []
    tried = max(means.settings for means in steered)
    compared = _means_of(bench.shared) or [means for means in steered if means.settings == tried]
    first = min(compared, key=lambda means: (round(means.lost, 3), math.inf if means.time is None else means.time))
    best = next(means for means in steered if means.name == first.name)
    verdict = f"{best.name} did best: {best.gap:.3f} from its targets on average"
    verdict += f", with {best.kept:.1%} of the rest kept." if best.kept is not None else "."
    over = f"{best.name}, on average over {count(best.cells, 'cell')}"
    cards = [Card("From the target", f"{best.gap:.3f}", f"{over}; at worst {best.worst:.3f}")]
    if best.kept is not None:
        cards.append(Card("Kept of the rest", f"{best.kept:.1%}", "of the lower of the original's and retrain's MRR"))
    if best.time is not None:
        cards.append(Card("Time", f"{best.time:.2f} ×", f"of what retraining takes, over {count(best.timed, 'cell')}"))
    return verdict, _beside(bench, best), cards


def _beside(bench: Bench, best: Means) -> str:
    """The other methods: in the settings in which all were run, if there are any."""
    shared = _means_of(bench.shared)
    others = [means for means in shared or _means_of(bench) if means.name != best.name]
    if not others:
        return ""
    told = "; ".join(f"{means.name} ({means})" for means in others)
    if len(bench.shared.settings) == len(bench.settings):
        return f"Also steered to a target: {told}."
    if not shared:
        return f"Also steered to a target, in other settings: {told}."
    there = next(means for means in shared if means.name == best.name)
    over = count(there.settings, "setting")
    return f"Also steered to a target, in the {over} in which all were run: {told}. There {best.name}: {there}."


def _means_of(bench: Bench) -> list[Means]:
    return [means for name in bench.series if (means := Means.of(bench, name))]


def _summary(bench: Bench, tables: Sequence[Table], drawings: Sequence[Drawing | None]) -> Section:
    captions = (
        f"Means {_where(bench)}. Forgetting is 1 − the distance from the target, or from retrain's test MRR where a "
        "method has none; retention is measured by the lower of the original and retrain.",
        "Time in times of retraining, checks and landing included, over the cells that had the machine to themselves; "
        "the dashed line is retraining.",
    )
    shown = [figure(drawing, caption) for drawing, caption in zip(drawings, captions, strict=True) if drawing]
    content: list[Child] = [side_by_side(*shown), *map(to_html, tables)]
    return Section("summary", "Summary", "Method by method", content)


def _where(bench: Bench) -> str:
    """Which cells a figure of all methods is over."""
    if not bench.shared.cells:
        return "over the cells of each, for the methods share no setting"
    return f"over {count(len(bench.shared.settings), 'setting')}, all in which every method was run"


def _details(bench: Bench, tables: Sequence[Table]) -> Section:
    """What is said of all tables stands once."""
    bare = [to_html(replace(table, note="")) for table in tables]
    return Section("tables", "Tables", "Setting by setting", [paragraph(detail_note(bench)), *bare])


def _radars(ours: Sequence[Drawing], theirs: Sequence[Drawing], each: Sequence[Drawing]) -> Section:
    told = (
        "In the paper's form: the forget corner is 1 − |forget MRR − retrain's test MRR|, or from the target where "
        "that is another; the others are MRRs, each for queries and for documents removed. Further out is better. A "
        "chart of several collections and rankers is over those in which all its methods were run, if there are any."
    )
    content: list[Child] = [paragraph(told)]
    for drawing in ours:
        beside = [other for other in theirs if other.name == f"paper-{drawing.name}"]
        content.append(side_by_side(*(figure(drawn, drawn.title) for drawn in (drawing, *beside))))
    content.append(paragraph(f"The paper's numbers: {the_paper().source}.") if theirs else None)
    content.append(folded("For each collection and ranker", side_by_side(*(figure(d, d.title) for d in each))))
    return Section("radars", "Radar charts", "Radar charts", content)


def _removed(bench: Bench, table: Table, stood: Drawing) -> Section:
    caption = (
        f"All queries {_where(bench)}. Where each forget query's first forgotten document stood for the original, and "
        "where it stands now, counted as the forget MRR counts: among all candidates, other removed documents too, "
        "without its other relevant ones."
    )
    return Section(
        "removed", "Removed", "What was removed, and where it stands", [to_html(table), figure(stood, caption)]
    )


def _paths(drawings: Sequence[Drawing]) -> Section:
    told = "The forget MRR over epochs. Dashed lines across are targets; a large diamond is where a run was landed."
    shown = side_by_side(*(figure(drawing, drawing.title) for drawing in drawings))
    return Section("path", "Curves", "On the way", [paragraph(told), folded(count(len(drawings), "setting"), shown)])
