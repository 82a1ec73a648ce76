"""The sentences of a certificate about places. They must be true of one pair, of an estimate, and of no change."""

from __future__ import annotations

from dataclasses import replace

from unrank.desk.predicate import OwnFigures, PlacesPart, RankerPart
from unrank.desk.request import State
from unrank.errors import count
from unrank.forgetting.outcome import had_to_move, show_little, why_little
from unrank.forgetting.target import NEAR, SPREAD
from unrank.parse import parse
from unrank.record import PairRank, PairRanks, PlacesFound
from unrank.report.wording import places_found

ESTIMATED = "Where its pairs belong could only be estimated, because no ranker that never saw them was there to ask"
AT_PLACE = "about where a ranker that never saw it would place it, or lower"


def is_estimated(ranker: RankerPart) -> bool:
    """Return whether the places of a run were estimated without a proxy."""
    return "places" in ranker["done"] and not ranker["done"]["places"]["proxies"]


def is_unclear(ranker: RankerPart) -> bool:
    """Return whether places show little, because unseen pairs do not keep to theirs or were not there."""
    ranks = ranks_of(ranker["measured"]["request"])
    return "places" in ranker["done"] and show_little(ranks, _unseen_above(ranker["done"]["places"]))


def _unseen_above(places: PlacesPart) -> float | None:
    """Return the share of unseen pairs above their places; `None` if it was not measured. Older files have a guess."""
    return places.get("above") if places["proxies"] and places["calibrated_on"] else None


def by_places(ranker: RankerPart) -> str:
    """Say how the pairs stand to their places; before anything else, if those are estimates or show little."""
    said = _by_places(ranks_of(ranker["measured"]["request"]), State(ranker["state"]))
    if is_estimated(ranker):
        return f"{ESTIMATED}. By that estimate, {said[0].lower()}{said[1:]}"
    if is_unclear(ranker):
        why = why_little(_unseen_above(ranker["done"]["places"]))
        return f"Its places show little, because {why}. By these, {said[0].lower()}{said[1:]}"
    return said


def _by_places(ranks: PairRanks, state: State) -> str:
    now, pairs = ranks.too_high, count(ranks.pairs, "pair")
    chance = f"ranked higher than places allow, where up to {ranks.may_exceed:,} may be by chance"
    if had_to_move(ranks):
        if not now:
            return f"Every pair is {AT_PLACE}"
        return f"{now:,} of {pairs} {'is' if now == 1 else 'are'} {chance}; every other pair is {AT_PLACE}"
    before = sum(ranks.had_to_fall)
    why = "" if state is State.NOTHING_TO_FORGET else ", so nothing had to fall"
    if not (before or now):
        return f"Every pair stood, and stands, {AT_PLACE}{why}"
    both = f"{before:,} of {pairs} were, and {now:,} are now, {chance}"
    return f"{both}; every other pair stood, and stands, {AT_PLACE}{why}"


def first_of(own: OwnFigures) -> list[str]:
    """Count the pairs that are first in their lists: a ranker that never saw a pair may put it there too."""
    first = sum(pair.after == 1 < pair.entries for pair in ranks_of(own).each) if own.get("places") else 0
    which = "is the first of its list" if first == 1 else "are the first of their lists"
    return [f"{first:,} of {count(own['pairs'], 'pair')} {which}"] if first else []


def risen(own: OwnFigures) -> list[str]:
    """Count the pairs that are ranked higher now than before: the place of a pair may be higher than it stood."""
    higher = sum(pair.after < pair.before for pair in ranks_of(own).each) if own.get("places") else 0
    are = "is" if higher == 1 else "are"
    return [f"{higher:,} of {count(own['pairs'], 'pair')} {are} ranked higher now than before"] if higher else []


def how_found(part: PlacesPart) -> str:
    """Say what places are, how they were found, and how sure they are."""
    spread = part.get("spread", 0.0)
    facts = PlacesFound(part["proxies"], part["source"], part["epochs"], part["calibrated_on"], spread)
    found = places_found(replace(facts, calibrated_by=part.get("calibrated_by")))
    meaning = "The target was places: for each pair about where a ranker that never saw it, a proxy, would place it."
    if not part["proxies"]:
        return (
            f"{meaning} There was none to ask, so {found}: by how the ranker places what it was trained on and what it "
            "was not. How far off they may be is not known."
        )
    if "made" in part["source"]:
        meaning += " The one made for this run was trained without the request, and is deleted."
    sure = "How far off they may be is not known: there were too few pairs that no ranker had seen to calibrate on."
    if part["calibrated_on"]:
        made = part.get("calibrated_by") == "openings"
        queries = "queries that were made of documents" if made else "queries that no ranker had seen"
        tried, by = ("They were tried", "the proxies") if made else ("They were calibrated", "the calibration")
        if part["source"] == "reference":
            tried, by = "It was tried", "it"
        sure = (
            f"{tried} on {count(part['calibrated_on'], 'pair')} of {queries}. Of 100 such pairs, "
            f"{100 * SPREAD:.0f} stood at most {spread:.2f} of the range of their list's scores above where {by} put "
            "them."
        )
    return f"{meaning} {found[0].upper()}{found[1:]}. {sure}"


def one_pair(pair: PairRank) -> str:
    """Give the ranks of one pair, and its place, if it has one."""
    place = "" if pair.place is None else f"\xa0(place\xa0{pair.place:,})"
    return f"{pair.before:,}\xa0→\xa0{pair.after:,}\xa0of\xa0{pair.entries:,}{place}"


def mean_of_places(own: OwnFigures) -> str:
    """Give the mean of the places, and the rule by which a pair is at its own; nothing if there are none."""
    if not own.get("places"):
        return ""
    return (
        f"; that of the places is {own['target']:.3f}. A pair counts as at its place, or below, if its reciprocal rank "
        f"is at most {NEAR} above that of the place"
    )


def ranks_of(own: OwnFigures) -> PairRanks:
    """Return the ranks of a request's pairs, as its certificate has them."""
    found: PairRanks = parse(PairRanks, own, "ranks")
    return found
