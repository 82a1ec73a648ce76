"""Figures: what one is, its colours and signs, and how matplotlib writes it as SVG, PDF and PNG.

Every figure is painted in the colours of paper. Inside a page the same SVG takes the page's colours, light or dark.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from unrank.errors import one_line

INK, MUTED, GRID, PAPER = "#1c2430", "#5f6b7a", "#dde2e8", "#ffffff"
SERIES = ("#0069a8", "#c74e00", "#007d5c", "#b0508f", "#7d6a00", "#2a8fcb", "#4d4d4d")
"""Colours that the colour-blind can tell apart."""
DARK = {
    "ink": "#e6eaf0", "muted": "#9aa7b6", "grid": "#333d4a", "paper": "#161b22", "series-0": "#5ab4f2",
    "series-1": "#ff955c", "series-2": "#43cfa1", "series-3": "#ee98cb", "series-4": "#ddc84e", "series-5": "#a9dcff",
    "series-6": "#c9ced6",
}  # fmt: skip
LIGHT = dict(zip(DARK, (INK, MUTED, GRID, PAPER, *SERIES), strict=True))
MARKERS = ("o", "s", "^", "D", "P", "v", "X", "*")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (7, 2)))
"""The numbers of colours, markers and dashes share no divisor: 280 series differ."""
FONT = "DejaVu Sans"
FONTS = f"Arial, Helvetica, '{FONT}', sans-serif"
"""No wider than the font that the layout is computed with."""
STYLE: dict[str, object] = {
    "font.family": [FONT], "font.size": 9.0, "text.parse_math": False, "text.color": INK, "axes.labelcolor": INK,
    "axes.titlesize": 9.0, "axes.edgecolor": GRID, "axes.linewidth": 0.8, "axes.axisbelow": True, "axes.grid": True,
    "axes.spines.top": False, "axes.spines.right": False, "grid.color": GRID, "grid.linewidth": 0.7,
    "xtick.major.size": 0.0, "ytick.major.size": 0.0, "xtick.labelcolor": MUTED, "ytick.labelcolor": MUTED,
    "xtick.labelsize": 8.5, "ytick.labelsize": 8.5, "lines.linewidth": 1.6, "lines.markersize": 4.5,
    "legend.frameon": False, "legend.fontsize": 8.5, "legend.handlelength": 3.0, "figure.titlesize": 10.0,
    "svg.fonttype": "none", "svg.hashsalt": "unrank", "pdf.fonttype": 42, "figure.facecolor": "none",
    "axes.facecolor": "none",
    "figure.constrained_layout.w_pad": 0.08, "figure.constrained_layout.h_pad": 0.06,
}  # fmt: skip
DENSITY = 220
"""Pixels of a PNG for an inch."""
LONGEST = 36
"""Characters of a name from data that a figure shows; a longer one is cut in its middle."""
TIP = "tip:"
SPACES = {"http://www.w3.org/2000/svg": "", "http://www.w3.org/1999/xlink": "xlink:"}

Paint = Callable[[Any], None]
"""Put a chart onto a figure of matplotlib, or onto a part of one."""


@dataclass(frozen=True)
class Style:
    """How a series differs from the others: by colour, and by marker and dash as well."""

    colour: str
    marker: str
    dash: Any = "-"

    @classmethod
    def of(cls, number: int) -> Style:
        return cls(SERIES[number % len(SERIES)], MARKERS[number % len(MARKERS)], DASHES[number % len(DASHES)])

    @property
    def line(self) -> dict[str, Any]:
        """The keyword arguments of a line in matplotlib."""
        return {"color": self.colour, "marker": self.marker, "linestyle": self.dash}


@dataclass(frozen=True)
class Drawing:
    """A figure; `name` is the name of its file, `description` says in words what it shows."""

    name: str
    title: str
    description: str
    width: float
    """In inches, as is the height."""
    height: float
    paint: Paint

    @cached_property
    def shapes(self) -> str:
        """The SVG elements of the figure, without the element around them."""
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        with _figure(self) as figure:
            file = io.StringIO()
            FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
        return _tidy(file.getvalue(), self.name)


@contextmanager
def _figure(drawing: Drawing) -> Iterator[Any]:
    """Paint a drawing; matplotlib's settings are changed only inside the block."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph that the font lacks, or an axis that shows one value
        figure = Figure(figsize=(drawing.width, drawing.height), layout="constrained")
        drawing.paint(figure)
        yield figure


def plain(text: str) -> str:
    """Return a text from data in a form that a figure may show."""
    return one_line(text, LONGEST)


def tip(text: str) -> str:
    """Return an id for an artist that shows this text as its tooltip."""
    return TIP + one_line(text, 400)


