"""Curves over epochs: one line a series, the target as a line across, and the epoch that met it as one upwards."""

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


@dataclass(frozen=True)
class Target:
    """The forget MRR at which a run stops, and the epoch that met it, where one did and it is to be marked."""

    value: float
    met: float | None = None
    name: str = "target"


def curves(
    name: str,
    title: str,
    series: Sequence[Curve],
    targets: Sequence[Target],
    over: str = "epoch",
    measure: str = "MRR",
) -> Drawing:
    values = [y for curve in series for _, y in curve.points] + [target.value for target in targets]
    along = [x for curve in series for x, _ in curve.points]
    top = max(*values, min(1.0, max(values) * 1.05))
    upwards = Axis.over(measure, [*values, top], 0.0 if min(values) >= 0 else None)
    frame = Frame(Axis.over(f"{over}s", [], 0.0, max(*along, 0.01)), upwards)
    shapes = frame.shapes()
    goals = sorted(set(targets), key=lambda target: target.value)
    for target in goals:
        shapes += _aimed(target, frame)
    for curve in series:
        shapes += _drawn(curve, frame, over)
    names, height = legend([(curve.name, curve.style) for curve in series], HEIGHT)
    ends = [f"{c.name} from {c.points[0][1]:.3f} to {(c.landed or c.points[-1])[1]:.3f}" for c in series]
    goal = f"; {goals[0].name} {', '.join(map(_told, goals))}" if goals else ""
    return Drawing(
        name, title, f"{measure} over {over}s: {'; '.join(ends)}{goal}.", WIDTH, HEIGHT + height, [*shapes, *names]
    )


def _told(target: Target) -> str:
    met = "" if target.met is None else f", met after epoch {target.met:g}"
    return f"{target.value:.3f}{met}"


def _aimed(target: Target, frame: Frame) -> list[Shape]:
    start, end = frame.at(frame.x.low, target.value), frame.at(frame.x.high, target.value)
    drawn: list[Shape] = [Line([start, end], "ink", "4 4", 1.5)]
    drawn.append(Words((start[0] + 5, start[1] - 6), f"{target.name} {target.value:.3f}", "ink", size=12))
    if target.met is not None:
        foot, head = frame.at(target.met, frame.y.low), frame.at(target.met, target.value)
        drawn.append(Line([foot, head], "ink", "4 4", 1.5))
        drawn.append(Words((foot[0] - 5, foot[1] - 6), f"epoch {target.met:g}", "ink", "end", 12))
    return drawn


def _drawn(curve: Curve, frame: Frame, over: str) -> list[Shape]:
    style, points = curve.style, [frame.at(x, y) for x, y in curve.points]
    drawn: list[Shape] = [Line(points, style.role, style.dash, 2)]
    drawn += [
        Mark(at, style.role, style.sign, 4, f"{curve.name}, {over} {x:.3g}: {y:.3f}")
        for at, (x, y) in zip(points, curve.points, strict=True)
    ]
    if curve.landed is not None:
        at = frame.at(*curve.landed)
        drawn += [Line([points[-1], at], style.role, "2 3", 2)]
        drawn += [Mark(at, style.role, "diamond", 6, f"{curve.name}, landed: {curve.landed[1]:.3f}")]
    return drawn
