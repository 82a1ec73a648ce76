"""Means with their intervals before and after, one row a set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unrank.report.figure.axes import WIDTH, Axis, Frame, legend
from unrank.report.figure.palette import Style
from unrank.report.figure.shape import Drawing, Line, Mark, Shape, Words

ROW = 54.0
LEFT = 84.0


@dataclass(frozen=True)
class Spread:
    """A mean and the ends of its interval."""

    mean: float
    low: float
    high: float


def intervals(
    name: str, title: str, rows: Sequence[tuple[str, Spread, Spread]], target: float | None, styles: tuple[Style, Style]
) -> Drawing:
    """Each row is a set with its spread before and after."""
    frame = Frame(
        Axis.over("MRR, with its 95 % interval", [], 0.0, 1.0),
        Axis("", 0, len(rows), []),
        WIDTH,
        ROW * len(rows) + 62,
        LEFT,
    )
    shapes: list[Shape] = frame.shapes()
    for number, (row, *spreads) in enumerate(rows):
        edge = len(rows) - number
        shapes.append(Words((LEFT - 10, frame.at(0, edge - 0.5)[1] + 4), row, "ink", "end", 13))
        for spread, style, below in zip(spreads, styles, (0.3, 0.68), strict=True):
            ends = [frame.at(value, edge - below) for value in (spread.low, spread.high)]
            at = frame.at(spread.mean, edge - below)
            shapes += [Line(ends, style.role, "", 3), Mark(at, style.role, style.sign, 5.5)]
            shapes.append(_value(spread, ends[0][0], ends[1][0], at[1]))
    if target is not None and rows:
        (x, top), (_, bottom) = frame.at(target, len(rows)), frame.at(target, len(rows) - 1)
        shapes.append(Line([(x, top), (x, bottom)], "ink", "4 4", 1.5))
    signs, height = legend([("before", styles[0]), ("after", styles[1])], frame.height)
    told = "; ".join(f"{row} before {before.mean:.3f}, after {after.mean:.3f}" for row, before, after in rows)
    goal = f" The dashed line is the target, {target:.3f}." if target is not None else ""
    return Drawing(name, title, f"MRR: {told}.{goal}", frame.width, frame.height + height, [*shapes, *signs])


def _value(spread: Spread, start: float, end: float, y: float) -> Words:
    """The mean as a number, on the side where there is room for it."""
    text = f"{spread.mean:.3f}"
    if end > WIDTH - 60:
        return Words((start - 8, y + 4), text, "muted", "end", 12)
    return Words((end + 8, y + 4), text, "muted", "start", 12)
