"""Several drawings as one: side by side, row by row, each under its own title."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from unrank.report.figure.shape import Area, Drawing, Line, Point, Shape, Words

TITLE = 26.0
"""What a title takes above its panel."""


def panels(name: str, title: str, drawings: Sequence[Drawing], columns: int = 2) -> Drawing:
    shapes: list[Shape] = []
    width, height = 0.0, 0.0
    for first in range(0, len(drawings), columns):
        row = drawings[first : first + columns]
        left = 0.0
        for drawing in row:
            shapes.append(Words((left + 14, height + TITLE - 7), drawing.title))
            shapes += [_moved(shape, left, height + TITLE) for shape in drawing.shapes]
            left += drawing.width
        width, height = max(width, left), height + TITLE + max(drawing.height for drawing in row)
    told = " ".join(f"{drawing.title}: {drawing.description}" for drawing in drawings)
    return Drawing(name, title, told, width, height, shapes)


def _moved(shape: Shape, right: float, down: float) -> Shape:
    def move(point: Point) -> Point:
        return point[0] + right, point[1] + down

    if isinstance(shape, Line | Area):
        return replace(shape, points=[move(point) for point in shape.points])
    return replace(shape, at=move(shape.at))
