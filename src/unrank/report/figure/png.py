"""A drawing as PNG: matplotlib puts the same shapes on paper (`pip install 'unrank[figures]'`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unrank.errors import UnrankError
from unrank.report.figure.palette import colours
from unrank.report.figure.shape import Area, Drawing, Line, Mark, Shape, Words, outline

PIXELS = 100
"""How many of a drawing's units are an inch."""
POINTS = 72 / PIXELS
DENSITY = 220


def check_png() -> None:
    """Refuse before any work is done where PNG cannot be written."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UnrankError("figures need matplotlib: pip install 'unrank[figures]'") from error


def write_png(drawing: Drawing, path: Path) -> None:
    from matplotlib.figure import Figure

    colour = colours()
    figure = Figure(figsize=(drawing.width / PIXELS, drawing.height / PIXELS), facecolor=colour["paper"])
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, drawing.width), ylim=(drawing.height, 0))
    axes.set_axis_off()
    for order, shape in enumerate(drawing.shapes):
        _draw(shape, axes, colour[shape.role], order)
    description = {"Title": drawing.title, "Description": drawing.description}
    figure.savefig(path, dpi=DENSITY, metadata=description)


def _draw(shape: Shape, axes: Any, colour: str, order: int) -> None:
    from matplotlib.patches import Circle, Polygon

    match shape:
        case Line():
            dashes = tuple(float(part) / shape.width for part in shape.dash.split())
            style: Any = (0, dashes) if dashes else "-"
            xs, ys = zip(*shape.points, strict=True)
            axes.plot(xs, ys, color=colour, linewidth=shape.width * POINTS, linestyle=style, zorder=order)
        case Area():
            axes.add_patch(Polygon(shape.points, color=colour, alpha=shape.opacity, linewidth=0, zorder=order))
        case Mark(shape="circle"):
            axes.add_patch(Circle(shape.at, shape.size, color=colour, linewidth=0, zorder=order))
        case Mark():
            axes.add_patch(Polygon(outline(shape), color=colour, linewidth=0, zorder=order))
        case Words():
            sides: Any = {"start": "left", "middle": "center", "end": "right"}
            axes.text(
                *shape.at,
                shape.text.replace("$", r"\$"),
                color=colour,
                fontsize=shape.size * POINTS,
                ha=sides[shape.anchor],
                va="baseline",
                rotation=90 if shape.turned else 0,
                rotation_mode="anchor",
                zorder=order,
            )
