"""The gates: what a new ranker must show before a request is forgotten.

Some conditions are of the ranker: nothing that was forgotten before came back, and no more was lost than allowed. If
one is not met, the ranker is not for use. All others are of each request by itself. A run can reach its target on
average while one request has not moved. So each request is judged by the ranks of its own pairs before and after.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unrank.audit.audit import OF_MEMORY
from unrank.audit.verdict import OLD_ALIKE, OLD_UNKNOWN, Verdict
from unrank.audit.weights import WEIGHTS
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import named
from unrank.collection.texts import Rows
from unrank.desk.request import Item, removal_of
from unrank.errors import count
from unrank.evaluation.scorecard import Scorer
from unrank.forgetting.outcome import Findings, Judgement, judge, list_lengths, mrr, pair_ranks, ranks_of, rose
from unrank.forgetting.places import Places
from unrank.forgetting.target import beyond_of, least_ranks, tolerance
from unrank.parse import parse
from unrank.record import RETRAIN, ROUNDING, PairRanks, PreviousMrr, Record

UNTOUCHED = "nothing had to be changed, and no weight was"
OF_RANKER = ("earlier", "kept", "strict")
"""The gates that a ranker must pass to be used at all."""


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
    words: str = ""
    """The reason for the verdict; empty in files of version 1."""

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

    @property
    def bars_use(self) -> bool:
        """Whether the ranker is not for use because of it."""
        return not self.passed and self.name in OF_RANKER


@dataclass(frozen=True)
class Limits:
    """The conditions of the user's own: what each kept set must keep, and an audit without any difference or loss."""

    keep_at_least: float | None = None
    strict: bool = False


def gates(
    record: Record, audit: AuditResult, default_target: float | None, limits: Limits, doubts: Sequence[str] = ()
) -> list[Gate]:
    """Judge the target, what is kept, and the audit, by the files of a run.

    `default_target` is the forget MRR that the default target means for this run; `None` if it cannot be measured.
    `doubts` say why the provenance of a reference is unknown.
    """
    least = limits.keep_at_least
    return [
        _target(record, default_target),
        *([_earlier(record.earlier)] if record.earlier else []),
        *([] if least is None else [_kept(record, least)]),
        _audited(audit, doubts, bool(record.rows_left)),
        *([_strict(audit)] if limits.strict else []),
    ]


def _target(record: Record, default: float | None) -> Gate:
    """Judge the target. A target above the default asks for less than forgetting, so reaching it shows nothing."""
    now, target = record.after["forget"], record.target
    assert target is not None
    if record.places is not None and record.pairs is not None:
        return _placed(record.pairs)
    if beyond_of(record.target_name) is not None and record.pairs is not None:
        high = f"{record.pairs.too_high:,} of {count(record.pairs.pairs, 'pair')}"
        return Gate("target", not record.pairs.too_high, f"{high} ranked better than {record.target_name} allows")
    goal = f"the forget MRR is {now.mrr:.3f}, the target was {target:.3f}"
    if default is None:
        return Gate("target", False, f"{goal}; what is unseen cannot be measured here, so reaching it shows nothing")
    if asks_for_less(target, default):
        return Gate("target", False, f"{goal}, above the default of {default:.3f}: reaching it shows no forgetting")
    if record.method == RETRAIN:
        return Gate("target", True, f"retrained, so there is no target to reach: {goal}")
    if record.reached is False or now.mrr > target + tolerance(now.queries):
        return Gate("target", False, f"not reached: {goal}")
    return Gate("target", True, f"{goal}; {UNTOUCHED}" if not record.changed else goal)


def _placed(ranks: PairRanks) -> Gate:
    """Judge whether the pairs of all requests together are at their places."""
    said = f"in all {ranks.too_high:,} of {count(ranks.pairs, 'pair')} ranked higher than their places allow"
    if ranks.may_exceed:
        said += f", where up to {ranks.may_exceed:,} may be by chance"
    mean = f"the forget MRR is {ranks.mrr_after:.3f}, that of the places {ranks.target:.3f}"
    return Gate("target", not rose(ranks), f"{said}; {mean}")


def asks_for_less(target: float, default: float | None) -> bool:
    """Return whether a target is above the default one."""
    return default is not None and target > default + ROUNDING


def _earlier(mrr: PreviousMrr) -> Gate:
    return Gate("earlier", not mrr.came_back, str(mrr))


def _kept(record: Record, least: float) -> Gate:
    shares = record.kept
    words = ", ".join(f"{name} {share:.3f}" for name, share in shares.items()) or "there is no kept set to measure"
    return Gate("kept", all(share >= least for share in shares.values()), f"{words}; at least {least:g} was asked for")


def _audited(audit: AuditResult, doubts: Sequence[str], rows_left: bool) -> Gate:
    """Judge the audit. If a test of memory cannot tell, or nobody knows what a reference saw, nothing is shown."""
    if untold := untold_by(audit, doubts, rows_left):
        return Gate("audit", False, f"in all: {audit.verdict}; {untold}")
    return Gate("audit", audit.verdict != Verdict.REMEMBERED, f"in all: {audit.verdict}")


