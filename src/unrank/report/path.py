"""The way of a run, check by check: one set's MRR as a curve."""

from __future__ import annotations

from unrank.record import Record
from unrank.report.figure.curve import Curve
from unrank.report.figure.palette import Style


def path_of(run: Record, of: str, name: str, style: Style) -> Curve | None:
    """None where the set was not watched.

    A kept set is watched on some of its queries, so what it was before, on all of them, is no point of its curve.
    """
    points = run.path(of)
    if not points:
        return None
    if of != "forget":
        return Curve(name, style, points)
    landed = (points[-1][0], run.after[of].mrr) if run.landing else None
    return Curve(name, style, [(0.0, run.before[of].mrr), *points], landed)
