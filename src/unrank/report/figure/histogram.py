"""How scores are distributed before and after, one panel above the other, in the same bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unrank.report.figure.axes import TOP, WIDTH, Axis, Frame, legend
from unrank.report.figure.palette import Style
from unrank.report.figure.shape import Area, Drawing, Line, Mark, Point, Shape, Words

PANEL = 170.0
Counts = Sequence[int]


def histograms(
    name: str,
    title: str,
    edges: Sequence[float],
    panels: Mapping[str, Mapping[str, Counts]],
    styles: Mapping[str, Style],
) -> Drawing:
    """`panels`: for each moment, the counts of each kind. Each kind is drawn as a share of itself."""
    shares = {when: {kind: _shares(counts) for kind, counts in kinds.items()} for when, kinds in panels.items()}
    most = max((share for kinds in shares.values() for values in kinds.values() for share in values), default=1.0)
    shapes: list[Shape] = []
    for number, (when, kinds) in enumerate(shares.items()):
        last = number == len(shares) - 1
        x = Axis.over("score" if last else "", [], edges[0], edges[-1])
        frame = Frame(x, Axis("", 0.0, most * 1.05, []), WIDTH, PANEL, 20, number * (PANEL - 24))
        shapes += frame.shapes()
        shapes.append(Words((24, frame.top + TOP + 12), when, "ink", size=13))
        for kind, values in kinds.items():
            shapes += _outline(values, edges, frame, styles[kind], f"{kind}, {when}")
    below = (len(shares) - 1) * (PANEL - 24) + PANEL
    names, height = legend([(kind, styles[kind]) for kind in styles], below)
    told = "; ".join(
        f"{kind} documents {when}: middle score {_middle(values, edges):.3g}"
        for when, kinds in shares.items()
        for kind, values in kinds.items()
        if any(values)
    )
    return Drawing(name, title, f"{told}.", WIDTH, below + height, [*shapes, *names])


def _outline(shares: Sequence[float], edges: Sequence[float], frame: Frame, style: Style, label: str) -> list[Shape]:
    points: list[Point] = [frame.at(edges[0], 0.0)]
    for left, right, share in zip(edges, edges[1:], shares, strict=False):
        points += [frame.at(left, share), frame.at(right, share)]
    points.append(frame.at(edges[-1], 0.0))
    peak = max(range(len(shares)), key=lambda place: shares[place])
    at = frame.at((edges[peak] + edges[peak + 1]) / 2, shares[peak])
    return [
        Area(points, style.role, 0.12),
        Line(points, style.role, style.dash, 1.8),
        *([Mark(at, style.role, style.sign, 4, label)] if shares[peak] else []),
    ]


def _shares(counts: Counts) -> list[float]:
    total = sum(counts)
    return [count / total if total else 0.0 for count in counts]


def _middle(shares: Sequence[float], edges: Sequence[float]) -> float:
    """The middle of the bin in which half of them are reached."""
    reached = 0.0
    for place, share in enumerate(shares):
        reached += share
        if reached >= 0.5 - 1e-9:
            return (edges[place] + edges[place + 1]) / 2
    return edges[-1]
