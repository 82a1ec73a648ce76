"""The page of one run of `unrank forget`."""

from __future__ import annotations

from unrank.errors import count
from unrank.report.details import Details
from unrank.report.figure.bars import Bars, grouped_bars, lying_bars
from unrank.report.figure.curve import Curve, curves
from unrank.report.figure.histogram import histograms
from unrank.report.figure.interval import Spread, intervals
from unrank.report.figure.palette import Style
from unrank.report.figure.radar import Polygon, radar
from unrank.report.figure.shape import Drawing
from unrank.report.figure.tradeoff import Trade, tradeoff
from unrank.report.page import Card, Page, Section, figure, paragraph, side_by_side
from unrank.report.queries import queries_section
from unrank.report.record import KEPT, SETS, Run
from unrank.report.table import Table, to_html, words
from unrank.report.table import figure as number
from unrank.report.wording import duration, listing

BEFORE, AFTER = Style("muted", "circle", "7 3"), Style("series-0", "square", "")
KINDS = {
    "forgotten": Style("series-1", "triangle", ""),
    "kept": Style("series-0", "square", ""),
    "other": Style("muted", "circle", "2 3"),
}
PLACES = {"1": 1, "2–3": 3, "4–10": 10, "11–30": 30, "31–": 10**9}
"""Classes of places by their last."""


def run_page(run: Run, details: Details | None, texts: bool) -> tuple[Page, list[Table]]:
    """The page, and its tables for those who want them as files."""
    path = _curves(run)
    sections, drawings = [_change(run, path), _removed(run)], [_intervals(run), *([path] if path else [])]
    if run.target is not None:
        trade, corners = _tradeoff(run, run.target), _radar(run, run.target)
        sections.append(_trade(trade, corners))
        drawings += [trade, corners]
    if details is not None:
        scores, places = _scores(details), _places(details)
        sections += [_movement(scores, places), queries_section(details, texts)]
        drawings += [scores, places]
    sections += [_time(run), _making(run)]
    drawings.append(_clock(run))
    page = Page(
        f"{run.method} on a {run.ranker}, {run.collection}", verdict(run), lead(run), _cards(run), sections, drawings
    )
    return page, [change_table(run)]


def verdict(run: Run) -> str:
    before, after = (side["forget"].mrr for side in (run.before, run.after))
    if run.target is None or run.reached is None:
        return f"The forget MRR went from {before:.3f} to {after:.3f}."
    if run.reached:
        return f"Forgotten to {after:.3f}; the target was {run.target:.3f}."
    return f"Not forgotten enough: {after:.3f}, and the target was {run.target:.3f}."


def lead(run: Run) -> str:
    shares = [f"{share:.1%} of {name}" for name, share in run.kept.items()]
    kept = f"Of its MRR elsewhere it kept {listing(shares)}." if shares else "There is no other set to measure."
    return f"{kept} Before, the forget MRR was {run.before['forget'].mrr:.3f}."


def _cards(run: Run) -> list[Card]:
    forget = f"{run.before['forget'].mrr:.3f} → {run.after['forget'].mrr:.3f}"
    goal = "no target" if run.target is None else f"target {run.target:.3f}"
    mood = {True: "good", False: "bad"}.get(run.reached, "") if run.reached is not None else ""
    cards = [Card("Forget MRR", forget, goal, mood)]  # type: ignore[arg-type]
    if run.kept:
        least = min(run.kept, key=lambda name: run.kept[name])
        cards.append(Card("Kept, at least", f"{run.kept[least]:.1%}", f"of the MRR of {least}"))
    cards.append(Card("Took", duration(run.seconds), f"{run.seconds / run.epoch_seconds:.2f} epochs of training"))
    removed = [
        count(number, kind.removesuffix("s").replace("querie", "query"))
        for kind, number in run.removed.items()
        if number
    ]
    return [*cards, Card("Removed", removed[0] if removed else "nothing", ", ".join(removed[1:]))]


