"""The page of one run of `unrank forget`."""

from __future__ import annotations

from unrank.errors import count
from unrank.evaluation.bootstrap import MIN_QUERIES
from unrank.record import SETS, PlacesFound, Record, ReferenceAgreement, Substituted
from unrank.report.cell import there_before
from unrank.report.page import Card, Content, Figures, Mood, Page, Section, paragraph
from unrank.report.queries import queries_section
from unrank.report.rankings import Rankings
from unrank.report.run_figures import (
    change_intervals,
    run_curves,
    run_radar,
    run_rank_changes,
    run_time,
    run_tradeoff,
    score_histograms,
)
from unrank.report.table import Table, facts, figure, to_html, words
from unrank.report.wording import NOTE_ON_RANKS, duration, interval_words, listing, over_whole_index

ONE = {"queries": "query", "documents": "document", "pairs": "pair"}


def run_page(run: Record, rankings: Rankings | None, texts: bool) -> tuple[Page, list[Table]]:
    """Make the page, and its tables for files."""
    sections = [_change(run), _removed(run)]
    if run.target is not None:
        sections.append(_trade(run, run.target))
    if rankings is not None:
        sections += [_movement(rankings), queries_section(rankings, texts)]
    sections += [_time(run), _making(run)]
    kind = f"{run.method} on a {run.ranker}, {run.collection.name}"
    return Page(kind, verdict(run), lead(run), _cards(run), sections), [change_table(run)]


def verdict(run: Record) -> str:
    """Say the state of the request first. Records of earlier versions, and of a bench, have none."""
    before, after = (f"{side['forget'].mrr:.3f}" for side in (run.before, run.after))
    if run.target is None or run.reached is None:
        return (
            f"The forget MRR stayed at {after}."
            if before == after
            else f"The forget MRR went from {before} to {after}."
        )
    target = f"{run.target:.3f}"
    if run.state is not None:
        change = f"is {after}, as before the run" if before == after else f"went from {before} to {after}"
        goal = f"{run.target_name} ({target})" if run.target_name else target
        if run.places is not None:
            goal = f"the pairs' own places, with an MRR of {target}"
        return f"{run.state.capitalize()}: the forget MRR {change}; the target was {goal}."
    if not run.reached:
        return f"Not forgotten enough: {after}, and the target was {target}."
    if before == after:
        return f"The forget MRR is {after}, as before the run; the target was {target}."
    if there_before(run):
        return f"The forget MRR went from {before}, at the target ({target}) or below within the tolerance, to {after}."
    if after > target:
        queries = count(run.after["forget"].queries, "forget query")
        return f"Forgotten to {after}, within the tolerance for {queries}; the target was {target}."
    return f"Forgotten to {after}; the target was {target}."


def lead(run: Record) -> str:
    shares = [f"{share:.1%} on {name}" for name, share in run.kept.items()]
    kept = f"It kept of its MRR {listing(shares)}." if shares else "There is no other set to measure."
    return f"{kept} Before, the forget MRR was {run.before['forget'].mrr:.3f}."


def _cards(run: Record) -> list[Card]:
    forget = f"{run.before['forget'].mrr:.3f} → {run.after['forget'].mrr:.3f}"
    goal = "no target" if run.target is None else f"{'places' if run.places else 'target'} {run.target:.3f}"
    mood: Mood = "" if run.reached is None else "good" if run.reached else "bad"
    mood = "bad" if run.state == "not forgotten" else "" if run.state not in (None, "forgotten") else mood
    cards = [Card("Forget MRR", forget, goal, mood)]
    if run.pairs is not None and run.pairs.worst is not None:
        worst = run.pairs.worst
        place = "" if worst.place is None else f", place {worst.place}"
        moved = f"rank before → now{place}; {run.pairs.changed:,} of {count(run.pairs.pairs, 'pair')} changed"
        cards.append(Card("Worst pair", f"{worst.before} → {worst.after}", moved))
    if run.substitutes is not None:
        then, now = run.substitutes.before, run.substitutes.after
        moved = f"median rank of {count(now.pairs, 'substitute')}, before → now"
        cards.append(Card("Substitutes", f"{then.median_rank:g} → {now.median_rank:g}", moved))
    if run.kept:
        least = min(run.kept, key=lambda name: run.kept[name])
        cards.append(Card("Kept, at least", f"{run.kept[least]:.1%}", f"of the MRR of {least}"))
    cards.append(Card("Took", duration(run.seconds), f"{run.total_time:.2f} epochs of training"))
    removed = [count(number, ONE[kind]) for kind, number in run.removed_counts.items() if number]
    return [*cards, Card("Removed", removed[0] if removed else "nothing", ", ".join(removed[1:]))]


