"""The figures of one run: before and after, the way there, what it cost, and how documents moved."""

from __future__ import annotations

from unrank.record import KEPT, SETS, Record
from unrank.report.details import Details
from unrank.report.figure.bars import lying_bars
from unrank.report.figure.curve import Curve, Target, curves
from unrank.report.figure.histogram import histograms
from unrank.report.figure.interval import Spread, intervals
from unrank.report.figure.palette import Style
from unrank.report.figure.places import places
from unrank.report.figure.radar import Polygon, radar
from unrank.report.figure.shape import Drawing
from unrank.report.figure.tradeoff import Trade, tradeoff
from unrank.report.path import path_of

BEFORE, AFTER = Style("muted", "circle", "7 3"), Style("series-0", "square", "")
SET_STYLES = {name: Style.of(number) for number, name in enumerate(SETS, 1)}
KINDS = {
    "forgotten": Style("series-1", "triangle", ""),
    "kept": Style("series-0", "square", ""),
    "other": Style("muted", "circle", "2 3"),
}


def change_intervals(run: Record) -> Drawing:
    def spread(side: str, name: str) -> Spread:
        measure = getattr(run, side)[name]
        return Spread(measure.mrr, measure.low, measure.high)

    rows = [(name, spread("before", name), spread("after", name)) for name in SETS if name in run.before]
    return intervals("intervals", "MRR before and after", rows, run.target, (BEFORE, AFTER))


def run_tradeoff(run: Record, target: float) -> Drawing:
    return tradeoff("tradeoff", "Forgetting against retention", [
        Trade(name, style, 1 - abs(side["forget"].mrr - target), kept)
        for name, style, side, kept in (
            ("before", BEFORE, run.before, 1.0),
            (run.method, AFTER, run.after, sum(run.kept.values()) / len(run.kept) if run.kept else 1.0),
        )
    ])  # fmt: skip


def run_radar(run: Record, target: float) -> Drawing:
    def values(side: str) -> list[float | None]:
        measures = getattr(run, side)
        kept = [measures[name].mrr if name in measures else None for name in KEPT]
        return [1 - abs(measures["forget"].mrr - target), *kept]

    polygons = [Polygon("before", BEFORE, values("before")), Polygon(run.method, AFTER, values("after"))]
    return radar("radar", "The four sets at a glance", ["forget: 1 − |MRR − target|", *KEPT], polygons)


def run_curves(run: Record) -> Drawing | None:
    series = set_curves(run)
    targets = [] if run.target is None else [Target(run.target, run.met)]
    return curves("curves", "MRR over epochs", series, targets) if series else None


def set_curves(run: Record) -> list[Curve]:
    """One a set that was watched."""
    return [curve for name, style in SET_STYLES.items() if (curve := path_of(run, name, name, style))]


def score_histograms(details: Details) -> Drawing:
    scores = details.header["scores"]
    panels = {when: {kind: scores[kind][when] for kind in KINDS} for when in ("before", "after")}
    return histograms("scores", "Scores before and after", scores["edges"], panels, KINDS)


def place_changes(details: Details) -> Drawing:
    before, after = ([move[side] for move in details.moves("forgotten")] for side in (0, 1))
    return places("Places of forgotten documents", [("before", BEFORE, before), ("after", AFTER, after)])


def run_time(run: Record) -> Drawing:
    rows = [(name, Style.of(0), seconds / run.learning_epoch.seconds) for name, seconds in run.timing.items()]
    rows.append(("in all", Style.of(1), run.total_time))
    return lying_bars("time", "Time in epochs of training", "epochs of training", rows, 1.0)