def change_table(run: Run) -> Table:
    rows = []
    for name in SETS:
        if name not in run.before:
            rows.append([words(name), *[words("none")] * 2, *[words("")] * 3, words("0")])
            continue
        before, after = run.before[name], run.after[name]
        kept = None if name == "forget" else run.kept.get(name)
        span = words(f"{after.low:.3f} to {after.high:.3f}")
        rows.append(
            [words(name), number(before.mrr), number(after.mrr), span, number(after.mrr - before.mrr, "+.3f"),
             number(kept, ".1%"), number(after.queries, ",")]
        )  # fmt: skip
    head = ["set", "before", "after", "95 % interval after", "change", "kept", "queries"]
    return Table("change", "MRR before and after, set by set", head, rows)


def _intervals(run: Run) -> Drawing:
    def spread(side: str, name: str) -> Spread:
        measure = getattr(run, side)[name]
        return Spread(measure.mrr, measure.low, measure.high)

    rows = [(name, spread("before", name), spread("after", name)) for name in SETS if name in run.before]
    return intervals("intervals", "MRR before and after", rows, run.target, (BEFORE, AFTER))


def _change(run: Run, path: Drawing | None) -> Section:
    told = "The forget set should fall to the target; the other three should stay where they were. "
    told += "Entangled pairs share a query or a document with what was removed, disjoint pairs share nothing with it."
    drawn = [figure(_intervals(run), "MRR with its bootstrap 95 % interval; the dashed line is the target.")]
    if path is not None:
        landed = " Having crossed it, the run was landed on it: the diamond." if run.landed else ""
        drawn.append(figure(path, f"On the way, check by check. The dashed line across is the target.{landed}"))
    content = [paragraph(told), to_html(change_table(run)), *map(paragraph, _afterwards(run)), side_by_side(*drawn)]
    return Section("change", "Before and after", "Before and after", content)


def _afterwards(run: Run) -> list[str]:
    """What the record says of recovery, and of stored document vectors."""
    said = []
    if found := run.record.get("recovery"):
        said.append(
            f"After one epoch on kept data the forget MRR goes from {found['before']:.3f} to {found['after']:.3f}: "
            "what comes back was hidden, not forgotten."
        )
    if (valid := run.record.get("index_valid")) is not None:
        said.append(f"Document vectors that were stored with the old ranker {'stay valid' if valid else 'are stale'}.")
    return said


def _removed(run: Run) -> Section:
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in run.removed.items() if number)
    queries = run.after["forget"].queries
    told = f"The request named {kinds or 'nothing'}. {queries:,} queries are measured on the forgotten pairs."
    earlier = len(run.record.get("removed_before") or [])
    more = f" The ranker had forgotten {count(earlier, 'request')} before; those stay forgotten." if earlier else ""
    hashes = "The record holds counts and salted hashes, no id and no text."
    return Section("removed", "Removed", "What was removed", [paragraph(told + more), paragraph(hashes)])


def _tradeoff(run: Run, target: float) -> Drawing:
    return tradeoff("tradeoff", "Forgetting against retention", [
        Trade(name, style, 1 - abs(side["forget"].mrr - target), kept)
        for name, style, side, kept in (
            ("before", BEFORE, run.before, 1.0),
            (run.method, AFTER, run.after, sum(run.kept.values()) / len(run.kept) if run.kept else 1.0),
        )
    ])  # fmt: skip


def _radar(run: Run, target: float) -> Drawing:
    def values(side: str) -> list[float | None]:
        measures = getattr(run, side)
        kept = [measures[name].mrr if name in measures else None for name in KEPT]
        return [1 - abs(measures["forget"].mrr - target), *kept]

    polygons = [Polygon("before", BEFORE, values("before")), Polygon(run.method, AFTER, values("after"))]
    return radar("radar", "The four sets at a glance", ["forget: 1 − |MRR − target|", *KEPT], polygons)


