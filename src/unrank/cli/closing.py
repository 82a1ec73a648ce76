"""The closing sentence of `forget`: what was achieved, and what was not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unrank.cli.show import duration, epochs_of
from unrank.errors import count
from unrank.report.wording import places_found

if TYPE_CHECKING:
    from unrank.forgetting.forget import Forgotten
    from unrank.record import PairRanks, PlacesFound, Record

FIRST = 10
"""The places of a list that a reader looks at."""
BEFORE = "this ranker has forgotten all of it before"


def closing(result: Forgotten, out: Path | None) -> str:
    """Return in one sentence what was and what was not achieved."""
    from unrank.forgetting.target import beyond_of

    record, most = result.record, beyond_of(result.record.target_name)
    saved = f"written to {out}"
    if not record.changed:
        saved = f"saved unchanged to {out}"
    elif not result.reached:
        saved = f"the best model was {saved}"
    if record.places is not None:
        said = _by_place(result, record.places)
    else:
        said = _by_mean(result) if most is None else _by_pair(result, most)
    return f"{said}; {saved}"


def _forgotten_before(result: Forgotten) -> bool:
    """Return whether an earlier run had forgotten it, so that nothing was done."""
    return result.fulfilled and result.state not in ("nothing to forget", "not forgotten")


def _by_mean(result: Forgotten) -> str:
    record, goal = result.record, f"the target of {result.target:.3f}"
    took, left = f"{epochs_of(record.epochs)}, {duration(record.seconds)}", _left_high(result.judgement.ranks)
    assert result.after.forget is not None
    mrr, queries = result.after.forget.mean, len(result.after.forget.queries)
    done = _done(record)
    if _forgotten_before(result):
        return f"{done}: {BEFORE}{left}"
    if record.reached is None:
        return f"{record.method} has no target; {took}{left}"
    if not record.epochs:
        return f"{done}: the forget MRR is at or below {goal} {'with that' if record.changed else 'already'}{left}"
    if not result.reached:
        return f"{goal} was not reached in {took}{left}"
    if mrr > result.target:
        allowed = f"for {count(queries, 'forget query')} the tolerance is {result.tolerance:.3f}"
        goal = f"{mrr:.3f}, which counts as {goal} ({allowed}),"
    return f"the forget MRR was brought to {goal} in {took}{left}"


def _by_place(result: Forgotten, places: PlacesFound) -> str:
    """Say how near the pairs are to their places, how those were found, and how many pairs stand too high."""
    took, ranks = f"{epochs_of(result.record.epochs)}, {duration(result.record.seconds)}", result.judgement.ranks
    high = f"{ranks.too_high:,} of {count(ranks.pairs, 'pair')}" if ranks.too_high else "no pair"
    high += (
        " is ranked higher than its place allows"
        if ranks.too_high < 2
        else " are ranked higher than their places allow"
    )
    if ranks.may_exceed:
        high += f", where up to {ranks.may_exceed:,} may be by chance"
    if not result.record.epochs:
        before = f"{BEFORE}; " if _forgotten_before(result) else ""
        return f"{_done(result.record)}: {before}{high}; {places_found(places)}"
    near = (
        f"the reciprocal ranks of the forget queries are {places.distance_after:.3f} from those of their places on "
        f"average, {places.distance_before:.3f} before, after {took}"
    )
    return f"{near}; {high}; {places_found(places)}"


def _by_pair(result: Forgotten, most: int) -> str:
    """Say how many pairs are where `beyond:K` wants them, and which lists are too short for it."""
    ranks, took = result.judgement.ranks, f"{epochs_of(result.record.epochs)}, {duration(result.record.seconds)}"
    short = sum(pair.entries <= most for pair in ranks.each)
    end = f"; {count(short, 'pair')} in a list of {most} or fewer entries had to go to its end" if short else ""
    if ranks.too_high:
        limit = f", because {result.limited}" if result.limited else ""
        missed = f"{ranks.too_high:,} of {count(ranks.pairs, 'pair')} still among the first {most} of the list"
        return f"the target beyond:{most} was not reached in {took}{limit}: {missed}{end}"
    place = f"no forget pair is among the first {most} of its list"
    if short:
        last = f"last in a list of {most} or fewer entries"
        place = (
            f"{place}, except {count(short, 'pair')} {last}" if short < ranks.pairs else f"every forget pair is {last}"
        )
    if result.record.epochs:
        return f"{place}, after {took}"
    return f"{_done(result.record)}: {place}"


def _done(record: Record) -> str:
    """Say what a run without an epoch did."""
    return "only rows of the vocabulary were set back" if record.changed else "nothing was done"


def _left_high(ranks: PairRanks) -> str:
    """Name the pairs that are still among the first of their lists, which a mean allows."""
    high = sum(pair.after <= FIRST < pair.entries for pair in ranks.each)
    if not high:
        return ""
    are = "is" if high == 1 else "are"
    return f", but {high:,} of {count(ranks.pairs, 'pair')} {are} still among the first {FIRST} of the list"


def index_state(record: Record) -> str:
    """Say whether document vectors that were stored before can still be used."""
    if not record.index_valid:
        return (
            "document vectors that were stored with the old ranker are stale: encode the collection again, without "
            "removed documents; for a bi-encoder 'unrank index update' does that"
        )
    return (
        "document vectors that were stored with the old ranker stay valid: only the query side has moved; "
        "delete those of removed documents ('unrank index update' for a bi-encoder); "
        "use encode_query() for queries and encode_document() for documents, never plain encode()"
    )
