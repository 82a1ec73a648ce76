"""A drawing as SVG: inside a page it takes the page's colours, as a file it brings its own."""

from __future__ import annotations

from collections.abc import Sequence

from unrank.report.figure.palette import colours, stylesheet
from unrank.report.figure.shape import Area, Drawing, Line, Mark, Point, Shape, Words, outline
from unrank.report.markup import Markup, element, join

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
RULES = "".join(f".{role}{{--colour:var(--{role})}}" for role in colours())
RULES += (
    "svg .line{fill:none;stroke:var(--colour);stroke-linejoin:round}svg .area,svg text{fill:var(--colour)}"
    f"svg text{{font-family:{FONT}}}"
)
"""What gives roles their colours, in the page and in a file alike."""


def svg(drawing: Drawing, alone: bool = False) -> Markup:
    """`alone`: a file of its own, on paper of its own."""
    attributes = {
        "viewBox": f"0 0 {drawing.width:g} {drawing.height:g}",
        "role": "img",
        "aria-labelledby": f"{drawing.name}-title {drawing.name}-description",
        **({"xmlns": "http://www.w3.org/2000/svg", "width": drawing.width, "height": drawing.height} if alone else {}),
    }
    own = [
        element("style", {}, Markup(f"svg{{{stylesheet()}}}{RULES}")),
        element("rect", {"width": drawing.width, "height": drawing.height, "fill": "var(--paper)"}),
    ]
    return element(
        "svg",
        attributes,
        element("title", {"id": f"{drawing.name}-title"}, drawing.title),
        element("desc", {"id": f"{drawing.name}-description"}, drawing.description),
        own if alone else None,
        join(_drawn(shape) for shape in drawing.shapes),
    )


def _drawn(shape: Shape) -> Markup:
    match shape:
        case Line():
            dash = {"stroke-dasharray": shape.dash} if shape.dash else {}
            place = {"points": _points(shape.points), "stroke-width": shape.width}
            return element("polyline", {"class": f"line {shape.role}", **place, **dash})
        case Area():
            opacity = {"fill-opacity": shape.opacity} if shape.opacity < 1 else {}
            return element("polygon", {"class": f"area {shape.role}", "points": _points(shape.points), **opacity})
        case Mark():
            return _mark(shape)
        case Words():
            return _words(shape)


def _mark(mark: Mark) -> Markup:
    told = element("title", {}, mark.label) if mark.label else None
    role = {"class": f"area {mark.role}"}
    if mark.shape == "circle":
        x, y = (f"{value:.1f}" for value in mark.at)
        return element("circle", {**role, "cx": x, "cy": y, "r": f"{mark.size:g}"}, told)
    return element("polygon", {**role, "points": _points(outline(mark))}, told)


def _words(words: Words) -> Markup:
    x, y = (f"{value:.1f}" for value in words.at)
    place = {"x": x, "y": y, "font-size": f"{words.size:g}", "text-anchor": words.anchor}
    turn = {"transform": f"rotate(-90 {x} {y})"} if words.turned else {}
    return element("text", {"class": words.role, **place, **turn}, words.text)


def _points(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
