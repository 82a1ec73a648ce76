"""The figures of one run: before and after, check by check, its time, and how documents moved."""

from __future__ import annotations

from unrank.evaluation.bootstrap import MIN_QUERIES
from unrank.record import KEPT, SETS, Record
from unrank.report.charts import (
    Curve,
    Polygon,
    Spread,
    Target,
    Trade,
    curves,
    histograms,
    intervals,
    radar,
    rank_bars,
    row_bars,
    tradeoff,
)
from unrank.report.drawing import DASHES, MUTED, SERIES, Drawing, Style
from unrank.report.rankings import Rankings

BEFORE, AFTER = Style(MUTED, "o", DASHES[1]), Style(SERIES[0], "s")
PLACE = Style(SERIES[2], "D")
SET_STYLES = {name: Style.of(number) for number, name in enumerate(SETS, 1)}
KINDS = {"forgotten": Style(SERIES[1], "^"), "kept": AFTER, "other": Style(MUTED, "o", DASHES[2])}


def path_of(run: Record, of: str, name: str, style: Style) -> Curve | None:
    """Return the MRR of a set, check by check; `None` if it was not watched.

    A kept set is watched on a sample of its queries. Its MRR before the run is over all of them: no point of the curve.
    """
    points = run.path(of)
    if not points:
        return None
    if of != "forget":
        return Curve(name, style, points)
    landed = (points[-1][0], run.after[of].mrr) if run.landing else None
    return Curve(name, style, [(0.0, run.before[of].mrr), *points], landed)


def change_intervals(run: Record) -> Drawing:
    def spread(side: str, name: str) -> Spread:
        of = getattr(run, side)[name]
        return Spread(of.mrr, of.low, of.high) if of.queries >= MIN_QUERIES else Spread(of.mrr, of.mrr, of.mrr)

    rows = [(name, spread("before", name), spread("after", name)) for name in SETS if name in run.before]
    return intervals("intervals", "MRR before and after", rows, run.target, (BEFORE, AFTER))


def run_tradeoff(run: Record, target: float, kept: float) -> Drawing:
    sides = (("before", BEFORE, run.before, 1.0), (run.method, AFTER, run.after, kept))
    trades = [Trade(name, style, 1 - abs(of["forget"].mrr - target), kept) for name, style, of, kept in sides]
    return tradeoff("tradeoff", "Forgetting against retention", trades)


def run_radar(run: Record, target: float) -> Drawing:
    def values(side: str) -> list[float | None]:
        metrics = getattr(run, side)
        kept = [metrics[name].mrr if name in metrics else None for name in KEPT]
        return [1 - abs(metrics["forget"].mrr - target), *kept]

    polygons = [Polygon("before", BEFORE, values("before")), Polygon(run.method, AFTER, values("after"))]
    return radar("radar", "The four sets at a glance", ["forget: 1 − |MRR − target|", *KEPT], polygons)


def run_curves(run: Record) -> Drawing | None:
    series = set_curves(run)
    targets = [] if run.target is None else [Target(run.target, run.met)]
    return curves("curves", "MRR over epochs", series, targets) if series else None


def set_curves(run: Record) -> list[Curve]:
    """Return a curve for each set that was watched."""
    return [curve for name, style in SET_STYLES.items() if (curve := path_of(run, name, name, style))]


def score_histograms(rankings: Rankings) -> Drawing:
    scores = rankings.scores
    panels = {
        "before": {kind: scores[kind]["before"] for kind in KINDS},
        "after": {kind: scores[kind]["after"] for kind in KINDS},
    }
    return histograms("scores", "Scores before and after", rankings.edges, panels, KINDS)


def run_rank_changes(rankings: Rankings) -> Drawing:
    before, after = ([move[side] for move in rankings.moves("forgotten")] for side in (0, 1))
    series = [("before", BEFORE, before), ("after", AFTER, after)]
    if rankings.places:
        series.append(("place", PLACE, rankings.places))
    return rank_bars("Ranks of forgotten documents", series)


def run_time(run: Record) -> Drawing:
    rows = [(name, Style.of(0), seconds / run.learning_epoch.seconds) for name, seconds in run.timing.items()]
    rows.append(("in all", Style.of(1), run.total_time))
    return row_bars("time", "Time in epochs of training", "epochs of training", rows, 1.0)