def change_table(run: Record) -> Table:
    """Make one row per set: its MRR before and after."""
    rows = []
    for name in SETS:
        if name not in run.before:
            rows.append([words(name), *[words("none")] * 2, *[words("")] * 3, words("0")])
            continue
        before, after = run.before[name], run.after[name]
        kept = None if name == "forget" else run.kept.get(name)
        interval = words(interval_words(after.low, after.high, after.queries))
        rows.append(
            [words(name), figure(before.mrr), figure(after.mrr), interval, figure(after.mrr - before.mrr, "+z.3f"),
             figure(kept, ".1%"), figure(after.queries, ",")]
        )  # fmt: skip
    head = ["set", "before", "after", "95 % interval after", "change", "kept", "queries"]
    return Table("change", "MRR before and after, set by set", head, rows)


def _change(run: Record) -> Section:
    goal = "" if run.target is None else " to its target"
    text = f"The forget set should fall{goal}; the other three should keep their MRR. "
    text += "Entangled pairs share a query or a document with what was removed, disjoint pairs share nothing with it."
    line = "" if run.target is None else "; the dashed line is the target"
    drawn = [(change_intervals(run), f"MRR with its bootstrap 95 % interval, from {MIN_QUERIES} queries on{line}.")]
    if path := run_curves(run):
        met = "" if run.met is None else ", and the epoch of the first check at or below it"
        lines = "" if run.target is None else f" Dashed lines: the target{met}."
        landed = " Large diamond: the weights were then moved back along their way, towards it." if run.landing else ""
        drawn.append((path, f"Check by check.{lines}{landed}"))
    table, more = to_html(change_table(run)), [paragraph(text) for text in _afterwards(run)]
    content: list[Content] = [paragraph(text), table, *more, Figures(drawn)]
    return Section("change", "Before and after", "Before and after", content)


def _afterwards(run: Record) -> list[str]:
    """Say what the record holds on a whole index, the reference, recovery and stored document vectors."""
    said = [NOTE_ON_RANKS]
    if run.whole_index:
        words = over_whole_index(run.whole_index)
        said.append(f"{words[0].upper()}{words[1:]}.")
    if run.places:
        said.append(_beside_places(run.places))
    if run.substitutes:
        said.append(_substituted(run.substitutes))
    if run.agreement:
        said.append(_beside_reference(run.agreement))
    if found := run.recovery:
        text = f"After one epoch of training on kept data alone the forget MRR goes from {found.before:.3f} to "
        text += f"{found.after:.3f}"
        if found.reference_before is not None and found.reference_after is not None:
            text += f", and that of the reference from {found.reference_before:.3f} to {found.reference_after:.3f}"
        text += ". If it rises further than that of a ranker trained without the removed pairs, "
        said.append(f"{text}they were hidden, not forgotten.")
    if run.index_valid is not None:
        state = "stay valid" if run.index_valid else "are stale"
        said.append(f"Document vectors that were stored with the old ranker {state}.")
    return said


def _substituted(found: Substituted) -> str:
    """Say where the substitutes of removed documents stand now, and where they stood."""
    now, then = found.after, found.before
    text = f"Substitutes of removed documents, over {count(now.pairs, 'forget pair')}: the median rank is "
    text += f"{now.median_rank:g}, before the run {then.median_rank:g}; the MRR {now.mrr:.3f}, before {then.mrr:.3f}. "
    return f"{text}{now.above:,} stand above the document that they replace, before {then.above:,}."


