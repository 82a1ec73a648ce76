"""The gates: what a new ranker must show before a request is fulfilled.

All requests of a run are judged together by the target, what is kept, and the audit. A run can reach its target on
average while one request has not moved, so each request is also judged by itself: by the ranks of its own pairs before
and after the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unrank.audit.audit import OF_MEMORY
from unrank.audit.verdict import Verdict
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import named
from unrank.desk.request import Item, removal_of
from unrank.evaluation.scorecard import Scorer
from unrank.forgetting.outcome import Findings, Judgement, judge, pair_ranks, ranks_of
from unrank.forgetting.target import tolerance
from unrank.parse import parse
from unrank.record import RETRAIN, ROUNDING, PreviousMrr, Record

UNTOUCHED = "nothing had to be changed, and no weight was"


@dataclass(frozen=True)
class TestResult:
    """The verdict of one test in an audit file."""

    verdict: str
    words: str = ""


@dataclass(frozen=True)
class AuditResult:
    """The verdicts of an audit file."""

    verdict: str
    tests: Mapping[str, TestResult]

    @classmethod
    def of(cls, value: Any) -> AuditResult:
        found: AuditResult = parse(cls, value, "audit")
        return found


@dataclass(frozen=True)
class Gate:
    """One condition, whether it was met, and why."""

    name: str
    passed: bool
    words: str


def gates(
    record: Record,
    audit: AuditResult,
    default_target: float | None,
    keep_at_least: float | None,
    strict: bool,
) -> list[Gate]:
    """Judge the target, what is kept, and the audit, by the files of a run.

    `default_target` is the forget MRR that the default target means for this run; `None` if it cannot be measured.
    """
    return [
        _target(record, default_target),
        *([_earlier(record.earlier)] if record.earlier else []),
        *([] if keep_at_least is None else [_kept(record, keep_at_least)]),
        _audited(audit, strict),
    ]


def _target(record: Record, default: float | None) -> Gate:
    """Judge the target. A target above the default asks for less than forgetting, so reaching it shows nothing.

    A retrained ranker never saw what is removed, so it has no target to reach.
    """
    now, target = record.after["forget"], record.target
    assert target is not None
    goal = f"the forget MRR is {now.mrr:.3f}, the target was {target:.3f}"
    if default is None:
        return Gate("target", False, f"{goal}; the default target cannot be measured here, so it shows nothing")
    if target > default + ROUNDING:
        return Gate("target", False, f"{goal}, above the default of {default:.3f}: reaching it shows no forgetting")
    if record.method == RETRAIN:
        return Gate("target", True, f"retrained without it, to no target: {goal}")
    if record.reached is False or now.mrr > target + tolerance(now.queries):
        return Gate("target", False, f"not reached: {goal}")
    return Gate("target", True, f"{goal}; {UNTOUCHED}" if not record.epochs else goal)


def _earlier(mrr: PreviousMrr) -> Gate:
    return Gate("earlier", not mrr.came_back, str(mrr))


def _kept(record: Record, least: float) -> Gate:
    shares = record.kept
    words = ", ".join(f"{name} {share:.3f}" for name, share in shares.items()) or "there is no kept set to measure"
    return Gate("kept", all(share >= least for share in shares.values()), f"{words}; at least {least:g} was asked for")


def _audited(audit: AuditResult, strict: bool) -> Gate:
    """Judge the audit. If a test of memory cannot tell, nothing is shown."""
    unknown = [name for name in OF_MEMORY if audit.tests[name].verdict == Verdict.UNKNOWN]
    lost = audit.tests["retention"].verdict == Verdict.LOST
    if unknown:
        why = audit.tests[unknown[0]].words
        return Gate("audit", False, f"in all: {audit.verdict}; cannot be known by {', '.join(unknown)}: {why}")
    if strict:
        words = (
            f"{audit.verdict}{'; something else was lost' if lost else ''}; --strict allows no difference and no loss"
        )
        return Gate("audit", audit.verdict == Verdict.INDISTINGUISHABLE and not lost, words)
    return Gate("audit", audit.verdict != Verdict.REMEMBERED, f"in all: {audit.verdict}")


def request_results(
    collection: Collection,
    items: Mapping[int, Sequence[Item]],
    before: Scorer,
    after: Scorer,
    target: float,
    findings: Findings,
) -> dict[int, Judgement]:
    """Rank the training pairs of every request by the scores before and after, and judge each by itself."""
    pairs_of = {id: collection.pairs[named(collection, removal_of(these))[0]] for id, these in items.items()}
    pairs = np.unique(np.concatenate(list(pairs_of.values())), axis=0)
    ranks = np.stack([pair_ranks(collection, pairs, score) for score in (before, after)])
    keys = collection.pair_keys(pairs)
    order = np.argsort(keys)

    def result(own: Pairs) -> Judgement:
        place = order[np.searchsorted(keys, collection.pair_keys(own), sorter=order)]
        return judge(ranks_of(collection, own, ranks[:, place], target), findings)

    return {id: result(own) for id, own in pairs_of.items()}
