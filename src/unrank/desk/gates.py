"""The gates: what a new ranker must show before a request counts as fulfilled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unrank.audit.audit import OF_MEMORY
from unrank.audit.verdict import Verdict
from unrank.forgetting.target import tolerance
from unrank.record import RETRAIN, PreviousMrr, Record

ROUNDING = 1e-9
UNTOUCHED = "nothing had to be changed, and no weight was"


@dataclass(frozen=True)
class Gate:
    name: str
    passed: bool
    words: str


def gates(
    record: Record,
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
        *([_earlier(record.earlier)] if record.earlier else []),
        *([] if keep_at_least is None else [_kept(record, keep_at_least)]),
        _audited(audit, strict),
    ]


def _target(record: Record, default: float | None) -> Gate:
    """Hold every method to the target, but not one that trained anew: its ranker never saw what is removed.

    A target above the default asks for less than forgetting, so reaching it shows nothing.
    """
    now, target = record.after["forget"], record.target
    assert target is not None
    goal = f"the forget MRR is {now.mrr:.3f}, the target was {target:.3f}"
    if default is None:
        return Gate("target", False, f"{goal}; the default target cannot be measured here, so it shows nothing")
    if target > default + ROUNDING:
        return Gate("target", False, f"{goal}, above the default of {default:.3f}: reaching it shows no forgetting")
    if record.method == RETRAIN:
        return Gate("target", True, f"trained anew without it, to no target: {goal}")
    if record.reached is False or now.mrr > target + tolerance(now.queries):
        return Gate("target", False, f"not reached: {goal}")
    return Gate("target", True, f"{goal}; {UNTOUCHED}" if not record.epochs else goal)


def _earlier(mrr: PreviousMrr) -> Gate:
    return Gate("earlier", not mrr.came_back, str(mrr))


def _kept(record: Record, least: float) -> Gate:
    shares = record.kept
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
