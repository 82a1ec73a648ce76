"""The figures of a bench: trade-off, time, ranks of forgotten documents, the four sets, curves and radars.

Radars have the paper's form: the forget corner is 1 − |forget MRR − the retrained ranker's test MRR|, or − the target
if a method was given another one. There are eight corners: four sets, each for queries and for documents removed; four
if only one of the two was removed. The paper's own numbers are drawn in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from zlib import crc32

from unrank.errors import count
from unrank.record import SETS, SetSummary
from unrank.report.cell import REMOVALS, Bench, Cell, Ranks, Setting
from unrank.report.charts import (
    MRR,
    Bars,
    Polygon,
    Target,
    Trade,
    curves,
    grouped_bars,
    radar,
    rank_bars,
    row_bars,
    tradeoff,
)
from unrank.report.compare import mean, retention
from unrank.report.drawing import MUTED, SERIES, Drawing, Style
from unrank.report.paper import the_paper
from unrank.report.primary import Primary
from unrank.report.run_figures import path_of
from unrank.report.wording import file_name, percent

ORIGINAL = Style(MUTED, "_")
FIXED = (
    "retrain", "cocol", "finetune", "amnesiac", "neggrad", "ssd", "bad-teacher", "neggrad-plus", "scrub", "npo",
    "simnpo", "undial", "salun", "task-negation", "curd",
)  # fmt: skip
"""The methods whose styles are fixed, in this order."""
STYLES = 280
"""The number of styles that differ in colour, marker or dash."""
CORNERS = [(name, removal) for name in SETS for removal in REMOVALS]
Corners = Mapping[str, float | None]
"""How good a cell is on each set, from 0 to 1."""


def style_of(bench: Bench, name: str) -> Style:
    """Return the style of a method: in every bench the same, unless two would look alike in this one.

    Methods of unrank's own with their own settings come first, so theirs are always the same. The style of a preset, a
    setting or a destination is that of its name, or the next one in a colour that is free.
    """
    methods = {series: bench.of(series)[0].record.method for series in bench.series}
    taken: dict[int, str] = {}
    for series in sorted(methods, key=lambda each: (methods[each] not in FIXED or methods[each] != each, each)):
        plain = series == methods[series] and series in FIXED
        number = FIXED.index(series) if plain else crc32(series.encode()) % STYLES
        colours = {one % len(SERIES) for one in taken}
        while number in taken or (not plain and number % len(SERIES) in colours and len(colours) < len(SERIES)):
            number = (number + 1) % STYLES
        taken[number] = series
    return Style.of(next(number for number, series in taken.items() if series == name))


def compared(bench: Bench) -> Bench:
    """Return the cells that all methods have in common; all cells if there are none."""
    return bench.common if bench.common.cells else bench


def mean_tradeoff(bench: Bench) -> Drawing | None:
    shown, trades = compared(bench), []
    for name in bench.series:
        cells = shown.of(name)
        distance = mean(cell.missed for cell in cells)
        kept = mean(retention(cell) for cell in cells)
        if distance is not None and kept is not None:
            trades.append(Trade(name, style_of(bench, name), 1 - distance, kept))
    return tradeoff("tradeoff", "Forgetting against retention", trades) if trades else None


def distances(found: Primary) -> Drawing | None:
    """Draw the distance to retrain of doing nothing and of each comparable method, beside the noise of retraining."""
    rows, halves = [], []
    for row in found.together:
        if not row.is_retrained and (estimate := found.distance.mean(row)):
            style = ORIGINAL if row.side == "before" else style_of(found.bench, row.name)
            rows.append((row.name, style, estimate.value))
            halves.append((estimate.high - estimate.low) / 2)
    settings = {cell.setting for row in found.together if not row.is_retrained for cell in row.cells}
    known = settings <= found.noise.keys()
    noise = mean(found.noise[setting] for setting in settings) if known else None
    label = "distance to retrain, query by query"
    return row_bars("distance", "Distance to retrain", label, rows, noise, halves) if rows else None


def times(bench: Bench, setting: Setting | None = None) -> Drawing | None:
    """Draw the time of each method as a multiple of the retraining time, in one setting or over all."""
    found = {name: [t for c in bench.of(name, setting) if (t := c.time) is not None] for name in bench.series}
    names = _with_numbers({name: len(values) for name, values in found.items() if values}, "cell")
    rows = [(names[name], style_of(bench, name), fmean(found[name])) for name in names]
    name, title = file_name(f"time-{setting or ''}"), str(setting or "Time against retraining")
    return row_bars(name, title, "times of retraining", rows, 1.0) if rows else None


def rank_changes(bench: Bench) -> Drawing:
    """Draw the ranks of forgotten documents for the original and for each method."""
    shown = compared(bench)
    before = [rank for cell in shown.originals() for rank in _forgotten(cell).before]
    series: list[tuple[str, Style, list[int]]] = [("original", ORIGINAL, before)]
    for name in bench.series:
        after = [rank for cell in shown.of(name) for rank in _forgotten(cell).after]
        series.append((name, style_of(bench, name), after))
    return rank_bars("Ranks of forgotten documents", series)


def _forgotten(cell: Cell) -> Ranks:
    return cell.ranks.get("forget", Ranks([], []))


def set_bars(bench: Bench, setting: Setting) -> Drawing:
    """Draw the four MRRs of the original and of every method in one setting, as means over seeds."""
    originals, cells = bench.originals(setting), {name: bench.of(name, setting) for name in bench.series}
    sets = [name for name in SETS if name in originals[0].record.after]

    def bars(name: str, style: Style, sides: Sequence[Mapping[str, SetSummary]]) -> Bars:
        return Bars(name, style, [fmean(side[of].mrr for side in sides) for of in sets])

    numbers = {"original": len(originals)} | {name: len(found) for name, found in cells.items() if found}
    names = _with_numbers(numbers, "seed")
    series = [bars(names.pop("original"), ORIGINAL, [cell.record.before for cell in originals])]
    for name, shown in names.items():
        series.append(bars(shown, style_of(bench, name), [cell.record.after for cell in cells[name]]))
    return grouped_bars(file_name(f"sets-{setting}"), str(setting), "", sets, series, MRR)


def _with_numbers(numbers: Mapping[str, int], unit: str) -> dict[str, str]:
    """Return names to show: with the number of cells that a mean is over if these numbers differ."""
    unequal = len(set(numbers.values())) > 1
    return {name: f"{name}, {count(number, unit)}" if unequal else name for name, number in numbers.items()}


def curves_of(bench: Bench) -> list[Drawing]:
    """Draw the forget MRR over epochs, one figure per setting."""
    return [drawn for setting in bench.settings if (drawn := method_curves(bench, setting, "forget"))]


def method_curves(bench: Bench, setting: Setting, of: str) -> Drawing | None:
    """Draw the MRR of a set over epochs, one line per method (its lowest seed); `None` if no run was watched."""
    firsts = {name: cells[0] for name in bench.series if (cells := bench.of(name, setting))}
    paths = {name: path_of(cell.record, of, name, style_of(bench, name)) for name, cell in firsts.items()}
    series = [path for path in paths.values() if path]
    aims = {cell.record.target for cell in firsts.values() if cell.target is not None and of == "forget"}
    targets = [Target(aim) for aim in aims if aim is not None]
    return curves(file_name(f"curves-{of}-{setting}"), str(setting), series, targets) if series else None


def mean_radars(bench: Bench) -> list[Drawing]:
    """Draw one radar per share, averaged over collections and rankers, as in the paper's main figure."""
    return [
        _radar(bench, f"radar {percent(share)}", f"{percent(share)} removed, ours", cells, ours)
        for share, cells in _by_share(bench).items()
    ]


