"""The page of a certificate: one sheet in plain words, then an appendix with settings, tables and hashes.

Each state has its own heading, and the first sentence is the state.
"""

from __future__ import annotations

from collections.abc import Sequence

from unrank.audit.verdict import short
from unrank.desk.page_appendix import appendix
from unrank.desk.page_places import is_estimated
from unrank.desk.page_words import (
    WORDING,
    achieved,
    closing_found,
    copies_found,
    named,
    target_beyond,
    what_was_asked,
    what_was_done,
    what_was_measured,
)
from unrank.desk.predicate import Predicate
from unrank.desk.request import State
from unrank.record import PairRank
from unrank.report.page import Card, Markup, Page, Section, element, paragraph
from unrank.report.wording import listing

CHECK = "'unrank desk verify' on the folder of this page finds any change of its two files; with --ranker FOLDER it \
compares every file of a ranker with this certificate. Compare the public key with the one that its owner published."


def certificate_page(value: Predicate, public_key: str) -> Page:
    """Return the page of a certificate."""
    wording, rankers = WORDING[State(value["state"])], value["rankers"]
    unsure = wording.estimated and any(is_estimated(ranker) for ranker in rankers)
    verdict = wording.estimated if unsure else wording.verdict
    if wording.by_target and any(target_beyond(ranker) is not None for ranker in rankers):
        verdict = wording.by_target
    return Page(
        f"{wording.kind}, made on {value['made'][:10]} by {value['made_by']}",
        verdict.format(value["request"]["id"]),
        " ".join(achieved(ranker) for ranker in rankers),
        _cards(value),
        [
            Section("asked", "Asked", "What was asked", [paragraph(what_was_asked(value))]),
            Section("done", "Done", "What was done", [paragraph(what_was_done(ranker)) for ranker in rankers]),
            Section(
                "measured",
                "Measured",
                "What was measured for this request by itself",
                [paragraph(what_was_measured(ranker)) for ranker in rankers],
            ),
            Section("limits", "Not claimed", "What is not claimed", [_bullets(value["not_claimed"])]),
            _deleted(value),
            Section("check", "Check", "How to check this page", [paragraph(CHECK)]),
        ],
        appendix(value, public_key),
    )


def _cards(value: Predicate) -> list[Card]:
    own = [ranker["measured"]["request"] for ranker in value["rankers"]]
    every = [PairRank(**one["worst"]) for one in own if one["worst"]]
    lowest = min(every, key=lambda pair: pair.order, default=None)
    worst = f"rank {lowest.after:,} of {lowest.entries:,}" if lowest else "no pair"
    place = f", place {lowest.place:,}" if lowest and lowest.place is not None else ""
    before = f"rank {lowest.before:,} before{place}" if lowest else ""
    audits = {short(ranker["audited"]["verdict"]) for ranker in value["rankers"] if ranker["audited"]}
    changed, pairs = sum(one["changed"] for one in own), sum(one["pairs"] for one in own)
    return [
        Card("Asked to forget", named(value)),
        Card("Pairs that changed rank", f"{changed:,} of {pairs:,}"),
        Card("Worst pair now", worst, before),
        Card("Audit", listing(sorted(audits)) or "none", "" if audits else "no weight was changed"),
    ]


def _deleted(value: Predicate) -> Section:
    closing = value["request"]["closing"]
    text = copies_found(value["rankers"]) if closing is None else closing_found(closing)
    content = [paragraph(text) if text else None, _bullets(value["also_delete"])]
    return Section("delete", "Also delete", "What else must be deleted", content)


def _bullets(lines: Sequence[str]) -> Markup:
    return element("ul", {}, [element("li", {}, line) for line in lines])
