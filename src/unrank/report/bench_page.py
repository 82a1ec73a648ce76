"""The page of a bench: every method beside the retrained ranker, and beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from unrank.errors import UnknownName, count
from unrank.evaluation.bootstrap import BootstrapEstimate
from unrank.record import KEPT, Said
from unrank.report.agreement_tables import result_tables
from unrank.report.bench_cells import cells_section, cells_table, filters
from unrank.report.bench_figures import (
    curves_of,
    distances,
    mean_radars,
    paper_radars,
    radars_of,
    rank_changes,
    times,
)
from unrank.report.bench_tables import (
    control_table,
    detail_note,
    detail_tables,
    making_tables,
    removed_table,
)
from unrank.report.cell import Bench, Cell
from unrank.report.compare import mean
from unrank.report.control import control_section, where
from unrank.report.drawing import Drawing
from unrank.report.estimates import NOTHING, Row
from unrank.report.page import Card, Content, Figures, Page, Section, paragraph
from unrank.report.paper import the_paper
from unrank.report.paper_tables import ablation_table, paper_details, paper_table
from unrank.report.primary import Primary, comes_back
from unrank.report.table import Table, to_html
from unrank.report.wording import NOTE_ON_RANKS, distinct, listing


def bench_page(bench: Bench, given: Said | None = None) -> tuple[Page, list[Table]]:
    """Make the page, and its tables for files. `given` is the primary method and the margin, if said after the runs."""
    if given and given.primary and given.primary not in bench.series:
        raise UnknownName("method of this bench", given.primary, bench.series)
    found = Primary(bench)
    results = result_tables(found, given)
    control, beside = control_table(bench), [paper_table(bench), ablation_table(bench), paper_details(bench)]
    theirs = [table for table in beside if table]
    details, paths = detail_tables(bench), _named_apart(curves_of(bench))
    listed = cells_table(found)
    sections = [
        _result(found, results),
        cells_section(bench, listed),
        *([control_section(bench, control)] if control else []),
        _paper(bench, theirs),
        _removed(bench),
        _details(bench, details),
        *([_paths(bench, paths)] if paths else []),
        Section("making", "Making", "How it was made", [to_html(table) for table in making_tables(bench)]),
    ]
    verdict, lead, cards = headline(found)
    files = [*results, *([control] if control else []), *theirs, listed, *details]
    return Page(_kind(bench), verdict, lead, cards, sections, filters=filters(bench)), files


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


def headline(found: Primary) -> tuple[str, str, list[Card]]:
    """Return the verdict by the primary result, the paragraph below it and the cards."""
    rows = [row for row in found.together if not row.is_retrained]
    apart = {row.name: estimate for row in rows if (estimate := found.distance.mean(row))}
    methods = [row for row in rows if row.name in apart and row.name != NOTHING]
    if not methods:
        return f"No method is compared with retrain: {_why_not(found)}.", "", []
    best = min(methods, key=lambda row: apart[row.name].value)
    own, nothing = apart[best.name], apart.get(NOTHING)
    said = f"{own.value:.3f} from retrain query by query"
    alike = [row.name for row in methods if f"{apart[row.name].value:.3f}" == f"{own.value:.3f}"]
    nearest = f"{listing(alike)} {'are' if len(alike) > 1 else 'is'} nearest"
    verdict = f"{nearest}: {said}" if len(methods) > 1 else f"{best.name} is {said}"
    if nothing is not None and own.value < nothing.value:
        verdict += f"; doing nothing is {nothing.value:.3f} away"
    elif nothing is not None:
        verdict = f"No method is nearer to retrain than doing nothing, which is {nothing.value:.3f} away"
    over = f"Means over {count(len(best.cells), 'cell')} of each method, {_queries(best.cells)}."
    each = [f"{row.name} {apart[row.name].value:.3f}" for row in methods]
    others = "" if verdict.startswith(f"{best.name} is {said}") else f"By method: {'; '.join(each)}. "
    lead = f"{over} {others}The tables below say which differences are more than chance."
    return f"{verdict}.", lead, _cards(found, best, own)


def _why_not(found: Primary) -> str:
    cells = found.bench.cells
    if all(cell.is_retrained for cell in cells):
        return "no other method was run"
    if not any(cell.is_retrained for cell in cells):
        return "no retrained ranker was run"
    return "the methods share no setting, seed and draw with each other, or none with a retrained ranker"


def _queries(cells: Sequence[Cell]) -> str:
    return count(sum(len(cell.ranks["forget"].after) for cell in cells if "forget" in cell.ranks), "forget query")


def _cards(found: Primary, row: Row, own: BootstrapEstimate) -> list[Card]:
    over = found.over_noise(row)
    noise = (
        f"{over:.2f} × the noise of two retrained rankers"
        if over is not None
        else "the noise of retraining is not known"
    )
    cards = [Card("Distance to retrain", f"{own.value:.3f} ± {(own.high - own.low) / 2:.3f}", f"{row.name}: {noise}")]
    kept = {letter: share for letter, name in zip("EDT", KEPT, strict=True) if (share := found.kept(row, name))}
    if kept:
        shown = " · ".join(f"{share.value:.1%}" for share in kept.values())
        cards.append(Card(f"Kept of {' · '.join(kept)}", shown, "of the original's MRR"))
    back = mean(comes_back(cell) for cell in row.cells)
    if back is not None:
        cards.append(Card("Comes back", f"{back:+z.3f}", "forget MRR, after an epoch on kept data"))
    taken = mean(cell.time for cell in row.cells)
    if taken is not None:
        cards.append(Card("Time", f"{taken:.2f} ×", "of what retraining takes"))
    return cards


def _result(found: Primary, tables: Sequence[Table]) -> Section:
    captions = (
        "The mean distance to retrain, query by query, of the comparable methods; whiskers are 95 % intervals, the "
        "dotted line is the distance of two retrained rankers of different seeds, if every setting has two.",
        "Time in times of retraining, checks and landing included, over the cells of each method that had the machine "
        "to themselves; the dotted line is retraining.",
    )
    drawn = zip((distances(found), times(found.bench)), captions, strict=True)
    figures = Figures([(drawing, caption) for drawing, caption in drawn if drawing])
    first, *others = map(to_html, tables)
    content: list[Content] = [first, figures, *others, paragraph(NOTE_ON_RANKS)]
    return Section("result", "Result", "Distance to retrain, query by query", content)


def _paper(bench: Bench, tables: Sequence[Table]) -> Section:
    whole = _radars(mean_radars(bench), paper_radars(bench), _named_apart(radars_of(bench)))
    return Section("paper", "The paper", "In the paper's measures", [*map(to_html, tables), *whole])


def _details(bench: Bench, tables: Sequence[Table]) -> Section:
    """Show the tables, with their common note only once."""
    bare = [to_html(replace(table, note="")) for table in tables]
    return Section("tables", "Tables", "Setting by setting", [paragraph(detail_note(bench)), *bare])


def _radars(ours: Sequence[Drawing], theirs: Sequence[Drawing], each: Sequence[Drawing]) -> list[Content]:
    text = (
        "In the paper's form: the forget corner is 1 − |forget MRR − retrain's test MRR|, or from the target if that "
        "is another; the others are MRRs, each for queries and for documents removed. Further out is better. A chart "
        "of several collections and rankers is over the settings, seeds and draws in which all its methods were run, "
        "if there are any; a chart of one over the common seeds and draws."
    )
    content: list[Content] = [paragraph(text)]
    for drawing in ours:
        beside = [other for other in theirs if other.name == f"paper-{drawing.name}"]
        content.append(Figures([(drawn, drawn.title) for drawn in (drawing, *beside)]))
    content.append(paragraph(f"The paper's numbers: {the_paper().source}.") if theirs else None)
    content.append(Figures([(drawn, drawn.title) for drawn in each], "For each collection and ranker"))
    return content


def _removed(bench: Bench) -> Section:
    caption = (
        f"All queries {where(bench)}. The rank of each forget query's first forgotten document for the original and "
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