def inline_svg(drawing: Drawing) -> str:
    """Return the figure as a part of a page, in the page's colours."""
    roles = {colour: f"var(--{role})" for role, colour in LIGHT.items()}

    def themed(style: re.Match[str]) -> str:
        return re.sub("#[0-9a-f]{6}", lambda colour: roles.get(colour[0], colour[0]), style[0])

    return _svg(drawing, "", re.sub('style="[^"]*"', themed, drawing.shapes))


def file_svg(drawing: Drawing) -> str:
    """Return the figure as a file of its own, on white."""
    size = f'width="{drawing.width * 72:g}pt" height="{drawing.height * 72:g}pt"'
    spaces = " ".join(f'xmlns{":" * bool(name)}{name.rstrip(":")}="{uri}"' for uri, name in SPACES.items())
    return _svg(drawing, f"{spaces} {size} ", f'<rect width="100%" height="100%" fill="{PAPER}"/>{drawing.shapes}')


def write_drawing(drawing: Drawing, path: Path) -> None:
    """Write SVG, PDF and PNG files of a figure; `path` has no ending."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    path.with_name(f"{path.name}.svg").write_text(file_svg(drawing) + "\n", encoding="utf-8")
    with _figure(drawing) as figure:
        title = {"Title": one_line(drawing.title, 400)}
        figure.set_facecolor(PAPER)
        FigureCanvasPdf(figure).print_pdf(path.with_name(f"{path.name}.pdf"), metadata=title | {"CreationDate": None})
        figure.set_layout_engine("none")  # the layout of the first file holds for the second
        figure.dpi = DENSITY
        FigureCanvasAgg(figure).print_png(path.with_name(f"{path.name}.png"), metadata=title)


def stylesheet(dark: bool = False) -> str:
    """Return the colours as custom properties of a style sheet."""
    return "".join(f"--{role}:{colour};" for role, colour in (DARK if dark else LIGHT).items())


def _svg(drawing: Drawing, attributes: str, shapes: str) -> str:
    title, description = (_element(drawing, kind, getattr(drawing, of)) for kind, of in _TOLD.items())
    label = " ".join(f"{drawing.name}-{kind}" for kind in _TOLD)
    box = f"0 0 {drawing.width * 72:g} {drawing.height * 72:g}"
    attributes += f'viewBox="{box}" role="img" aria-labelledby="{label}" stroke-linejoin="round"'
    return f"<svg {attributes}>{title}{description}{shapes}</svg>"


_TOLD = {"title": "title", "desc": "description"}


def _element(drawing: Drawing, kind: str, text: str) -> str:
    made = ElementTree.Element(kind, {"id": f"{drawing.name}-{kind}"})
    made.text = one_line(text, 100_000)
    return ElementTree.tostring(made, encoding="unicode")


def _tidy(svg: str, name: str) -> str:
    """Return the shapes of matplotlib's SVG without clipping, and with ids that no other figure has.

    Nothing lies outside its axes, so nothing has to be clipped. Only ids that something refers to are kept.
    """
    root = ElementTree.fromstring(svg)
    _prune(root)
    used = {value for each in root.iter() for key, value in each.attrib.items() if key.endswith("}href")}
    for each in root.iter():
        given = {_local(key): value for key, value in each.attrib.items() if key != "clip-path"}
        each.tag = _local(each.tag)
        each.attrib.clear()
        each.attrib.update({key: _short(key, value, name) for key, value in given.items() if key != "id"})
        own = given.get("id", "")
        if f"#{own}" in used:
            each.set("id", f"{name}-{own}")
        elif own.startswith(TIP):
            said = ElementTree.Element("title")
            said.text = own.removeprefix(TIP)
            each.insert(0, said)
        each.text, each.tail = each.text if (each.text or "").strip() else None, None
    return "".join(ElementTree.tostring(child, encoding="unicode") for child in root)


def _prune(parent: ElementTree.Element) -> None:
    """Remove what paints nothing."""
    for child in list(parent):
        _prune(child)
        kind = _local(child.tag)
        unpainted = kind == "path" and child.get("style") == "fill: none"
        if unpainted or kind in ("metadata", "clipPath", "style") or (kind in ("g", "defs") and not len(child)):
            parent.remove(child)


def _local(name: str) -> str:
    uri, _, rest = name.rpartition("}")
    return SPACES.get(uri.removeprefix("{"), "") + rest


def _short(key: str, value: str, name: str) -> str:
    if key == "xlink:href":
        return f"#{name}-{value.removeprefix('#')}"
    if key == "style":
        return value.replace(f"'{FONT}'", FONTS)
    if key in ("d", "x", "y", "transform"):
        return re.sub(r"(\.\d\d)\d+", r"\1", " ".join(value.split()))
    return value
