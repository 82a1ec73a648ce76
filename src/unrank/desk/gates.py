"""The gates: what a new ranker must show before a request counts as fulfilled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unrank.audit.verdict import Verdict

KEPT = ("entangled", "disjoint", "test")


@dataclass(frozen=True)
class Gate:
    name: str
    passed: bool
    words: str


def gates(record: Mapping[str, Any], audit: Mapping[str, Any], keep_at_least: float | None, strict: bool) -> list[Gate]:
    """The target, what is kept, and what the audit found, by the files that the run left."""
    reached = record["reached"] is not False
    goal = f"the forget MRR is {record['after']['forget']['mrr']:.3f}, the target was {record['target']:.3f}"
    return [
        Gate("target", reached, goal if reached else f"not reached: {goal}"),
        *([] if keep_at_least is None else [_kept(record, keep_at_least)]),
        _audited(audit, strict),
    ]


def shares_kept(record: Mapping[str, Any]) -> dict[str, float]:
    """What each kept set has left of its MRR."""
    sets = {name: (record["before"].get(name), record["after"].get(name)) for name in KEPT}
    return {name: now["mrr"] / was["mrr"] for name, (was, now) in sets.items() if was and now and was["mrr"] > 0}


def _kept(record: Mapping[str, Any], least: float) -> Gate:
    shares = shares_kept(record)
    words = ", ".join(f"{name} {share:.3f}" for name, share in shares.items()) or "there is no kept set to measure"
    return Gate("kept", all(share >= least for share in shares.values()), f"{words}; at least {least:g} was asked for")


def _audited(audit: Mapping[str, Any], strict: bool) -> Gate:
    verdict = Verdict(audit["verdict"])
    lost = audit["tests"]["retention"]["verdict"] == Verdict.LOST
    if strict:
        words = f"{verdict}{'; something else was lost' if lost else ''}; --strict asks for no difference and no loss"
        return Gate("audit", verdict is Verdict.INDISTINGUISHABLE and not lost, words)
    return Gate("audit", verdict is not Verdict.REMEMBERED, f"in all: {verdict}")
