"""The charts: bars, curves, histograms, intervals, radars, trade-offs, and several of them as panels of one figure."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unrank.errors import one_line
from unrank.report.drawing import INK, MUTED, Drawing, Style, plain, tip

WIDTH, HEIGHT = 4.2, 2.8
RADAR_WIDTH = 4.8
LEGEND_ROW, TITLE_ROW, TITLE_LENGTH = 0.2, 0.2, 48
"""Inches, as all sizes."""
DOTTED = (0, (3, 3))
FARTHEST = 1e9
"""The largest number that is drawn as it is."""
MOST_FILLED = 2
"""Polygons of a radar chart that are filled: more of them would hide each other."""
RANK_CLASSES = {"1": 1, "2–3": 3, "4–10": 10, "11–30": 30, "31–": 10**9, "none": 0}
"""Classes of ranks by the last rank of each; 0 is no rank."""

Point = tuple[float, float]
Named = tuple[str, Style]


@dataclass(frozen=True)
class Scale:
    """A measure, and how its values are written at the axis and elsewhere."""

    label: str
    tick: str
    value: str


SHARE, MRR = Scale("share", ".0%", ".1%"), Scale("MRR", "g", ".3f")


@dataclass(frozen=True)
class Bars:
    """A value for each class."""

    name: str
    style: Style
    values: Sequence[float]


@dataclass(frozen=True)
class Curve:
    """The values of a series by epoch; `landed` is the value after the weights were moved back towards the target."""

    name: str
    style: Style
    points: Sequence[Point]
    landed: Point | None = None


@dataclass(frozen=True)
class Target:
    """The forget MRR at which a run stops, and the epoch that met it if one did and it is to be marked."""

    value: float
    met: float | None = None
    name: str = "target"

    def __str__(self) -> str:
        return f"{self.value:.3f}" + ("" if self.met is None else f", met after epoch {self.met:g}")


@dataclass(frozen=True)
class Spread:
    """A mean and the ends of its interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Polygon:
    """A value for each corner, from 0 to 1; `None` if it was not measured."""

    name: str
    style: Style
    values: Sequence[float | None]


@dataclass(frozen=True)
class Trade:
    """How near a method came to its target (1 − the distance), and which share it kept of the other sets."""

    name: str
    style: Style
    forgetting: float
    retention: float


def grouped_bars(
    name: str, title: str, label: str, classes: Sequence[str], series: Sequence[Bars], scale: Scale = SHARE
) -> Drawing:
    """Draw bars side by side: one group per class, one bar per series."""

    def paint(figure: Any) -> None:
        axes, breadth = figure.subplots(), 0.8 / len(series)
        most = max(_drawable(value) for bars in series for value in bars.values)
        for number, bars in enumerate(series):
            middles = [place - 0.4 + (number + 0.5) * breadth for place in range(len(classes))]
            axes.bar(
                middles,
                [_drawable(value) for value in bars.values],
                breadth * 0.9,
                color=bars.style.colour,
                gid=tip(_listed(bars)),
            )
            above = [(x, value + most * 0.03) for x, value in zip(middles, bars.values, strict=True) if value]
            axes.plot(*_columns(above), **{**bars.style.line, "linestyle": "none", "markersize": 3.5})
        axes.set_xticks(range(len(classes)), list(map(plain, classes)))
        axes.grid(visible=False, axis="x")
        axes.set(xlabel=label, ylabel=scale.label, xlim=(-0.5, len(classes) - 0.5), ylim=(0, most * 1.1 or 1.0))
        axes.yaxis.set_major_formatter(lambda value, _: format(round(value, 9), scale.tick))
        axes.locator_params(axis="y", nbins=6)
        _legend(figure, [(bars.name, bars.style) for bars in series], line=False)

    def _listed(bars: Bars) -> str:
        pairs = (f"{c} {value:{scale.value}}" for c, value in zip(classes, bars.values, strict=True))
        return f"{bars.name}: {', '.join(pairs)}"

    text = f"{label or scale.label}. {'; '.join(map(_listed, series))}."
    return Drawing(name, title, text, WIDTH, HEIGHT + _rows([bars.name for bars in series]), paint)


