"""Bars: how many, for each of some classes, side by side for two or more series; and lying bars, one a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from unrank.report.figure.axes import HEIGHT, WIDTH, Axis, Frame, legend
from unrank.report.figure.palette import Style
from unrank.report.figure.shape import CHARACTER, Area, Drawing, Line, Mark, Shape, Words

ROW = 28.0


@dataclass(frozen=True)
class Scale:
    """What bars measure, and how its values are written at the axis and elsewhere."""

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


def grouped_bars(
    name: str, title: str, label: str, classes: Sequence[str], series: Sequence[Bars], scale: Scale = SHARE
) -> Drawing:
    most = max(value for bars in series for value in bars.values)
    names = dict(enumerate(classes))
    x = Axis(label, -0.5, len(classes) - 0.5, range(len(classes)), lambda value: names[round(value)])
    ends = Axis.over(scale.label, [], 0.0, most * 1.1 or 1.0)
    frame = Frame(x, replace(ends, form=lambda value: format(value, scale.tick)))
    shapes: list[Shape] = [shape for shape in frame.shapes() if not _is_upright(shape)]
    breadth = 0.76 / len(series)
    for number, bars in enumerate(series):
        for place, value in enumerate(bars.values):
            start = place - 0.38 + number * breadth
            (x0, y0), (x1, y1) = frame.at(start, 0.0), frame.at(start + breadth * 0.92, value)
            shapes.append(Area([(x0, y0), (x0, y1), (x1, y1), (x1, y0)], bars.style.role))
            if value:
                sign = ((x0 + x1) / 2, y1 - 7)
                said = f"{bars.name}, {names[place]}: {value:{scale.value}}"
                shapes.append(Mark(sign, bars.style.role, bars.style.sign, 3, said))
    row, height = legend([(bars.name, bars.style) for bars in series], HEIGHT)
    told = [
        f"{bars.name}: {', '.join(f'{c} {v:{scale.value}}' for c, v in zip(classes, bars.values, strict=True))}"
        for bars in series
    ]
    return Drawing(name, title, f"{label or scale.label}. {'; '.join(told)}.", WIDTH, HEIGHT + height, [*shapes, *row])


def lying_bars(
    name: str, title: str, label: str, rows: Sequence[tuple[str, Style, float]], mark: float | None = None
) -> Drawing:
    """A bar a name with its value at its end; `mark` is a line to compare with."""
    left = 24 + CHARACTER * max(len(row[0]) for row in rows)
    most = max([value for *_, value in rows] + ([mark] if mark else []))
    frame = Frame(
        Axis.over(label, [], 0.0, most * 1.15 or 1.0), Axis("", 0.0, len(rows), []), WIDTH, ROW * len(rows) + 60, left
    )
    shapes = frame.shapes()
    if mark:
        shapes.append(Line([frame.at(mark, 0), frame.at(mark, len(rows))], "ink", "4 4", 1.5))
    for number, (row, style, value) in enumerate(rows):
        y = len(rows) - number
        (x0, y0), (x1, y1) = frame.at(0.0, y - 0.2), frame.at(value, y - 0.8)
        shapes.append(Area([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], style.role))
        shapes.append(Words((left - 20, (y0 + y1) / 2 + 4), row, "ink", "end"))
        shapes.append(Mark((left - 10, (y0 + y1) / 2), style.role, style.sign, 4))
        shapes.append(Words((x1 + 5, (y0 + y1) / 2 + 4), f"{value:.3g}", "muted", size=12))
    told = ", ".join(f"{row} {value:.3g}" for row, _, value in rows)
    return Drawing(name, title, f"{label}: {told}.", frame.width, frame.height, shapes)


def _is_upright(shape: Shape) -> bool:
    """A line of the grid between classes, which says nothing there."""
    return isinstance(shape, Line) and shape.points[0][0] == shape.points[1][0]
