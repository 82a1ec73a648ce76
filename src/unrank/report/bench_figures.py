"""The figures of a bench: trade-off, time, radar charts in the paper's form, and curves."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from unrank.report.cell import Bench, Cell, Ranks, Setting
from unrank.report.compare import mean, retention
from unrank.report.figure.bars import lying_bars
from unrank.report.figure.curve import Curve, curves
from unrank.report.figure.palette import Style
from unrank.report.figure.places import places
from unrank.report.figure.radar import Polygon, radar
from unrank.report.figure.shape import Drawing
from unrank.report.figure.tradeoff import Trade, tradeoff
from unrank.report.paper import the_paper
from unrank.report.record import SETS

REMOVALS = ("queries", "documents")
Pick = Callable[[Setting], bool]


def style_of(bench: Bench, name: str) -> Style:
    return Style.of(bench.series.index(name))


def mean_tradeoff(bench: Bench) -> Drawing | None:
    trades = []
    for name in bench.series:
        cells = bench.of(name)
        distance = mean(cell.run.gap if cell.target is not None else cell.distance for cell in cells)
        kept = mean(retention(cell) for cell in cells)
        if distance is not None and kept is not None:
            trades.append(Trade(name, style_of(bench, name), 1 - distance, kept))
    return tradeoff("tradeoff", "Forgetting against retention", trades) if trades else None


def times(bench: Bench) -> Drawing | None:
    rows = [
        (name, style_of(bench, name), time)
        for name in bench.series
        if (time := mean(cell.time for cell in bench.of(name))) is not None
    ]
    return lying_bars("time", "Time against retraining", "times of retraining", rows, 1.0) if rows else None


def mean_radars(bench: Bench) -> list[Drawing]:
    """One a share, averaged over collections and rankers, as the paper's main figure is."""
    return [
        _radar(bench, f"radar-{share:.0%}", f"{share:.0%} removed, ours", lambda s, share=share: s.share == share)  # type: ignore[misc]
        for share in sorted({setting.share for setting in bench.settings})
    ]


def radars_of(bench: Bench) -> list[Drawing]:
    """One a collection, ranker and share."""
    keys = sorted({(s.collection, s.ranker, s.share) for s in bench.settings})
    return [
        _radar(
            bench,
            f"radar-{collection}-{ranker}-{share:.0%}",
            f"{collection}, {ranker}, {share:.0%} removed",
            lambda s, key=(collection, ranker, share): (s.collection, s.ranker, s.share) == key,  # type: ignore[misc]
        )
        for collection, ranker, share in keys
    ]


def paper_radars(bench: Bench) -> list[Drawing]:
    """The paper's own numbers for the same cells, in the same form."""
    drawn = []
    for share in sorted({setting.share for setting in bench.settings}):
        polygons = []
        for name in bench.series:
            cells = [cell for cell in bench.of(name) if cell.setting.share == share]
            values = [_printed(cells, removal, s) for s in SETS for removal in REMOVALS]
            if any(value is not None for value in values):
                polygons.append(Polygon(name, style_of(bench, name), values))
        if polygons:
            title = f"{share:.0%} removed, the paper's"
            drawn.append(radar(f"paper-{_file_name(f'radar-{share:.0%}')}", title, _corners(), polygons))
    return drawn


def rank_changes(bench: Bench) -> Drawing:
    """Where forgotten documents stood for the original, and where they stand for each method, over all cells."""
    before = [rank for cell in bench.cells for rank in _forgotten(cell).before]
    series: list[tuple[str, Style, list[int]]] = [("original", Style("muted", "circle", ""), before)]
    for name in bench.series:
        after = [rank for cell in bench.of(name) for rank in _forgotten(cell).after]
        series.append((name, style_of(bench, name), after))
    return places("Places of forgotten documents", series)


def _forgotten(cell: Cell) -> Ranks:
    return cell.ranks.get("forget", Ranks([], []))


def curves_of(bench: Bench) -> list[Drawing]:
    """The forget MRR over epochs, one figure a setting, a line a method (its first seed)."""
    drawn = []
    for setting in bench.settings:
        firsts = [(name, cells[0]) for name in bench.series if (cells := bench.of(name, setting))]
        series = [(_curve(name, style_of(bench, name), cell), cell) for name, cell in firsts if _is_watched(cell)]
        if series:
            targets = [cell.run.target for _, cell in series if cell.target is not None and cell.run.target is not None]
            name = _file_name(f"curves-{setting}")
            drawn.append(curves(name, str(setting), [curve for curve, _ in series], targets))
    return drawn


def _curve(name: str, style: Style, cell: Cell) -> Curve:
    run = cell.run
    points = [(float(line["epoch"]), float(line["forget"])) for line in run.history if "forget" in line]
    landed = (points[-1][0], run.after["forget"].mrr) if run.landed else None
    return Curve(name, style, [(0.0, run.before["forget"].mrr), *points], landed)


def _is_watched(cell: Cell) -> bool:
    return any("forget" in line for line in cell.run.history)


def _radar(bench: Bench, name: str, title: str, pick: Pick) -> Drawing:
    polygons = []
    for series in bench.series:
        cells = [cell for cell in bench.of(series) if pick(cell.setting)]
        if cells:
            values = [_value(cells, removal, s) for s in SETS for removal in REMOVALS]
            polygons.append(Polygon(series, style_of(bench, series), values))
    return radar(_file_name(name), title, _corners(), polygons)


def _corners() -> list[str]:
    return [f"{name}, {removal}" for name in SETS for removal in REMOVALS]


def _value(cells: Sequence[Cell], removal: str, name: str) -> float | None:
    here = [cell for cell in cells if cell.setting.removal == removal]
    if name == "forget":
        distance = mean(cell.distance for cell in here)
        return None if distance is None else 1 - distance
    return mean(cell.run.after[name].mrr if name in cell.run.after else None for cell in here)


def _printed(cells: Sequence[Cell], removal: str, name: str) -> float | None:
    paper, here = the_paper(), [cell for cell in cells if cell.setting.removal == removal]
    if name == "forget":
        distance = mean(paper.distance(cell) for cell in here)
        return None if distance is None else 1 - distance
    return mean((paper.printed(cell) or {}).get(name) for cell in here)


def _file_name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
