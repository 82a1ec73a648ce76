"""Where documents stand in the lists of their queries: what share of them at which places, for two moments or more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unrank.report.figure.bars import Bars, grouped_bars
from unrank.report.figure.palette import Style
from unrank.report.figure.shape import Drawing

CLASSES = {"1": 1, "2–3": 3, "4–10": 10, "11–30": 30, "31–": 10**9, "none": 0}
"""Classes of places by the last of each; 0 is no place."""


def places(title: str, series: Sequence[tuple[str, Style, Sequence[int]]]) -> Drawing:
    """Each series is a name and the places of its documents."""
    found = [(name, style, shares(ranks)) for name, style, ranks in series]
    shown = [number for number, name in enumerate(CLASSES) if name != "none" or any(s[number] for *_, s in found)]
    bars = [Bars(name, style, [values[number] for number in shown]) for name, style, values in found]
    names = [list(CLASSES)[number] for number in shown]
    return grouped_bars("places", title, "place in the query's list", names, bars)


def shares(ranks: Iterable[int]) -> list[float]:
    """
    >>> shares([1, 2, 3, 40])
    [0.25, 0.5, 0.0, 0.0, 0.25, 0.0]
    """
    counts = dict.fromkeys(CLASSES, 0)
    for rank in ranks:
        counts[next(name for name, last in CLASSES.items() if rank == last == 0 or 0 < rank <= last)] += 1
    return [count / max(sum(counts.values()), 1) for count in counts.values()]