def _trade(trade: Drawing, radar: Drawing) -> Section:
    points = figure(trade, "The best corner is at the top on the right: on target, and nothing lost.")
    corners = figure(radar, "Further out is better in every corner.")
    return Section("trade", "Trade-off", "Forgetting against keeping", [side_by_side(points, corners)])


def _curves(run: Run) -> Drawing | None:
    lines = [line for line in run.history if "forget" in line]
    if not lines:
        return None
    end = (float(lines[-1]["epoch"]), run.after["forget"].mrr)
    series = [
        Curve(name, Style.of(place + 1 if name == "forget" else place + 2),
              [*([(0.0, run.before["forget"].mrr)] if name == "forget" else []),
               *((float(line["epoch"]), float(line[name])) for line in lines if name in line)],
              end if name == "forget" and run.landed else None)
        for place, name in enumerate(SETS)
        if any(name in line for line in lines)
    ]  # fmt: skip
    return curves("curves", "MRR over epochs", series, [] if run.target is None else [run.target])


def _scores(details: Details) -> Drawing:
    scores = details.header["scores"]
    panels = {when: {kind: scores[kind][when] for kind in KINDS} for when in ("before", "after")}
    return histograms("scores", "Scores before and after", scores["edges"], panels, KINDS)


def _places(details: Details) -> Drawing:
    moves = details.moves("forgotten")
    lasts = list(PLACES.values())

    def shares(side: int) -> list[float]:
        found = [0] * len(lasts)
        for move in moves:
            found[next(number for number, last in enumerate(lasts) if move[side] <= last)] += 1
        return [value / max(len(moves), 1) for value in found]

    series = [Bars("before", BEFORE, shares(0)), Bars("after", AFTER, shares(1))]
    return grouped_bars("places", "Places of forgotten documents", "place in the query's list", list(PLACES), series)


def _movement(scores: Drawing, places: Drawing) -> Section:
    return Section("movement", "Places and scores", "How documents moved", [
        side_by_side(
            figure(places, "Where forgotten documents stood in the lists of their queries, and where they stand now."),
            figure(scores, "Each kind as a share of itself; kept: relevant documents that stay; other: candidates."),
        )
    ])  # fmt: skip


def _clock(run: Run) -> Drawing:
    rows = [(name, Style.of(0), seconds / run.epoch_seconds) for name, seconds in run.timing.items()]
    rows.append(("in all", Style.of(1), run.seconds / run.epoch_seconds))
    return lying_bars("time", "Time in epochs of training", "epochs of training", rows, 1.0)


def _time(run: Run) -> Section:
    told = (
        f"It took {duration(run.seconds)} and {run.epochs:g} epochs of its own. One epoch of training on all data "
        f"takes {duration(run.epoch_seconds)} here ({run.epoch_how}), retraining takes several. The dashed line is one."
    )
    return Section(
        "time", "Time", "Time against training anew", [paragraph(told), figure(_clock(run), "Where the time went.")]
    )


def _making(run: Run) -> Section:
    record = run.record
    facts = {
        "method": run.method, "ranker": run.ranker, "base": record.get("base"), "seed": record.get("seed"),
        "target": f"{record.get('target_name')} ({run.target:.4f})" if run.target is not None else "none",
        "device": record.get("device"), "collection": run.collection,
        "collection's fingerprint": record["collection"].get("fingerprint"),
    }  # fmt: skip
    tables = {
        "Run": facts,
        "Settings": run.settings,
        "Versions": record.get("versions") or {},
        "Files (SHA-256)": record.get("hashes") or {},
    }
    shown = [
        to_html(
            Table(
                name, name, ["name", "value"], [[words(str(key)), words(str(value))] for key, value in rows.items()], 2
            )
        )
        for name, rows in tables.items()
        if rows
    ]
    return Section("making", "Making", "How it was made", shown)