def paper_radars(bench: Bench) -> list[Drawing]:
    """Draw the paper's numbers for the cells of `mean_radars` that it printed."""
    return [
        _radar(bench, f"paper radar {percent(share)}", f"{percent(share)} removed, the paper's", printed, theirs)
        for share, cells in _by_share(bench).items()
        if (printed := [cell for cell in cells if the_paper().printed(cell)])
    ]


def radars_of(bench: Bench) -> list[Drawing]:
    """Draw one radar per collection, ranker and share; each corner averages the seeds that its methods share."""
    groups: dict[str, list[Cell]] = {}
    for setting in bench.settings:
        cells = [cell for cell in bench.cells if cell.setting == setting]
        title = f"{setting.collection}, {setting.ranker}, {percent(setting.share)} removed"
        groups.setdefault(title, []).extend(bench.common_cells(cells) or cells)
    return [_radar(bench, f"radar {title}", title, cells, ours) for title, cells in groups.items()]


def ours(cell: Cell) -> Corners:
    kept = {name: metrics.mrr for name, metrics in cell.record.after.items()}
    return kept | {"forget": _nearness(cell.missed)}


def theirs(cell: Cell) -> Corners:
    paper = the_paper()
    return {**(paper.printed(cell) or {}), "forget": _nearness(paper.distance(cell))}


def _nearness(distance: float | None) -> float | None:
    return None if distance is None else 1 - distance


def _by_share(bench: Bench) -> dict[float, list[Cell]]:
    shares = sorted({setting.share for setting in bench.settings})
    cells = {share: [cell for cell in bench.cells if cell.setting.share == share] for share in shares}
    return {share: bench.common_cells(of) or of for share, of in cells.items()}


def _radar(bench: Bench, name: str, title: str, cells: Sequence[Cell], corners: Callable[[Cell], Corners]) -> Drawing:
    """Draw one polygon per method; a kind of removal that no cell has gets no corners."""
    there = [(of, removal) for of, removal in CORNERS if any(cell.setting.removal == removal for cell in cells)]
    polygons = []
    for series in bench.series:
        mine = [cell for cell in cells if bench.name_of(cell) == series]
        values = [
            mean(corners(cell).get(of) for cell in mine if cell.setting.removal == removal) for of, removal in there
        ]
        if mine:
            polygons.append(Polygon(series, style_of(bench, series), values))
    return radar(file_name(name), title, [f"{of}, {removal}" for of, removal in there], polygons)