def rank_bars(title: str, series: Sequence[tuple[str, Style, Sequence[int]]]) -> Drawing:
    """Draw the share of documents at each class of ranks; a series is a name and the ranks of its documents."""
    found = [(name, style, rank_shares(ranks)) for name, style, ranks in series]
    shown = [number for number, name in enumerate(RANK_CLASSES) if name != "none" or any(s[number] for *_, s in found)]
    bars = [Bars(name, style, [values[number] for number in shown]) for name, style, values in found]
    names = [list(RANK_CLASSES)[number] for number in shown]
    return grouped_bars("rank-changes", title, "rank in the query's list", names, bars)


def rank_shares(ranks: Iterable[int]) -> list[float]:
    """Return the share of ranks in each class.

    >>> rank_shares([1, 2, 3, 40])
    [0.25, 0.5, 0.0, 0.0, 0.25, 0.0]
    """
    counts = dict.fromkeys(RANK_CLASSES, 0)
    for rank in ranks:
        counts[next(name for name, last in RANK_CLASSES.items() if rank == last == 0 or 0 < rank <= last)] += 1
    return [count / max(sum(counts.values()), 1) for count in counts.values()]


def row_bars(
    name: str,
    title: str,
    label: str,
    rows: Sequence[tuple[str, Style, float]],
    mark: float | None = None,
    halves: Sequence[float] = (),
) -> Drawing:
    """Draw one horizontal bar per name, with its value at its end; `mark` is a line to compare with.

    `halves` are half the widths of the intervals, drawn as whiskers.
    """

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        lengths = [_drawable(value, 0.0) for *_, value in rows]
        whiskers = (
            {"xerr": list(halves), "error_kw": {"ecolor": MUTED, "elinewidth": 1, "capsize": 2}} if halves else {}
        )
        colours = [style.colour for _, style, _ in rows]
        drawn = axes.barh(range(len(rows)), lengths, 0.62, color=colours, **whiskers)
        axes.bar_label(drawn, [f"{value:.3g}" for *_, value in rows], padding=3, color=MUTED, fontsize=8.5)
        axes.set_yticks(range(len(rows)), [plain(row[0]) for row in rows], color=INK)
        axes.grid(visible=False, axis="y")
        axes.set(xlabel=label, ylim=(len(rows) - 0.4, -0.6))
        axes.set_xlim(0, max(*lengths, mark or 0.0) * 1.15 or 1.0)
        if mark:
            axes.axvline(mark, color=INK, linewidth=1, linestyle=DOTTED)

    text = ", ".join(f"{row} {value:.3g}" for row, _, value in rows)
    return Drawing(name, title, f"{label}: {text}.", WIDTH, 0.7 + 0.26 * len(rows), paint)


