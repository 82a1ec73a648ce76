"""Radar charts in the paper's form: a corner a set, a polygon a method, better further out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from unrank.report.figure.axes import legend
from unrank.report.figure.palette import Style
from unrank.report.figure.shape import Anchor, Area, Drawing, Line, Mark, Point, Shape, Words

WIDTH, HEIGHT = 560.0, 300.0
MOST_FILLED = 2
"""Polygons that are filled: of more, one could not see through."""
CENTRE, RADIUS = (WIDTH / 2, 150.0), 104.0
RINGS = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Polygon:
    """A value for each corner, from 0 to 1; None where there is none."""

    name: str
    style: Style
    values: Sequence[float | None]


def radar(name: str, title: str, corners: Sequence[str], polygons: Sequence[Polygon]) -> Drawing:
    shapes: list[Shape] = []
    for ring in RINGS:
        around = [_at(number, len(corners), ring) for number in range(len(corners))]
        shapes.append(Line([*around, around[0]], "grid", width=1))
        shapes.append(Words((CENTRE[0] + 4, CENTRE[1] - ring * RADIUS + 11), f"{ring:g}", "muted", size=11))
    for number, corner in enumerate(corners):
        end = _at(number, len(corners), 1.0)
        shapes.append(Line([CENTRE, end], "grid", width=1))
        shapes.append(_corner_name(corner, _at(number, len(corners), 1.0 + 11 / RADIUS)))
    for polygon in polygons:
        shapes += _drawn(polygon, len(polygons) <= MOST_FILLED)
    names, height = legend([(polygon.name, polygon.style) for polygon in polygons], HEIGHT)
    told = "; ".join(
        f"{p.name}: {', '.join(_told(c, v) for c, v in zip(corners, p.values, strict=True))}" for p in polygons
    )
    return Drawing(name, title, f"{told}.", WIDTH, HEIGHT + height, [*shapes, *names])


def _drawn(polygon: Polygon, filled: bool) -> list[Shape]:
    points = [
        _at(number, len(polygon.values), min(value, 1.0))
        for number, value in enumerate(polygon.values)
        if value is not None
    ]
    if not points:
        return []
    style = polygon.style
    return [
        *([Area(points, style.role, 0.08)] if filled else []),
        Line([*points, points[0]], style.role, style.dash, 2),
        *(Mark(point, style.role, style.sign, 3.5) for point in points),
    ]


def _at(number: int, corners: int, share: float) -> Point:
    """A place on a corner's axis; the first axis points up, the others follow clockwise."""
    angle = 2 * math.pi * number / corners
    return CENTRE[0] + RADIUS * share * math.sin(angle), CENTRE[1] - RADIUS * share * math.cos(angle)


def _corner_name(corner: str, at: Point) -> Words:
    across, down = at[0] - CENTRE[0], at[1] - CENTRE[1]
    anchor: Anchor = "middle" if abs(across) < 10 else "start" if across > 0 else "end"
    return Words(
        (at[0], at[1] + (0 if down < -RADIUS * 0.5 else 10 if down > RADIUS * 0.5 else 4)), corner, "ink", anchor
    )


def _told(corner: str, value: float | None) -> str:
    return f"{corner} {'none' if value is None else f'{value:.3f}'}"
