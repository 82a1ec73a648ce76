"""Radar charts in the paper's form: the forget corner is 1 − |forget MRR − the retrained ranker's test MRR|, or − the
target where a method was given another one.

There are eight corners: four sets, each for queries and for documents removed; four where one of the two was. The
paper's own numbers are drawn alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from unrank.record import SETS
from unrank.report.bench_figures import style_of
from unrank.report.cell import REMOVALS, Bench, Cell
from unrank.report.compare import mean
from unrank.report.figure.radar import Polygon, radar
from unrank.report.figure.shape import Drawing
from unrank.report.paper import the_paper
from unrank.report.wording import file_name, percent

CORNERS = [(name, removal) for name in SETS for removal in REMOVALS]
Corners = Mapping[str, float | None]
"""For each set how good a cell is there, from 0 to 1."""


def mean_radars(bench: Bench) -> list[Drawing]:
    """One a share, averaged over collections and rankers, as the paper's main figure is: over those that its methods
    share; where there are none, each over its own."""
    return [
        _radar(bench, f"radar {percent(share)}", f"{percent(share)} removed, ours", cells, ours)
        for share, cells in _by_share(bench).items()
    ]


def paper_radars(bench: Bench) -> list[Drawing]:
    """The paper's own numbers for the same cells; none where it has none."""
    return [
        _radar(bench, f"paper radar {percent(share)}", f"{percent(share)} removed, the paper's", printed, theirs)
        for share, cells in _by_share(bench).items()
        if (printed := [cell for cell in cells if the_paper().printed(cell)])
    ]


def radars_of(bench: Bench) -> list[Drawing]:
    """One a collection, ranker and share."""
    groups: dict[str, list[Cell]] = {}
    for cell in sorted(bench.cells, key=lambda cell: bench.settings.index(cell.setting)):
        setting = cell.setting
        title = f"{setting.collection}, {setting.ranker}, {percent(setting.share)} removed"
        groups.setdefault(title, []).append(cell)
    return [_radar(bench, f"radar {title}", title, cells, ours) for title, cells in groups.items()]


def ours(cell: Cell) -> Corners:
    kept = {name: measure.mrr for name, measure in cell.run.after.items()}
    return kept | {"forget": _nearness(cell.missed)}


def theirs(cell: Cell) -> Corners:
    paper = the_paper()
    return {**(paper.printed(cell) or {}), "forget": _nearness(paper.distance(cell))}


def _nearness(distance: float | None) -> float | None:
    return None if distance is None else 1 - distance


def _by_share(bench: Bench) -> dict[float, list[Cell]]:
    shares = sorted({setting.share for setting in bench.settings})
    cells = {share: [cell for cell in bench.cells if cell.setting.share == share] for share in shares}
    return {share: bench.in_shared_settings(of) or of for share, of in cells.items()}


def _radar(bench: Bench, name: str, title: str, cells: Sequence[Cell], corners: Callable[[Cell], Corners]) -> Drawing:
    """Without the corners of a kind of removal that nobody was asked for."""
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
