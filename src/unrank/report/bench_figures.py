"""The figures of a bench: trade-off, time, where forgotten documents stand, and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from unrank.record import SETS, SetSummary
from unrank.report.cell import Bench, Cell, Ranks, Setting
from unrank.report.compare import mean, retention
from unrank.report.figure.bars import MRR, Bars, grouped_bars, lying_bars
from unrank.report.figure.curve import Target, curves
from unrank.report.figure.palette import Style
from unrank.report.figure.places import places
from unrank.report.figure.shape import Drawing
from unrank.report.figure.tradeoff import Trade, tradeoff
from unrank.report.path import path_of
from unrank.report.wording import file_name

ORIGINAL = Style("muted", "bar", "")


def style_of(bench: Bench, name: str) -> Style:
    return Style.of(bench.series.index(name))


def mean_tradeoff(bench: Bench) -> Drawing | None:
    """Over the settings that the methods share; where there are none, each over its own."""
    shown, trades = bench.shared if bench.shared.cells else bench, []
    for name in bench.series:
        cells = shown.of(name)
        distance = mean(cell.missed for cell in cells)
        kept = mean(retention(cell) for cell in cells)
        if distance is not None and kept is not None:
            trades.append(Trade(name, style_of(bench, name), 1 - distance, kept))
    return tradeoff("tradeoff", "Forgetting against retention", trades) if trades else None


def times(bench: Bench, setting: Setting | None = None) -> Drawing | None:
    """In one setting, or over all."""
    rows = [
        (name, style_of(bench, name), time)
        for name in bench.series
        if (time := mean(cell.time for cell in bench.of(name, setting))) is not None
    ]
    name, title = file_name(f"time-{setting or ''}"), str(setting or "Time against retraining")
    return lying_bars(name, title, "times of retraining", rows, 1.0) if rows else None


def rank_changes(bench: Bench) -> Drawing:
    """Where forgotten documents stood for the original, and where they stand for each method: over the settings that
    the methods share; where there are none, each over its own."""
    shown = bench.shared if bench.shared.cells else bench
    before = [rank for cell in shown.originals() for rank in _forgotten(cell).before]
    series: list[tuple[str, Style, list[int]]] = [("original", ORIGINAL, before)]
    for name in bench.series:
        after = [rank for cell in shown.of(name) for rank in _forgotten(cell).after]
        series.append((name, style_of(bench, name), after))
    return places("Places of forgotten documents", series)


def _forgotten(cell: Cell) -> Ranks:
    return cell.ranks.get("forget", Ranks([], []))


def set_bars(bench: Bench, setting: Setting) -> Drawing:
    """The four MRRs of the original and of every method in one setting, means over seeds."""
    originals = bench.originals(setting)
    sets = [name for name in SETS if name in originals[0].run.after]

    def bars(name: str, style: Style, sides: Sequence[Mapping[str, SetSummary]]) -> Bars:
        return Bars(name, style, [fmean(side[of].mrr for side in sides) for of in sets])

    series = [bars("original", ORIGINAL, [cell.run.before for cell in originals])]
    for name in bench.series:
        if cells := bench.of(name, setting):
            series.append(bars(name, style_of(bench, name), [cell.run.after for cell in cells]))
    return grouped_bars(file_name(f"sets-{setting}"), str(setting), "", sets, series, MRR)


def curves_of(bench: Bench) -> list[Drawing]:
    """The forget MRR over epochs, one figure a setting."""
    return [drawn for setting in bench.settings if (drawn := method_curves(bench, setting, "forget"))]


def method_curves(bench: Bench, setting: Setting, of: str) -> Drawing | None:
    """A set's MRR over epochs, a line a method (its first seed)."""
    firsts = {name: cells[0] for name in bench.series if (cells := bench.of(name, setting))}
    paths = {name: path_of(cell.run, of, name, style_of(bench, name)) for name, cell in firsts.items()}
    series = [path for path in paths.values() if path]
    aims = {cell.run.target for cell in firsts.values() if cell.target is not None and of == "forget"}
    targets = [Target(aim) for aim in aims if aim is not None]
    return curves(file_name(f"curves-{of}-{setting}"), str(setting), series, targets) if series else None
