"""The figures of a bench: trade-off, time, where forgotten documents stand, and curves."""

from __future__ import annotations

from unrank.report.cell import Bench, Cell, Ranks
from unrank.report.compare import mean, retention
from unrank.report.figure.bars import lying_bars
from unrank.report.figure.curve import Curve, curves
from unrank.report.figure.palette import Style
from unrank.report.figure.places import places
from unrank.report.figure.shape import Drawing
from unrank.report.figure.tradeoff import Trade, tradeoff
from unrank.report.wording import file_name


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


def rank_changes(bench: Bench) -> Drawing:
    """Where forgotten documents stood for the original, and where they stand for each method, over all cells."""
    before = [rank for cell in bench.cells for rank in _forgotten(cell).before]
    series: list[tuple[str, Style, list[int]]] = [("original", Style("muted", "bar", ""), before)]
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
            name = file_name(f"curves-{setting}")
            drawn.append(curves(name, str(setting), [curve for curve, _ in series], targets))
    return drawn


def _curve(name: str, style: Style, cell: Cell) -> Curve:
    run = cell.run
    points = [(float(line["epoch"]), float(line["forget"])) for line in run.history if "forget" in line]
    landed = (points[-1][0], run.after["forget"].mrr) if run.landed else None
    return Curve(name, style, [(0.0, run.before["forget"].mrr), *points], landed)


def _is_watched(cell: Cell) -> bool:
    return any("forget" in line for line in cell.run.history)
