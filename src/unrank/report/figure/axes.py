"""Axes: from values to places on paper, with a grid, ticks and labels; and the legend below them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unrank.report.figure.palette import Style
from unrank.report.figure.shape import CHARACTER, Line, Mark, Point, Shape, Words

WIDTH, HEIGHT = 480.0, 320.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 14.0, 14.0, 46.0
LEGEND_ROW = 20.0
STROKE = 40
"""Long enough that the sign in its middle hides no dash."""


@dataclass(frozen=True)
class Axis:
    """A range of values, what they are, and which of them are named."""

    label: str
    low: float
    high: float
    ticks: Sequence[float]
    form: Callable[[float], str] = lambda value: f"{value:g}"

    @classmethod
    def over(cls, label: str, values: Sequence[float], low: float | None = None, high: float | None = None) -> Axis:
        """An axis with round ticks that holds all values, and those given as its ends."""
        least = min(values, default=0.0) if low is None else low
        most = max(values, default=1.0) if high is None else high
        step = round_step((most - least) / 5 or 0.1)
        first = math.floor(least / step + 1e-9) if low is None else least / step
        last = math.ceil(most / step - 1e-9) if high is None else most / step
        ticks = [number * step for number in range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1)]
        return cls(label, first * step, last * step, ticks)

    def share(self, value: float) -> float:
        """Where a value lies between the ends, from 0 to 1."""
        return (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)


def round_step(rough: float) -> float:
    """The next 1, 2 or 5 times a power of ten.

    >>> round_step(0.13), round_step(0.3), round_step(7)
    (0.2, 0.5, 10.0)
    """
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))


@dataclass(frozen=True)
class Frame:
    """Two axes on paper."""

    x: Axis
    y: Axis
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    top: float = 0.0

    def at(self, x: float, y: float) -> Point:
        across, down = self.width - self.left - RIGHT, self.height - TOP - BOTTOM
        return self.left + across * self.x.share(x), self.top + TOP + down * (1 - self.y.share(y))

    def shapes(self) -> list[Shape]:
        """The grid, the ticks and the labels."""
        drawn: list[Shape] = []
        for value in self.y.ticks:
            start, end = self.at(self.x.low, value), self.at(self.x.high, value)
            drawn += [Line([start, end], "grid", width=1)]
            drawn += [Words((start[0] - 7, start[1] + 4), self.y.form(round(value, 9)), "muted", "end", 12)]
        for value in self.x.ticks:
            start, end = self.at(value, self.y.low), self.at(value, self.y.high)
            drawn += [Line([start, end], "grid", width=1)]
            drawn += [Words((start[0], start[1] + 17), self.x.form(round(value, 9)), "muted", "middle", 12)]
        middle = (self.left + self.width - RIGHT) / 2
        drawn.append(Words((middle, self.top + self.height - 9), self.x.label, "ink", "middle"))
        if self.y.label:
            beside = (14, self.top + (TOP + self.height - BOTTOM) / 2)
            drawn.append(Words(beside, self.y.label, "ink", "middle", turned=True))
        return drawn


def legend(series: Sequence[tuple[str, Style]], top: float, width: float = WIDTH) -> tuple[list[Shape], float]:
    """A sign, a stroke and a name for each series, row by row, and how high that is."""
    drawn: list[Shape] = []
    x, y = 14.0, top + 10
    for name, style in series:
        needed = STROKE + 18 + CHARACTER * len(name)
        if x + needed > width and x > 14:
            x, y = 14.0, y + LEGEND_ROW
        drawn.append(Line([(x, y), (x + STROKE, y)], style.role, style.dash, 2))
        drawn.append(Mark((x + STROKE / 2, y), style.role, style.sign, 4.5))
        drawn.append(Words((x + STROKE + 6, y + 4), name))
        x += needed
    return drawn, y + LEGEND_ROW - top
