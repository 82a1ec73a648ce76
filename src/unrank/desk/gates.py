"""The gates: what a new ranker must show before a request counts as fulfilled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unrank.audit.audit import OF_MEMORY
from unrank.audit.verdict import Verdict
from unrank.evaluation.scorecard import shares_kept
from unrank.forgetting.record import ANEW
from unrank.forgetting.stand import came_back, in_words
from unrank.forgetting.target import tolerance

ROUNDING = 1e-9
UNTOUCHED = "nothing had to be changed, and no weight was"


@dataclass(frozen=True)
class Gate:
    name: str
    passed: bool
    words: str


def gates(
    record: Mapping[str, Any],
    audit: Mapping[str, Any],
    default_target: float | None,
    keep_at_least: float | None,
    strict: bool,
) -> list[Gate]:
    """Judge the target, what is kept, and what the audit found, by the files that the run left.

    `default_target` is the forget MRR that the run would have gone down to without a target of the user's; `None` if
    it cannot be measured.
    """
    return [
        _target(record, default_target),
        *([_earlier(record["earlier"])] if record.get("earlier") else []),
        *([] if keep_at_least is None else [_kept(record, keep_at_least)]),
        _audited(audit, strict),
    ]


def _target(record: Mapping[str, Any], default: float | None) -> Gate:
    """Hold every method to the target, but not one that trained anew: its ranker never saw what is removed.

    A target above the default asks for less than forgetting, so reaching it shows nothing.
    """
    now = record["after"]["forget"]
    goal = f"the forget MRR is {now['mrr']:.3f}, the target was {record['target']:.3f}"
    if default is None:
        return Gate("target", False, f"{goal}; the default target cannot be measured here, so it shows nothing")
    if record["target"] > default + ROUNDING:
        return Gate("target", False, f"{goal}, above the default of {default:.3f}: reaching it shows no forgetting")
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
    """Judge the audit. Where a test of memory says that nothing can be known, it has shown nothing."""
    verdict = Verdict(audit["verdict"])
    unknown = [name for name in OF_MEMORY if audit["tests"][name]["verdict"] == Verdict.UNKNOWN]
    lost = audit["tests"]["retention"]["verdict"] == Verdict.LOST
    if unknown:
        why = audit["tests"][unknown[0]]["words"]
        return Gate("audit", False, f"in all: {verdict}; cannot be known by {', '.join(unknown)}: {why}")
    if strict:
        words = f"{verdict}{'; something else was lost' if lost else ''}; --strict asks for no difference and no loss"
        return Gate("audit", verdict is Verdict.INDISTINGUISHABLE and not lost, words)
    return Gate("audit", verdict is not Verdict.REMEMBERED, f"in all: {verdict}")
