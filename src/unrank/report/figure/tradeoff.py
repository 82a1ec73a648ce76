"""Forgetting against retention: one point a method. The best corner is at the top on the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unrank.report.figure.axes import HEIGHT, WIDTH, Axis, Frame, legend
from unrank.report.figure.palette import Style
from unrank.report.figure.shape import Drawing, Line, Mark, Shape


@dataclass(frozen=True)
class Trade:
    """How near a method came to its target (1 − the distance), and what it kept of the rest."""

    name: str
    style: Style
    forgetting: float
    retention: float


def tradeoff(name: str, title: str, trades: Sequence[Trade]) -> Drawing:
    least_x, least_y = (min(values) for values in zip(*((t.forgetting, t.retention) for t in trades), strict=True))
    frame = Frame(
        Axis.over("forgetting: 1 − distance from the target", [], _below(least_x), 1.0),
        Axis.over("retention: share of MRR kept", [], _below(least_y), max(1.0, *(t.retention for t in trades))),
    )
    shapes: list[Shape] = frame.shapes()
    corner = frame.at(1.0, 1.0)
    shapes.append(Line([frame.at(frame.x.low, 1.0), corner, frame.at(1.0, frame.y.low)], "muted", "4 4", 1))
    shapes += [
        Mark(
            frame.at(trade.forgetting, trade.retention),
            trade.style.role,
            trade.style.sign,
            7,
            f"{trade.name}: forgetting {trade.forgetting:.3f}, retention {trade.retention:.3f}",
        )
        for trade in trades
    ]
    names, height = legend([(trade.name, trade.style) for trade in trades], HEIGHT)
    points = "; ".join(f"{t.name} {t.forgetting:.3f} and {t.retention:.3f}" for t in trades)
    told = f"Forgetting and retention, each best at 1: {points}."
    return Drawing(name, title, told, WIDTH, HEIGHT + height, [*shapes, *names])


def _below(least: float) -> float:
    """Where the axis begins: near the points if all are near 1, so that they can be told apart."""
    return next((start for start in (0.9, 0.5) if least >= start), 0.0)
