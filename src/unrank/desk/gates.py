"""The gates: what a new ranker must show before a request counts as fulfilled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unrank.audit.verdict import Verdict
from unrank.evaluation.scorecard import shares_kept
from unrank.forgetting.record import ANEW
from unrank.forgetting.stand import came_back, in_words
from unrank.forgetting.target import tolerance

UNTOUCHED = "nothing had to be changed, and no weight was"


@dataclass(frozen=True)
class Gate:
    name: str
    passed: bool
    words: str


def gates(record: Mapping[str, Any], audit: Mapping[str, Any], keep_at_least: float | None, strict: bool) -> list[Gate]:
    """The target, what is kept, and what the audit found, by the files that the run left."""
    return [
        _target(record),
        *([_earlier(record["earlier"])] if record.get("earlier") else []),
        *([] if keep_at_least is None else [_kept(record, keep_at_least)]),
        _audited(audit, strict),
    ]


def _target(record: Mapping[str, Any]) -> Gate:
    """A method without a target is held to it all the same, unless it trained anew: then it saw nothing of it."""
    now = record["after"]["forget"]
    goal = f"the forget MRR is {now['mrr']:.3f}, the target was {record['target']:.3f}"
    if record["method"] == ANEW:
        return Gate("target", True, f"trained anew without it, to no target: {goal}")
    if record["reached"] is False or now["mrr"] > record["target"] + tolerance(now["queries"]):
        return Gate("target", False, f"not reached: {goal}")
    return Gate("target", True, f"{goal}; {UNTOUCHED}" if is_untouched(record) else goal)


def is_untouched(record: Mapping[str, Any]) -> bool:
    """Whether the run left every weight as it was, because the ranker had forgotten enough already."""
    return not record["epochs"]


def _earlier(mrrs: Mapping[str, float | None]) -> Gate:
    return Gate("earlier", not came_back(mrrs), in_words(mrrs))


def kept_of(record: Mapping[str, Any]) -> dict[str, float]:
    """What each kept set has left of its MRR."""
    before, after = ({name: of["mrr"] for name, of in record[side].items() if of} for side in ("before", "after"))
    return shares_kept(before, after)


def _kept(record: Mapping[str, Any], least: float) -> Gate:
    shares = kept_of(record)
    words = ", ".join(f"{name} {share:.3f}" for name, share in shares.items()) or "there is no kept set to measure"
    return Gate("kept", all(share >= least for share in shares.values()), f"{words}; at least {least:g} was asked for")


def _audited(audit: Mapping[str, Any], strict: bool) -> Gate:
    verdict = Verdict(audit["verdict"])
    lost = audit["tests"]["retention"]["verdict"] == Verdict.LOST
    if strict:
        words = f"{verdict}{'; something else was lost' if lost else ''}; --strict asks for no difference and no loss"
        return Gate("audit", verdict is Verdict.INDISTINGUISHABLE and not lost, words)
    return Gate("audit", verdict is not Verdict.REMEMBERED, f"in all: {verdict}")
