"""Every cell of a bench in one table, which a page filters, sorts and opens."""

from __future__ import annotations

from collections.abc import Iterable

from unrank.record import KEPT, SETS, Record, SetSummary
from unrank.report.cell import Bench, Cell, there_before
from unrank.report.estimates import NOTHING, Estimates, Row
from unrank.report.page import Markup, Section, element, paragraph, script_data
from unrank.report.primary import DISTANCE, RESAMPLED, Primary, comes_back, estimated
from unrank.report.table import Table, Value, figure, to_html, words
from unrank.report.wording import percent

HEAD = ["method", "collection", "ranker", "removed", "share", "seed", "draw", DISTANCE, "δ", "F"]
HEAD += [*(f"{name} kept" for name in "EDT"), "comes back", "time / retrain"]
NOTE = (
    "One row for each cell and each original. Columns as in the tables above. F: the forget MRR; δ: the target. "
    f"{RESAMPLED}"
)
FILTERS = {"collection": "Collection", "ranker": "Ranker", "removal": "Removed", "method": "Method"}


def cells_table(found: Primary) -> Table:
    """Make one row for each original and each cell."""
    bench = found.bench
    rows: list[Row] = []
    for original in sorted(bench.originals(), key=lambda cell: (cell.setting.order, *cell.trial[1:])):
        methods = [cell for cell in bench.cells if cell.trial == original.trial]
        rows += [Row(NOTHING, [original], "before"), *(Row(bench.name_of(cell), [cell]) for cell in methods)]
    apart = Estimates(rows, lambda row, cell: bench.distances(cell, row.side))
    made = [
        [words(row.name), *_labels(row.cells[0]), estimated(apart.mean(row)), *_figures(row, row.cells[0])]
        for row in rows
    ]
    kinds = [
        _kinds(row.name, row.cells[0]) | ({} if row.side == "before" else {"cell": row.cells[0].name}) for row in rows
    ]
    return Table("every-cell", "Every cell", HEAD, made, 5, NOTE, kinds=kinds)


def _labels(cell: Cell) -> list[Value]:
    setting = cell.setting
    texts = [setting.collection, setting.ranker, setting.removal, percent(setting.share)]
    return [*map(words, texts), figure(cell.seed, "d"), figure(cell.draw, "d")]


def _figures(row: Row, cell: Cell) -> list[Value]:
    if row.side == "before":
        kept = [figure(cell.kept(name, "before")) for name in KEPT]
        return [words(""), figure(cell.record.before["forget"].mrr), *kept, words(""), words("")]
    return [
        figure(cell.record.target if cell.target else None),
        figure(cell.record.after["forget"].mrr),
        *(figure(cell.kept(name)) for name in KEPT),
        figure(comes_back(cell), "+z.3f"),
        figure(cell.time, ".2f"),
    ]


def _kinds(method: str, cell: Cell) -> dict[str, str]:
    setting = cell.setting
    return {"collection": setting.collection, "ranker": setting.ranker, "removal": setting.removal, "method": method}


def cells_section(bench: Bench, table: Table) -> Section:
    text = (
        "Open a cell by its method to see its settings and its four sets before and after. The bar above hides rows "
        "that do not match, in every table that names what is chosen; means in the tables above stay over all cells. A "
        "column's name sorts by it."
    )
    means = element("p", {"id": "shown-cells", "class": "note", "role": "status", "aria-live": "polite"})
    data = {cell.name: _opened(cell) for cell in bench.cells}
    parts = [paragraph(text), means, to_html(table), script_data("cells-data", data)]
    return Section("cells", "Cells", "Every cell", parts)


def _opened(cell: Cell) -> dict[str, object]:
    """Return what a page shows of a cell that is opened."""
    record = cell.record
    sets = [
        [name, *(None if of is None else [of.mrr, of.low, of.high, of.queries] for of in _sides(cell, name))]
        for name in SETS
    ]
    reached = "no target" if cell.target is None else _reached(record)
    facts = {
        "cell": cell.name,
        "target": f"{cell.target}, {reached}" if cell.target else reached,
        "epochs": f"{record.epochs:g}",
        "seconds": f"{record.seconds:.1f}" + ("" if cell.alone else ", beside other cells"),
        "device": record.device,
        "settings": ", ".join(f"{name} {value}" for name, value in record.settings.items()),
    }
    return {"facts": list(facts.items()), "sets": sets}


def _reached(record: Record) -> str:
    """Say where F is to the target."""
    if not record.reached:
        return "not reached"
    return "at it or below, within the tolerance" + (", also before the run" if there_before(record) else "")


def _sides(cell: Cell, name: str) -> list[SetSummary | None]:
    return [side.get(name) for side in (cell.record.before, cell.record.after)]


def filters(bench: Bench) -> Markup:
    """Return the bar that filters rows by collection, ranker, removal and method."""
    values = {
        "collection": sorted({setting.collection for setting in bench.settings}),
        "ranker": sorted({setting.ranker for setting in bench.settings}),
        "removal": sorted({setting.removal for setting in bench.settings}),
        "method": [NOTHING, *bench.series],
    }
    shown = [_select(name, FILTERS[name], choices) for name, choices in values.items()]
    clear = element("button", {"type": "button", "id": "clear-filters"}, "Show all")
    return element("div", {"class": "filters", "role": "search", "aria-label": "Filter the tables"}, shown, clear)


def _select(name: str, label: str, choices: Iterable[str]) -> Markup:
    options = [element("option", {"value": ""}, "all"), *(element("option", {"value": one}, one) for one in choices)]
    return element("label", {}, label, element("select", {"data-filter": name}, options))