def _beside_places(found: PlacesFound) -> str:
    """Say how far the forget queries are from their places, and how those were found."""
    by = f"{count(found.proxies, 'proxy')} ({found.source})" if found.proxies else "an estimate, without a proxy"
    text = f"Each forget pair has a place, found by {by}."
    if found.distance_before is None or found.distance_after is None:
        return text
    far = f"{found.distance_after:.3f} from those of their places, before the run {found.distance_before:.3f}"
    return f"{text} The reciprocal ranks of the forget queries are on average {far}."


def _beside_reference(found: ReferenceAgreement) -> str:
    """Say how far the original and the new ranker are from the reference, query by query."""
    text = f"Query by query, the forget set is {found.after.distance:.3f} from the reference's, before the run "
    text += f"{found.before.distance:.3f}: the mean difference of the reciprocal ranks over "
    text += count(found.after.queries, "query")
    sides = [
        "undefined" if side.correlation is None else f"{side.correlation:.2f}" for side in (found.after, found.before)
    ]
    return f"{text}. Their correlation is {sides[0]}, before {sides[1]}."


def _removed(run: Record) -> Section:
    kinds = listing([count(number, ONE[kind]) for kind, number in run.removed_counts.items() if number])
    measured = count(run.after["forget"].queries, "query")
    text = f"The request named {kinds or 'nothing'}. The forget set is measured on {measured}."
    if earlier := len(run.removed_before):
        text += f" The ranker was asked to forget {count(earlier, 'request')} before."
        said = str(run.earlier)
        text += f" {said[0].upper()}{said[1:]}." if run.earlier else ""
    of = run.removed
    has_hashes = of is not None and any(kind.hashes for kind in (of.queries, of.documents, of.pairs))
    held = f"The record holds counts{' and hashes' if has_hashes else ''} of what was removed, no id and no text."
    return Section("removed", "Removed", "What was removed", [paragraph(text), paragraph(held)])


def _trade(run: Record, target: float) -> Section:
    drawn = [(run_radar(run, target), "Further out is better in every corner.")]
    if run.kept:
        points = run_tradeoff(run, target, sum(run.kept.values()) / len(run.kept))
        drawn.insert(0, (points, "The best corner is at the top right: on target, and nothing lost."))
    return Section("trade", "Trade-off", "Forgetting against keeping", [Figures(drawn)])


def _movement(rankings: Rankings) -> Section:
    when = "before, after and at their places" if rankings.places else "before and after"
    shown = Figures([
        (run_rank_changes(rankings), f"Ranks of forgotten documents {when}, in the lists as shown below."),
        (score_histograms(rankings), "Each kind as a share of itself. Kept: relevant and not removed."),
    ])  # fmt: skip
    return Section("movement", "Ranks and scores", "How documents moved", [shown])


def _time(run: Record) -> Section:
    epoch = run.learning_epoch
    text = (
        f"The run took {duration(run.seconds)} and {run.epochs:g} epochs of its own. One epoch of training on all data "
        f"takes {duration(epoch.seconds)} here ({epoch.how}); retraining takes at least one. The dashed line is one."
    )
    shown = Figures([(run_time(run), "The parts of that time.")])
    return Section("time", "Time", "Time against training anew", [paragraph(text), shown])


def _making(run: Record) -> Section:
    made = {
        "method": run.method, "ranker": run.ranker, "base": run.base, "seed": run.seed,
        "target": f"{run.target_name} ({run.target:.4f})" if run.target is not None else "none",
        "device": run.device, "collection": run.collection.name,
        "collection's fingerprint": run.collection.fingerprint,
    }  # fmt: skip
    tables = {"Run": made, "Settings": run.settings, "Versions": run.versions, "Files (SHA-256)": run.hashes}
    return Section("making", "Making", "How it was made", [facts(name, rows) for name, rows in tables.items() if rows])
