"""The page of one run of `unrank forget`."""

from __future__ import annotations

from unrank.errors import count
from unrank.record import SETS, Record
from unrank.report.details import Details
from unrank.report.figure.shape import Drawing
from unrank.report.page import Card, Mood, Page, Section, figure, paragraph, side_by_side
from unrank.report.queries import queries_section
from unrank.report.run_figures import (
    change_intervals,
    place_changes,
    run_curves,
    run_radar,
    run_time,
    run_tradeoff,
    score_histograms,
)
from unrank.report.table import Table, facts, to_html, words
from unrank.report.table import figure as number
from unrank.report.wording import duration, listing

ONE = {"queries": "query", "documents": "document", "pairs": "pair"}


def run_page(run: Record, details: Details | None, texts: bool) -> tuple[Page, list[Table]]:
    """The page, and its tables for those who want them as files."""
    path = run_curves(run)
    sections, drawings = [_change(run, path), _removed(run)], [change_intervals(run), *([path] if path else [])]
    if run.target is not None:
        trade, corners = run_tradeoff(run, run.target), run_radar(run, run.target)
        sections.append(_trade(trade, corners))
        drawings += [trade, corners]
    if details is not None:
        scores, stood = score_histograms(details), place_changes(details)
        sections += [_movement(scores, stood), queries_section(details, texts)]
        drawings += [scores, stood]
    sections += [_time(run), _making(run)]
    drawings.append(run_time(run))
    page = Page(
        f"{run.method} on a {run.ranker}, {run.collection.name}",
        verdict(run),
        lead(run),
        _cards(run),
        sections,
        drawings,
    )
    return page, [change_table(run)]


def verdict(run: Record) -> str:
    before, after = (side["forget"].mrr for side in (run.before, run.after))
    if run.target is None or run.reached is None:
        return f"The forget MRR went from {before:.3f} to {after:.3f}."
    if run.reached:
        return f"Forgotten to {after:.3f}; the target was {run.target:.3f}."
    return f"Not forgotten enough: {after:.3f}, and the target was {run.target:.3f}."


def lead(run: Record) -> str:
    shares = [f"{share:.1%} of {name}" for name, share in run.kept.items()]
    kept = f"Of its MRR elsewhere it kept {listing(shares)}." if shares else "There is no other set to measure."
    return f"{kept} Before, the forget MRR was {run.before['forget'].mrr:.3f}."


def _cards(run: Record) -> list[Card]:
    forget = f"{run.before['forget'].mrr:.3f} → {run.after['forget'].mrr:.3f}"
    goal = "no target" if run.target is None else f"target {run.target:.3f}"
    mood: Mood = "" if run.reached is None else "good" if run.reached else "bad"
    cards = [Card("Forget MRR", forget, goal, mood)]
    if run.kept:
        least = min(run.kept, key=lambda name: run.kept[name])
        cards.append(Card("Kept, at least", f"{run.kept[least]:.1%}", f"of the MRR of {least}"))
    cards.append(Card("Took", duration(run.seconds), f"{run.total_time:.2f} epochs of training"))
    removed = [count(number, ONE[kind]) for kind, number in run.removed_counts.items() if number]
    return [*cards, Card("Removed", removed[0] if removed else "nothing", ", ".join(removed[1:]))]


def change_table(run: Record) -> Table:
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


def _change(run: Record, path: Drawing | None) -> Section:
    told = "The forget set should fall to the target; the other three should stay where they were. "
    told += "Entangled pairs share a query or a document with what was removed, disjoint pairs share nothing with it."
    drawn = [figure(change_intervals(run), "MRR with its bootstrap 95 % interval; the dashed line is the target.")]
    if path is not None:
        landed = " Having crossed it, the run was landed on it: the large diamond." if run.landing is not None else ""
        drawn.append(
            figure(path, f"On the way, check by check. Dashed lines: the target, and the epoch that met it.{landed}")
        )
    content = [paragraph(told), to_html(change_table(run)), *map(paragraph, _afterwards(run)), side_by_side(*drawn)]
    return Section("change", "Before and after", "Before and after", content)


def _afterwards(run: Record) -> list[str]:
    """What the record says of recovery, and of stored document vectors."""
    said = []
    if found := run.recovery:
        said.append(
            f"After one epoch on kept data the forget MRR goes from {found.before:.3f} to {found.after:.3f}: "
            "what comes back was hidden, not forgotten."
        )
    if (valid := run.index_valid) is not None:
        said.append(f"Document vectors that were stored with the old ranker {'stay valid' if valid else 'are stale'}.")
    return said


def _removed(run: Record) -> Section:
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in run.removed_counts.items() if number)
    queries = run.after["forget"].queries
    told = f"The request named {kinds or 'nothing'}. {queries:,} queries are measured on the forgotten pairs."
    earlier = len(run.removed_before)
    more = f" The ranker had forgotten {count(earlier, 'request')} before; those stay forgotten." if earlier else ""
    hashes = "The record holds counts and salted hashes, no id and no text."
    return Section("removed", "Removed", "What was removed", [paragraph(told + more), paragraph(hashes)])


def _trade(trade: Drawing, radar: Drawing) -> Section:
    points = figure(trade, "The best corner is at the top on the right: on target, and nothing lost.")
    corners = figure(radar, "Further out is better in every corner.")
    return Section("trade", "Trade-off", "Forgetting against keeping", [side_by_side(points, corners)])


def _movement(scores: Drawing, stood: Drawing) -> Section:
    return Section("movement", "Places and scores", "How documents moved", [
        side_by_side(
            figure(stood, "Where forgotten documents stood in the lists as shown below, and where they stand now."),
            figure(scores, "Each kind as a share of itself; kept: relevant documents that stay; other: candidates."),
        )
    ])  # fmt: skip


def _time(run: Record) -> Section:
    told = (
        f"It took {duration(run.seconds)} and {run.epochs:g} epochs of its own. One epoch of training on all data "
        f"takes {duration(run.learning_epoch.seconds)} here ({run.learning_epoch.how}), "
        "retraining takes several. The dashed line is one."
    )
    return Section(
        "time", "Time", "Time against training anew", [paragraph(told), figure(run_time(run), "Where the time went.")]
    )


def _making(run: Record) -> Section:
    made = {
        "method": run.method, "ranker": run.ranker, "base": run.base, "seed": run.seed,
        "target": f"{run.target_name} ({run.target:.4f})" if run.target is not None else "none",
        "device": run.device, "collection": run.collection.name,
        "collection's fingerprint": run.collection.fingerprint,
    }  # fmt: skip
    tables = {
        "Run": made,
        "Settings": run.settings,
        "Versions": run.versions,
        "Files (SHA-256)": run.hashes,
    }
    return Section("making", "Making", "How it was made", [facts(name, rows) for name, rows in tables.items() if rows])
