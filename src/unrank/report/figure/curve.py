"""Curves over epochs: one line a series, and the target as a line across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unrank.report.figure.axes import HEIGHT, WIDTH, Axis, Frame, legend
from unrank.report.figure.palette import Style
from unrank.report.figure.shape import Drawing, Line, Mark, Point, Shape, Words


@dataclass(frozen=True)
class Curve:
    """What a series was at each epoch; `landed` is where it came to lie after the last."""

    name: str
    style: Style
    points: Sequence[Point]
    landed: Point | None = None


def curves(name: str, title: str, series: Sequence[Curve], targets: Sequence[float]) -> Drawing:
    """`targets` are the forget MRRs at which runs stop."""
    values = [y for curve in series for _, y in curve.points] + list(targets)
    epochs = [x for curve in series for x, _ in curve.points]
    top = min(1.0, max(values) * 1.05)
    frame = Frame(Axis.over("epochs", [], 0.0, max(*epochs, 0.01)), Axis.over("MRR", [0.0, top], 0.0))
    shapes = frame.shapes()
    for target in sorted(set(targets)):
        start, end = frame.at(frame.x.low, target), frame.at(frame.x.high, target)
        shapes.append(Line([start, end], "ink", "4 4", 1.5))
        shapes.append(Words((start[0] + 5, start[1] - 6), f"target {target:.3f}", "ink", size=12))
    for curve in series:
        shapes += _drawn(curve, frame)
    names, height = legend([(curve.name, curve.style) for curve in series], HEIGHT)
    ends = [f"{c.name} from {c.points[0][1]:.3f} to {(c.landed or c.points[-1])[1]:.3f}" for c in series]
    goal = f"; target {', '.join(f'{target:.3f}' for target in sorted(set(targets)))}" if targets else ""
    return Drawing(name, title, f"MRR over epochs: {'; '.join(ends)}{goal}.", WIDTH, HEIGHT + height, [*shapes, *names])


def _drawn(curve: Curve, frame: Frame) -> list[Shape]:
    style, points = curve.style, [frame.at(x, y) for x, y in curve.points]
    drawn: list[Shape] = [Line(points, style.role, style.dash, 2)]
    drawn += [
        Mark(at, style.role, style.sign, 4, f"{curve.name}, epoch {x:.3g}: {y:.3f}")
        for at, (x, y) in zip(points, curve.points, strict=True)
    ]
    if curve.landed is not None:
        at = frame.at(*curve.landed)
        drawn += [Line([points[-1], at], style.role, "2 3", 2)]
        drawn += [Mark(at, style.role, "diamond", 6, f"{curve.name}, landed: {curve.landed[1]:.3f}")]
    return drawn
