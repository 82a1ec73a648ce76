"""The gates: what a new ranker must show before a request is fulfilled.

All requests of a run are judged together by the target, what is kept, and the audit. A run can reach its target on
average while one request has not moved, so each request is also judged by itself: by the ranks of its own pairs before
and after the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unrank.audit.audit import OF_MEMORY
from unrank.audit.comparison import MIN_QUERIES, Json
from unrank.audit.verdict import Verdict
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import named
from unrank.collection.texts import Rows
from unrank.desk.request import Item, removal_of
from unrank.errors import count
from unrank.evaluation.scorecard import Scorer
from unrank.forgetting.target import tolerance
from unrank.parse import parse
from unrank.record import RETRAIN, PreviousMrr, Record

ROUNDING = 1e-9
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


@dataclass(frozen=True)
class RequestResult:
    """The ranks of one request's training pairs before and after a run. It names no query and no document."""

    queries: int
    ranks_before: list[int]
    ranks_after: list[int]
    """In the same order: pair by pair."""
    mrr_before: float
    mrr_after: float
    target: float
    retrained: bool = False
    """Whether the new ranker was retrained without the request: then it has no target to reach."""

    @property
    def had_to_move(self) -> bool:
        return self.mrr_before > self.target and not self.retrained

    @property
    def unmoved(self) -> int:
        """The number of pairs that were ranked above the target and are ranked no lower now."""
        pairs = zip(self.ranks_before, self.ranks_after, strict=True)
        return sum(1 / before > self.target and after <= before for before, after in pairs)

    @property
    def forgotten(self) -> bool:
        """Whether the request moved as far as it had to.

        The mean of fewer than `MIN_QUERIES` queries says little, so there each pair must have fallen.
        """
        if not self.had_to_move:
            return True
        if self.queries >= MIN_QUERIES:
            return self.mrr_after <= self.target + tolerance(self.queries)
        return not self.unmoved

    @property
    def words(self) -> str:
        change = f"MRR {self.mrr_before:.3f} before, {self.mrr_after:.3f} after, target {self.target:.3f}"
        if self.forgotten:
            return change
        if not self.unmoved:
            return f"all pairs that had to fall did, but not far enough; {change}"
        pairs = count(len(self.ranks_before), "pair")
        return f"{self.unmoved} of {pairs} had to fall and did not; {change}"

    def to_json(self) -> Json:
        return {**asdict(self), "pairs": len(self.ranks_before), "unmoved": self.unmoved, "forgotten": self.forgotten}


def request_results(
    collection: Collection,
    items: Mapping[int, Sequence[Item]],
    before: Scorer,
    after: Scorer,
    target: float,
    retrained: bool,
) -> dict[int, RequestResult]:
    """Rank the training pairs of every request by the scores before and after."""
    pairs_of = {id: collection.pairs[named(collection, removal_of(these))[0]] for id, these in items.items()}
    pairs = np.unique(np.concatenate(list(pairs_of.values())), axis=0)
    ranks = np.stack([pair_ranks(collection, pairs, score) for score in (before, after)])
    keys = collection.pair_keys(pairs)
    order = np.argsort(keys)

    def result(own: Pairs) -> RequestResult:
        then, now = ranks[:, order[np.searchsorted(keys, collection.pair_keys(own), sorter=order)]]
        queries = len(np.unique(own[:, 0]))
        return RequestResult(queries, then.tolist(), now.tolist(), _mrr(own, then), _mrr(own, now), target, retrained)

    return {id: result(own) for id, own in pairs_of.items()}


def pair_ranks(collection: Collection, pairs: Pairs, score: Scorer) -> Rows:
    """Rank each pair among its query's negatives; a tie is decided for the pair."""
    negatives = collection.negatives.pairs(np.unique(pairs[:, 0]))
    scores = score(np.concatenate([pairs, negatives]))
    own, others = scores[: len(pairs)], scores[len(pairs) :]
    order = np.lexsort((others, negatives[:, 0]))
    queries, others = negatives[order, 0], others[order]
    starts, ends = (np.searchsorted(queries, pairs[:, 0], side) for side in ("left", "right"))
    above = [
        end - start - np.searchsorted(others[start:end], mine, "right")
        for start, end, mine in zip(starts, ends, own, strict=True)
    ]
    return np.array(above, np.int64) + 1


def _mrr(pairs: Pairs, ranks: Rows) -> float:
    """Return the mean over queries of the reciprocal rank of each query's best pair."""
    queries, owner = np.unique(pairs[:, 0], return_inverse=True)
    best = np.zeros(len(queries))
    np.maximum.at(best, owner, 1 / ranks)
    return float(best.mean())