def curves(
    name: str,
    title: str,
    series: Sequence[Curve],
    targets: Sequence[Target],
    over: str = "epoch",
    measure: str = "MRR",
) -> Drawing:
    """Draw one line per series, a dashed horizontal line per target, and a vertical one at the epoch that met it."""
    goals = sorted(set(targets), key=lambda target: target.value)
    values = [_drawable(y) for y in (*(y for curve in series for _, y in curve.points), *(t.value for t in goals))]

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for goal in goals:
            at, foot = _drawable(goal.value), min(0.0, *values)
            axes.axhline(at, color=INK, linewidth=1, linestyle=DOTTED)
            below = {"xytext": (4, -3), "textcoords": "offset points", "va": "top", "fontsize": 8.5}
            axes.annotate(f"{goal.name} {goal.value:.3f}", (0, at), xycoords=("axes fraction", "data"), **below)
            if goal.met is not None:
                met = _drawable(goal.met)
                axes.plot([met, met], [foot, at], color=INK, linewidth=1, linestyle=DOTTED)
                left = {"xytext": (-4, 4), "textcoords": "offset points", "ha": "right", "fontsize": 8.5}
                axes.annotate(f"epoch {goal.met:g}", (met, foot), **left)
        for curve in series:
            said = ", ".join(f"{over} {x:.3g}: {y:.3f}" for x, y in curve.points)
            axes.plot(*_columns(curve.points), **curve.style.line, gid=tip(f"{curve.name}, {said}"))
            if curve.landed is not None:
                back = {"color": curve.style.colour, "linestyle": (0, (1, 1.5)), "marker": "D", "markersize": 7}
                said = tip(f"{curve.name}, landed: {curve.landed[1]:.3f}")
                axes.plot(*_columns([curve.points[-1], curve.landed]), **back, markevery=[1], gid=said)
        most = max(*values, min(1.0, max(values) * 1.05))
        axes.set(xlabel=f"{over}s", ylabel=measure, ylim=(min(0.0, min(values) * 1.1), most * 1.02 or 1.0))
        axes.set_xlim(0, max(0.01, *(_drawable(x) for curve in series for x, _ in curve.points)) * 1.02)
        axes.locator_params(nbins=6)
        _legend(figure, [(curve.name, curve.style) for curve in series])

    ends = [f"{c.name} from {c.points[0][1]:.3f} to {(c.landed or c.points[-1])[1]:.3f}" for c in series]
    goal = f"; {goals[0].name} {', '.join(map(str, goals))}" if goals else ""
    text = f"{measure} over {over}s: {'; '.join(ends)}{goal}."
    return Drawing(name, title, text, WIDTH, HEIGHT + _rows([curve.name for curve in series]), paint)