def untold_by(audit: AuditResult, doubts: Sequence[str], rows_left: bool = False) -> str:
    """Return why an audit cannot tell; empty if it can. The state itself says that rows were left."""
    if audit.verdict == Verdict.UNDECIDED:
        return "; ".join([*doubts, audit.words or "it could not decide"])
    unknown = [name for name in OF_MEMORY if name in audit.tests and audit.tests[name].verdict == OLD_UNKNOWN]
    unknown = [name for name in unknown if name != WEIGHTS or not rows_left]
    tests = [f"cannot be known by {', '.join(unknown)}: {audit.tests[unknown[0]].words}"] if unknown else []
    return "; ".join([*doubts, *tests])


def _strict(audit: AuditResult) -> Gate:
    lost = audit.tests["retention"].verdict == Verdict.LOST
    words = f"{audit.verdict}{'; something else was lost' if lost else ''}; --strict allows no difference and no loss"
    return Gate("strict", audit.verdict in (Verdict.EQUIVALENT, OLD_ALIKE) and not lost, words)


def findings(
    record: Record, audit: AuditResult, default_target: float | None, doubts: Sequence[str], has_reference: bool
) -> Findings:
    """Return the facts that hold for every request of a run."""
    assert record.target is not None
    remembered = f"the audit says: {audit.verdict}" if audit.verdict == Verdict.REMEMBERED else ""
    if beyond_of(record.target_name) is None and asks_for_less(record.target, default_target):
        above = f"the target of {record.target:.3f} is above the default of {default_target:.3f}"
        remembered = f"{above}, so it asks for less than forgetting"
    return Findings(
        weights_changed=record.changed,
        rows_left=record.rows_left,
        for_others=True,
        has_reference=has_reference or bool(record.places and record.places.proxies),
        default_known=default_target is not None,
        unseen_mrr=record.before["test"].mrr if "test" in record.before else None,
        remembered=remembered,
        untold=untold_by(audit, doubts, rows_left=bool(record.rows_left)),
        apart=record.adapter is not None,
        unseen_above=record.places.above if record.places else 0.0,
    )


@dataclass(frozen=True)
class RequestPairs:
    """The training pairs of each request of a run."""

    collection: Collection
    of_request: Mapping[int, Pairs]
    beyond: int | None = None
    """The number of first places that no pair may have; `None` for other targets."""
    places: Places | None = None
    """The places of all pairs that the run forgot; `None` for other targets."""

    @classmethod
    def of(
        cls,
        collection: Collection,
        items: Mapping[int, Sequence[Item]],
        target: str | None = None,
        places: Places | None = None,
    ) -> RequestPairs:
        rows = {id: named(collection, removal_of(these))[0] for id, these in items.items()}
        of_request = {id: collection.pairs[own] for id, own in rows.items()}
        return cls(collection, of_request, beyond_of(target), places)

    def ranks(self, score: Scorer) -> dict[int, Rows]:
        """Rank the pairs of every request, scoring each list once."""
        pairs = np.unique(np.concatenate(list(self.of_request.values())), axis=0)
        ranks, found = pair_ranks(self.collection, pairs, score), self.collection.find_pairs
        return {id: ranks[found(own, pairs)] for id, own in self.of_request.items()}

    def judge(
        self,
        before: Scorer,
        after: Scorer,
        target: float,
        found: Findings,
        references: Sequence[Scorer] = (),
        never_seen: Container[int] = (),
    ) -> dict[int, Judgement]:
        """Judge every request by itself.

        `target` is the lower of the run's target and the default one; with places, each request has its own. References
        are given if the ranker was retrained: a request that it ranks no higher than one of them does counts as
        retrained, wherever its pairs are. `never_seen` are requests that the original was trained without.
        """
        then, now = self.ranks(before), self.ranks(after)
        others = [self.ranks(score) for score in references]

        def result(id: int, own: Pairs) -> Judgement:
            ranks = ranks_of(self.collection, own, np.stack([then[id], now[id]]), *self._goal(own, target))
            unseen = max((mrr(own, other[id]) for other in others), default=0.0)
            retrained = bool(others) and ranks.mrr_after <= unseen + tolerance(ranks.queries)
            return judge(ranks, replace(found, retrained=retrained, never_seen=id in never_seen))

        return {id: result(id, own) for id, own in self.of_request.items()}

    def _goal(self, own: Pairs, target: float) -> tuple[float, Rows | None, Rows | None, int]:
        """Return a request's target, the best rank that each pair may have, its place, and how many may exceed it."""
        if self.places is not None:
            places = self.places.part(self.collection.find_pairs(own, self.places.pairs))
            return places.mrr, places.least, places.ranks, places.may_exceed
        if self.beyond is not None:
            return target, least_ranks(self.beyond, list_lengths(self.collection, own)), None, 0
        return target, None, None, 0
