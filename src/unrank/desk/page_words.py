"""The sentences of a certificate's first sheet. They must be true of one query, of no change, and of every method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from unrank.audit.verdict import MEANING
from unrank.desk.gates import AuditResult, TestResult, untold_by
from unrank.desk.page_places import (
    by_places,
    first_of,
    how_found,
    mean_of_places,
    one_pair,
    ranks_of,
    risen,
)
from unrank.desk.predicate import Closing, Done, OwnFigures, OwnSubstitutes, Predicate, RankerPart
from unrank.desk.request import State
from unrank.errors import count
from unrank.evaluation.bootstrap import MIN_QUERIES
from unrank.forgetting.outcome import had_to_move
from unrank.forgetting.target import OF_REFERENCE, beyond_of
from unrank.record import RETRAIN
from unrank.report.wording import listing

PAIRS_SHOWN = 12
ROWS = "rows of the vocabulary that only removed texts touch"
FIRST = 10
"""The places of a list that a reader looks at."""

OF_UNSEEN = ("test-mrr", "half-unseen")
"""The targets that ask for no more than what the ranker never saw has."""
TARGETS = {
    "test-mrr": "to rank it as the ranker ranks what it never saw",
    "destination-1": "to rank it as a ranker that was trained without it does",
}


@dataclass(frozen=True)
class Wording:
    """The words of one state."""

    kind: str
    verdict: str
    limit: str
    """What was not achieved."""
    estimated: str = ""
    """The verdict if places could only be estimated, where another one is needed."""
    by_target: str = ""
    """The verdict if the target was `beyond:K`, where another one is needed."""


WORDING = {
    State.FORGOTTEN: Wording(
        "Certificate of forgetting",
        "Request {} is forgotten: it was fulfilled.",
        "traces that are smaller than the tests can find may be left",
    ),
    State.NOT_VERIFIABLE: Wording(
        "Certificate of forgetting that cannot be verified",
        "Request {} is forgotten, not verifiable.",
        "nobody can say whether a trace is left",
    ),
    State.NOT_CLEARED: Wording(
        "Certificate of forgetting with weights that were not cleared",
        "Request {} is forgotten, weights not cleared.",
        "weights that only removed texts touch could not be reset, so single words of these texts may be read off them",
    ),
    State.WHILE_ADAPTED: Wording(
        "Statement about an adapter; this is not a certificate of fulfilment",
        "Request {} is forgotten while the adapter is on, and only then.",
        "the ranker below the adapter was not changed and remembers all of it",
    ),
    State.NOTHING_TO_FORGET: Wording(
        "Statement of finding; this is not a certificate of fulfilment",
        "Request {}: there was nothing to forget.",
        "no weight was changed",
        "Request {}: by an estimate, there was nothing to forget.",
        "Request {}: by the target of its run, there was nothing to forget.",
    ),
}


def named(value: Predicate) -> str:
    return listing([count(number, kind) for kind, number in value["request"]["named"].items() if number])


def what_was_asked(value: Predicate) -> str:
    request = value["request"]
    settled = max(ranker["settled"][:10] for ranker in value["rankers"])
    late = (date.fromisoformat(settled) - date.fromisoformat(request["due"])).days
    number = request.get("substitutes", 0)
    new = f", and that another document take the place of {number:,} of its documents" if number else ""
    when = f"it was settled on {settled}" + (f", {count(late, 'day')} late" if late > 0 else "")
    return (
        f"On {request['received']} somebody asked that the ranker, the model that orders the results of a search, "
        f"forget {named(value)}{new} (ground: {request['basis'].replace('-', ' ')}). The answer was due on "
        f"{request['due']}; {when}. Neither the person nor the texts are named here: a keyed commitment in the signed "
        "file lets the owner of the key show that it is about a given text ('unrank desk match')."
    )


def _whose(ranker: RankerPart) -> str:
    """Begin a sentence about one ranker; if only one is there, it needs no name."""
    return f"Ranker {ranker['name']}: " if ranker["name"] else ""


def achieved(ranker: RankerPart) -> str:
    """Say in one sentence what was achieved and what was not."""
    state, done, own = State(ranker["state"]), ranker["done"], ranker["measured"]["request"]
    if state is State.NOTHING_TO_FORGET:
        high = [*(_left_high(own) or first_of(own)), *risen(own)]
        still = f" {listing(high)}." if high else ""
        return f"{_whose(ranker)}{_reached(ranker)}, and {_changed(ranker)}.{still}"
    limits = [*_left_high(own), *risen(own), *_untested(ranker), WORDING[state].limit]
    if not done.get("epochs"):
        limits.insert(0, "this run trained nothing")
    return f"{_whose(ranker)}{_reached(ranker)}, but {listing(limits)}."


def _changed(ranker: RankerPart) -> str:
    """Say which weights a run changed that found nothing to forget."""
    if "method" not in ranker["done"]:
        return WORDING[State.NOTHING_TO_FORGET].limit
    if ranker["done"]["vocabulary"] == "reset" and not ranker["done"]["epochs"]:
        return f"only {ROWS} were reset"
    return "the run changed weights for other requests" if ranker["requests"] > 1 else "no training was needed for it"


def _reached(ranker: RankerPart) -> str:
    """Say what was achieved. The words must be true of the method, of few queries, and if nothing had to fall."""
    own, done = ranker["measured"]["request"], ranker["done"]
    on_average = own["queries"] >= MIN_QUERIES and not own.get("least_ranks")
    if done.get("never_seen"):
        return "The old ranker was trained without what the request names, as its record with the owner's seal shows"
    if own.get("places"):
        return by_places(ranker)
    if State(ranker["state"]) is State.NOTHING_TO_FORGET:
        if own.get("least_ranks"):
            return _was_beyond(ranker)
        if on_average:
            return f"On average the ranker placed what the request names no better than {_compared_with(done)}"
        return f"The ranker placed nothing that the request names better than {_compared_with(done)}"
    if done.get("method") == RETRAIN:
        return "The ranker was trained again without what the request names"
    if not had_to_move(ranks_of(own)):
        return "Nothing that the request names was ranked above the target, so nothing had to fall"
    if not done.get("epochs") and own["ranks_before"] == own["ranks_after"]:
        return "An earlier run had forgotten all of it"
    if own.get("least_ranks"):
        return f"Every pair is as low in its list as the target ({done['target_name']}) asks"
    if on_average:
        return "On average its pairs are ranked as low as the target asks"
    return "Every pair that was ranked above the target is ranked lower now"


def _was_beyond(ranker: RankerPart) -> str:
    """Say that no pair was among the first of its list: the target compares with nothing that the ranker never saw."""
    most, lengths = target_beyond(ranker), ranker["measured"]["request"]["list_lengths"]
    if most is None:
        return "Every pair was as low in its list as the target of the run asks"
    some_short = any(entries <= most for entries in lengths)
    short = f", except as the last of a list of {most:,} or fewer entries" if some_short else ""
    among = f"among the first {most:,} of its list{short}"
    return f"Nothing that the request names was {among}, which is all that the target asks"


def target_beyond(ranker: RankerPart) -> int | None:
    """Return the K of a target `beyond:K`; `None` if the target was another one."""
    return beyond_of(ranker["done"].get("target_name"))


def _compared_with(done: Done) -> str:
    """Say what the pairs of a run were compared with whose target was a mean."""
    name, unknown = done.get("target_name"), done.get("unknown_references")
    if name in OF_UNSEEN or unknown or not done["references"]:
        return "what it never saw"
    if name in OF_REFERENCE or unknown == 0:
        return "a reference, given as retrained without it, placed what the run named, on average"
    return "the target of the run asks"


def _untested(ranker: RankerPart) -> list[str]:
    """Say why a request is not verifiable. That its places show little was said before."""
    if State(ranker["state"]) is not State.NOT_VERIFIABLE:
        return []
    done, queries = ranker["done"], ranker["measured"]["request"]["queries"]
    unknown = done.get("unknown_references", 0)
    compared = ("places" in done and done["places"]["proxies"]) or (done["references"] and not unknown)
    few = f"{count(queries, 'query')} {'is' if queries == 1 else 'are'} too few to test its memory with"
    was = "was" if unknown == 1 else "were"
    return [
        *([few] if queries < MIN_QUERIES and not compared else []),
        *([f"nobody can show what {count(unknown, 'reference')} {was} trained on"] if unknown else []),
        *(["the audit could not tell"] if _is_untold(ranker) else []),
        *([] if done.get("unseen_measured", True) else ["what it never saw could not be measured"]),
    ]


def _is_untold(ranker: RankerPart) -> bool:
    """Return whether there was an audit that could not tell."""
    if (audit := ranker["audited"]) is None:
        return False
    tests = {name: TestResult(test["verdict"]) for name, test in audit["tests"].items()}
    return bool(untold_by(AuditResult(audit["verdict"], tests), (), ranker["done"]["vocabulary"] == "left"))


def _left_high(own: OwnFigures) -> list[str]:
    """Name the pairs that are still among the first of their lists."""
    pairs = zip(own["ranks_after"], own["list_lengths"], strict=True)
    high = sum(after <= FIRST < entries for after, entries in pairs)
    where = f"is still among the first {FIRST} of its list"
    if high > 1:
        where = f"are still among the first {FIRST} of their lists"
    return [f"{high:,} of {count(own['pairs'], 'pair')} {where}"] if high else []


def what_was_done(ranker: RankerPart) -> str:
    done, others = ranker["done"], ranker["requests"] - 1
    together = f", together with {count(others, 'other request')}" if others else ""
    since = f" It is in service since {ranker['in_service_since']}." if ranker["in_service_since"] else ""
    if "method" not in done:
        said = f"Run {ranker['run']} measured the ranker{together}. It changed no weight, so there is no new ranker."
        said += f" {_target(done)}" if "places" in done or target_beyond(ranker) is not None else ""
    elif done["method"] == RETRAIN:
        said = f"Run {ranker['run']} trained a new ranker without what the request names{together}, to no target."
    else:
        same = "" if done["epochs"] else " It trained nothing."
        said = f"Run {ranker['run']} made a new ranker from the old one with the method {done['method']}{together}."
        said += f"{same} {_target(done)} {_references(done['references'])}"
    copies = [f"{count(number, 'copy')} of what it names {what}" for what, number in done["copies"].items()]
    cleared = {None: "", "reset": f" The {ROWS} were reset.", "left": f" The {ROWS} could not be reset."}
    copied = f" In the collection: {listing(copies)}." if copies else ""
    return f"{_whose(ranker)}{said}{cleared[done['vocabulary']]}{copied}{since}"


def _target(done: Done) -> str:
    if "places" in done:
        return how_found(done["places"])
    if (most := beyond_of(done["target_name"])) is not None:
        return (
            f"The target was that no pair is among the first {most} of its list, or that it is last in a shorter one."
        )
    meaning = TARGETS.get(done["target_name"])
    name = f"The target was {done['target_name']}{f' ({meaning})' if meaning else ''}"
    if "target" not in done:  # it would tell of other requests
        return f"{name}, a mean reciprocal rank over all requests of the run."
    return f"{name}: a mean reciprocal rank of {done['target']:.3f}, where 1 is the top of every list."


def _references(number: int) -> str:
    if not number:
        return "There was no ranker retrained without the request to compare with."
    return f"It was compared with {count(number, 'reference')}, given as retrained without the request."


def what_was_measured(ranker: RankerPart) -> str:
    own, audit = ranker["measured"]["request"], ranker["audited"]
    ranks = sorted(ranks_of(own).each, key=lambda pair: (pair.after, pair.before))
    shown = "; ".join(map(one_pair, ranks[:PAIRS_SHOWN]))
    some = f" (the {PAIRS_SHOWN} that are ranked highest now; the signed file has all)" * (len(ranks) > PAIRS_SHOWN)
    worst = own["worst"]
    said = (
        f"The request has {count(own['pairs'], 'pair')} of a query and a document, over "
        f"{count(own['queries'], 'query')}. Rank 1 is the top of a query's list. Ranks before → now{some}: {shown}. "
        f"{own['changed']:,} of {own['pairs']:,} changed."
    )
    if worst:
        which, place = "the one ranked highest now", ""
        if "place" in worst:
            which, place = "the one highest above its place, or least below it", f", its place is {worst['place']:,}"
        said += (
            f" The worst pair, {which}, is at rank {worst['after']:,} of {worst['entries']:,}{place}; it was at rank "
            f"{worst['before']:,}. The mean reciprocal rank was {own['mrr_before']:.3f} and is {own['mrr_after']:.3f}"
            f"{mean_of_places(own)}."
        )
    if "substitutes" in ranker["measured"]:
        said += f" {_substituted(ranker['measured']['substitutes'])}"
    found = "There was no audit, because no weight was changed."
    if audit:
        of_all = "" if ranker["alone"] else " of everything that the run forgot"
        found = f"The audit{of_all} says: {audit['verdict']}. {MEANING.get(audit['verdict'], '')}".rstrip()
    return f"{_whose(ranker)}{said} {found}"


def _substituted(found: OwnSubstitutes) -> str:
    """Say where substitutes of removed documents stand. Nothing asks a ranker to find them first."""
    said = []
    if stand := found["stand"]:
        then, now = stand["before"], stand["after"]
        said.append(
            f"Where another document is to take the place of a removed one, in {count(now['pairs'], 'pair')}, its "
            f"median rank among documents that do not answer the query was {then['median_rank']:g} and is "
            f"{now['median_rank']:g}; it was first in {then['first']:,} and is first in {now['first']:,}; it stood "
            f"above the removed one in {then['above']:,} and stands above it in {now['above']:,}."
        )
    if number := found["left_out"]:
        said.append(f"{count(number, 'such document')} took no place in this run.")
    return " ".join(said)


def copies_found(rankers: Sequence[RankerPart]) -> str:
    """Say which copies the runs found on disk."""
    kinds: dict[str, int | None] = {}
    for ranker in rankers:
        for kind, number in ranker["copies"].items():
            kinds[kind] = None if number is None else (kinds.get(kind, 0) or 0) + number
    found = listing([kind if number is None else count(number, kind) for kind, number in kinds.items()])
    return f"The run found copies on its owner's disks ({found}); its ledger says where." if found else ""


def closing_found(closing: Closing) -> str:
    """Say what was found when the request was closed."""
    parts = {
        "deleted": closing.get("deleted"),
        "left": closing.get("left"),
        "not_checked": closing.get("not_checked"),
    }
    said = {
        name: listing([count(number, kind) for kind, number in kinds.items()]) for name, kinds in parts.items() if kinds
    }
    reason = str(closing.get("reason", "")).replace("-", " ")
    sentences = {
        "deleted": "{} no longer there, or without it",
        "left": f"{{}} left there (reason: {reason})",
        "not_checked": "{} not checked",
    }
    found = "; ".join(sentence.format(said[name]) for name, sentence in sentences.items() if name in said)
    return (
        f"The request was closed on {closing['at'][:10]}. Of the places that were known to hold it: {found}."
        if found
        else ""
    )