def histograms(
    name: str,
    title: str,
    edges: Sequence[float],
    panels: Mapping[str, Mapping[str, Sequence[int]]],
    styles: Mapping[str, Style],
) -> Drawing:
    """Draw one panel per moment, in the same bins; the shares of each kind add up to 1."""
    shares = {when: {kind: _shares(counts) for kind, counts in kinds.items()} for when, kinds in panels.items()}

    def paint(figure: Any) -> None:
        parts = figure.subplots(len(shares), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, (when, kinds) in zip(parts, shares.items(), strict=True):
            for kind, values in kinds.items():
                style, said = styles[kind], tip(f"{kind}, {when}: middle score {_middle(values, edges):.3g}")
                axes.stairs(values, edges, fill=True, color=style.colour, alpha=0.12)
                axes.stairs(values, edges, color=style.colour, linestyle=style.dash, linewidth=1.5, gid=said)
                peak = max(range(len(values)), key=lambda place: values[place])
                if values[peak]:
                    middle = (edges[peak] + edges[peak + 1]) / 2
                    axes.plot([middle], [values[peak]], color=style.colour, marker=style.marker)
            axes.set_title(plain(when), loc="left", pad=3)
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        parts[-1].set(xlabel="score", xlim=(edges[0], edges[-1]))
        parts[-1].set_ylim(0)
        _legend(figure, list(styles.items()))

    text = "; ".join(
        f"{kind} documents {when}: middle score {_middle(values, edges):.3g}"
        for when, kinds in shares.items()
        for kind, values in kinds.items()
        if any(values)
    )
    return Drawing(name, title, f"{text}.", WIDTH, 1.6 * len(shares) + 0.3 + _rows(list(styles)), paint)


def intervals(
    name: str, title: str, rows: Sequence[tuple[str, Spread, Spread]], target: float | None, styles: tuple[Style, Style]
) -> Drawing:
    """Draw the means before and after with intervals, one row per set; the first row is marked with the target."""

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        for number, (_, *spreads) in enumerate(rows):
            for spread, style, y in zip(spreads, styles, (number - 0.17, number + 0.17), strict=True):
                low, mean, high = (_drawable(value, 0.0, 1.0) for value in (spread.low, spread.mean, spread.high))
                axes.plot([low, high], [y, y], color=style.colour, linewidth=2.5, solid_capstyle="butt")
                axes.plot([mean], [y], color=style.colour, marker=style.marker, markersize=6)
                inside = high > 0.88  # no room at the right
                at, side = (low, -5) if inside else (high, 5)
                place = {"ha": "right" if inside else "left", "va": "center", "textcoords": "offset points"}
                axes.annotate(f"{spread.mean:.3f}", (at, y), (side, 0), color=MUTED, fontsize=8.5, **place)
        if target is not None and rows:
            axes.plot([_drawable(target, 0.0, 1.0)] * 2, [-0.5, 0.5], color=INK, linewidth=1, linestyle=DOTTED)
        axes.set_yticks(range(len(rows)), [row for row, *_ in rows], color=INK)
        axes.grid(visible=False, axis="y")
        axes.set(xlim=(0, 1.02), ylim=(len(rows) - 0.5, -0.5), xlabel="MRR, with its 95 % interval")
        _legend(figure, list(zip(("before", "after"), styles, strict=True)), line=False)

    text = "; ".join(f"{row} before {before.mean:.3f}, after {after.mean:.3f}" for row, before, after in rows)
    goal = f" The dashed line is the target, {target:.3f}." if target is not None else ""
    return Drawing(name, title, f"MRR: {text}.{goal}", WIDTH, 0.9 + 0.5 * len(rows), paint)


def radar(name: str, title: str, corners: Sequence[str], polygons: Sequence[Polygon]) -> Drawing:
    """Draw one corner per set and one polygon per method; further out is better."""
    angles = [2 * math.pi * number / len(corners) for number in range(len(corners))]

    def paint(figure: Any) -> None:
        axes = figure.add_subplot(projection="polar", theta_offset=math.pi / 2, theta_direction=-1)
        for polygon in polygons:
            there = [
                (at, _drawable(value, 0.0, 1.0))
                for at, value in zip(angles, polygon.values, strict=True)
                if value is not None
            ]
            if there:
                closed = _columns([*there, there[0]])
                axes.plot(*closed, **polygon.style.line, markersize=3.5, gid=tip(_listed(polygon)))
                if len(polygons) <= MOST_FILLED:
                    axes.fill(*closed, color=polygon.style.colour, alpha=0.08)
        axes.set_xticks(angles, list(map(plain, corners)), color=INK)
        for label, angle in zip(axes.get_xticklabels(), angles, strict=True):
            across = round(math.sin(angle), 3)
            label.set_horizontalalignment("center" if not across else "left" if across > 0 else "right")
        axes.tick_params(axis="x", pad=1)
        axes.set_yticks([0.25, 0.5, 0.75, 1.0], ["0.25", "0.5", "0.75", "1"], fontsize=7.5)
        axes.set(ylim=(0, 1), rlabel_position=180 / len(corners))
        axes.spines["polar"].set_visible(False)
        _legend(figure, [(polygon.name, polygon.style) for polygon in polygons])

    def _listed(polygon: Polygon) -> str:
        values = ("none" if value is None else f"{value:.3f}" for value in polygon.values)
        return f"{polygon.name}: {', '.join(map(' '.join, zip(corners, values, strict=True)))}"

    text = f"{'; '.join(map(_listed, polygons))}."
    width = WIDTH if len(corners) <= 4 else RADAR_WIDTH  # with more corners there are long names at both sides
    return Drawing(name, title, text, width, HEIGHT + 0.3 + _rows([polygon.name for polygon in polygons]), paint)


def tradeoff(name: str, title: str, trades: Sequence[Trade]) -> Drawing:
    """Draw forgetting against retention, one point per method; the best corner is at the top right."""

    def paint(figure: Any) -> None:
        axes = figure.subplots()
        axes.axhline(1.0, color=MUTED, linewidth=0.8, linestyle=DOTTED)
        axes.axvline(1.0, color=MUTED, linewidth=0.8, linestyle=DOTTED)
        for trade in trades:
            said = f"{trade.name}: forgetting {trade.forgetting:.3f}, retention {trade.retention:.3f}"
            point = {**trade.style.line, "linestyle": "none", "markersize": 8}
            axes.plot(*_columns([(trade.forgetting, trade.retention)]), **point, gid=tip(said))
        right, top = 1.0, max(1.0, *(_drawable(t.retention) for t in trades))
        left, bottom = _below(min(t.forgetting for t in trades)), _below(min(t.retention for t in trades))
        axes.set_xlim(left, right + (right - left) * 0.03)
        axes.set_ylim(bottom, top + (top - bottom) * 0.04)
        axes.locator_params(nbins=6)
        axes.set(xlabel="forgetting: 1 − distance from the target", ylabel="retention: share of MRR kept")
        _legend(figure, [(trade.name, trade.style) for trade in trades], line=False)

    points = "; ".join(f"{t.name} {t.forgetting:.3f} and {t.retention:.3f}" for t in trades)
    text = f"Forgetting and retention, each best at 1: {points}."
    return Drawing(name, title, text, WIDTH, HEIGHT + _rows([trade.name for trade in trades]), paint)


def panels(name: str, title: str, drawings: Sequence[Drawing], columns: int = 2) -> Drawing | None:
    """Put drawings side by side and row by row, each under its title; `None` if there are none."""
    if not drawings:
        return None
    across = max(1, min(columns, len(drawings)))
    rows = [drawings[first : first + across] for first in range(0, len(drawings), across)]
    heights = [max(d.height + TITLE_ROW * (1 + len(d.title) // TITLE_LENGTH) for d in row) for row in rows]

    def paint(figure: Any) -> None:
        parts = figure.subfigures(len(rows), across, squeeze=False, height_ratios=heights)
        for row, shown in zip(parts, rows, strict=True):
            for part, drawing in zip(row, shown, strict=False):
                part.suptitle(textwrap.fill(one_line(drawing.title, 2 * TITLE_LENGTH), TITLE_LENGTH))
                drawing.paint(part)

    text = " ".join(f"{drawing.title}: {drawing.description}" for drawing in drawings)
    return Drawing(name, title, text, across * max(drawing.width for drawing in drawings), sum(heights), paint)


def _legend(figure: Any, series: Sequence[Named], line: bool = True) -> None:
    """Put a sign and a name for each series below the axes."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], label=plain(name), **(style.line if line else style.line | {"linestyle": "none"}))
        for name, style in series
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=_columns_of([name for name, _ in series]))


def _columns_of(names: Sequence[str]) -> int:
    """Return the number of names in a row of a legend."""
    widest = 0.6 + 0.075 * max(len(plain(name)) for name in names)
    return max(1, min(len(names), int(WIDTH / widest)))


def _rows(names: Sequence[str]) -> float:
    """Return the height of a legend."""
    return LEGEND_ROW * math.ceil(len(names) / _columns_of(names))


def _columns(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [_drawable(x) for x, _ in points], [_drawable(y) for _, y in points]


def _drawable(value: float, low: float = -FARTHEST, high: float = FARTHEST) -> float:
    """Return a value from an untrusted file as one that an axis can show."""
    return min(max(value, low), high)


def _shares(counts: Sequence[int]) -> list[float]:
    total = sum(counts)
    return [count / total if total else 0.0 for count in counts]


def _middle(shares: Sequence[float], edges: Sequence[float]) -> float:
    """Return the middle of the bin that holds the median."""
    reached = 0.0
    for place, share in enumerate(shares):
        reached += share
        if reached >= 0.5 - 1e-9:
            return (edges[place] + edges[place + 1]) / 2
    return edges[-1]


def _below(least: float) -> float:
    """Return where an axis begins: near the points if all are near 1, so that they do not cover each other."""
    return next((start for start in (0.9, 0.5) if least >= start), 0.0)
