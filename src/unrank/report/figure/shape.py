"""A drawing is a list of four kinds of shapes, and a title and a description for those who cannot see it.

A shape has a role and no colour: the page, an SVG file and a PNG each give roles their colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Point = tuple[float, float]
Anchor = Literal["start", "middle", "end"]

CHARACTER = 6.9
"""About how wide a character is in the size that figures are labelled in."""


@dataclass(frozen=True)
class Line:
    points: Sequence[Point]
    role: str
    dash: str = ""
    width: float = 1.5


@dataclass(frozen=True)
class Area:
    """A filled polygon; `opacity` lets what is below it shine through."""

    points: Sequence[Point]
    role: str
    opacity: float = 1.0


@dataclass(frozen=True)
class Mark:
    """A point's sign, with what it says when it is pointed at."""

    at: Point
    role: str
    shape: str = "circle"
    size: float = 5.0
    label: str = ""


@dataclass(frozen=True)
class Words:
    at: Point
    text: str
    role: str = "ink"
    anchor: Anchor = "start"
    size: float = 13.0
    turned: bool = False


Shape = Line | Area | Mark | Words


@dataclass(frozen=True)
class Drawing:
    """What a figure is; `name` is that of its file."""

    name: str
    title: str
    description: str
    width: float
    height: float
    shapes: Sequence[Shape]


OUTLINES: dict[str, Sequence[Point]] = {
    "square": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
    "triangle": [(0, -1.15), (1.05, 0.8), (-1.05, 0.8)],
    "diamond": [(0, -1.3), (1.1, 0), (0, 1.3), (-1.1, 0)],
    "plus": [
        (-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4), (1.2, 0.4), (0.4, 0.4),
        (0.4, 1.2), (-0.4, 1.2), (-0.4, 0.4), (-1.2, 0.4), (-1.2, -0.4), (-0.4, -0.4),
    ],
    "wedge": [(-1.05, -0.8), (1.05, -0.8), (0, 1.15)],
    "hourglass": [(-1, -1.1), (1, -1.1), (0, 0), (1, 1.1), (-1, 1.1), (0, 0)],
    "bar": [(-1.3, -0.45), (1.3, -0.45), (1.3, 0.45), (-1.3, 0.45)],
}  # fmt: skip
"""The signs that are not circles, around (0, 0), of about one unit in each direction."""


def outline(mark: Mark) -> list[Point]:
    """The corners of a sign that is not a circle."""
    return [(mark.at[0] + x * mark.size, mark.at[1] + y * mark.size) for x, y in OUTLINES[mark.shape]]
