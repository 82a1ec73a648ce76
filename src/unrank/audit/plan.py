"""The plan of an audit: the pairs that it can test, its power and its time, before anything is tested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from unrank.audit.comparison import PerRanker
from unrank.audit.context import AuditContext, AuditedRanker, Marks, Thoroughness, sampled_sets, whole_sets
from unrank.audit.equivalence import needed_for_margins, say_margins
from unrank.audit.evidence import Evidence, gather_evidence
from unrank.audit.judges import load_judges
from unrank.audit.margins import SaidMargins
from unrank.audit.per_example import FALSE_SHARE, no_judge, test_pairs
from unrank.audit.three_sample import needed_judges
from unrank.audit.time import audit_time
from unrank.collection.removal import Removal
from unrank.engine.teacher import Teacher
from unrank.errors import count
from unrank.forgetting.estimate import Seconds
from unrank.forgetting.workspace import Workspace
from unrank.rankers import load_ranker
from unrank.rankers.base import Ranker

FEW_JUDGES = 3
"""The most judges by which the power is foreseen."""
SMALL = Thoroughness(judged_pairs=40, judged_negatives=10)
NO_MARGINS = "no margin can be said, so the verdict cannot be 'equivalent'"


@dataclass(frozen=True)
class Prospect:
    """What an audit can find out about single pairs."""

    pairs: int
    testable: int
    """The number of pairs that some judge never saw."""
    power: float | None
    """About the chance that memory of all of them is found at 1 % false alarms; `None` if they cannot be tested."""
    lacks: str = ""
    """Why they cannot be tested; empty if they can."""

    def __str__(self) -> str:
        if self.power is None:
            return f"single pairs cannot be tested: {self.lacks}"
        whole = count(self.testable, "pair")
        which = whole if self.testable == self.pairs else f"{self.testable:,} of {count(self.pairs, 'pair')}"
        found = f"memory of {which} would be found with a chance of about {self.power:.2f}"
        return f"{found} if {FALSE_SHARE:.0%} of honest rankers may be accused"


@dataclass(frozen=True)
class AuditPlan:
    """The pairs and queries of a request, what can be found out about single pairs, and the time of all tests."""

    pairs: int
    queries: int
    single: Prospect
    seconds: Seconds
    margins: SaidMargins | None = None
    """About the margins of the test of equivalence; `None` if there are none."""
    lacks: str = ""
    """Why there are none; empty if there are."""

    @property
    def words(self) -> tuple[str, str]:
        """What can be found out about single pairs, and within which margins a ranker is equivalent."""
        return str(self.single), f"about {self.margins}" if self.margins else f"{NO_MARGINS}: it {self.lacks}"


def plan_audit(context: AuditContext) -> AuditPlan:
    """Return what an audit can find, and its time."""
    forget = context.sets["forget"]
    queries = len(np.unique(forget[:, 0]))
    small = _small(context)
    evidence = gather_evidence(small) if small else None
    margins = say_margins(small, evidence, queries) if small else None
    lacks = needed_for_margins(small, evidence) if small and evidence else needed_judges(context)
    single, seconds = foresee(context, evidence), audit_time(context)
    return AuditPlan(len(forget), queries, single, seconds, margins, "" if margins else lacks)


def plan_before(
    workspace: Workspace, ranker: Ranker, references: Sequence[str], proxies: Sequence[str], base_digest: str | None
) -> AuditPlan:
    """Plan before a run what its audit can find out, if the ranker stayed as it is."""
    audited = _opened(workspace, ranker)
    compared = tuple(_opened(workspace, load_ranker(name, ranker.fast)) for name in references)
    removal, whole, effort = workspace.removal or Removal(), whole_sets(workspace), Thoroughness()
    judges = load_judges([Path(folder) for folder in proxies], audited, removal, base_digest, frozenset())
    sets = sampled_sets(workspace.collection, whole, effort.queries, 0)
    rankers = PerRanker(audited, audited, compared)
    return plan_audit(
        AuditContext(rankers, workspace.collection, workspace.partition, whole, sets, effort, 0, proxies=judges.proxies)
    )


def _opened(workspace: Workspace, ranker: Ranker) -> AuditedRanker:
    teacher = Teacher(ranker.to(workspace.runtime.device), workspace.collection, workspace.store, workspace.runtime)
    return AuditedRanker(ranker, workspace, teacher.scores)


def unseen_marks(context: AuditContext) -> Marks:
    """Mark for each judge the forget pairs that it never saw, by its record alone. [judges, pairs]"""
    forget = context.sets["forget"]
    marks = [judge.never_saw(forget) for judge in context.judges]
    return np.array(marks, np.bool_).reshape(len(context.judges), len(forget))


def foresee(context: AuditContext, evidence: Evidence | None = None) -> Prospect:
    """Foresee the power by little evidence, which is gathered if it is not given."""
    marks = unseen_marks(context)
    pairs, testable = marks.shape[1], int(marks.any(axis=0).sum())
    small = _small(context)
    if small is None:
        return Prospect(pairs, 0, None, no_judge(context.left_out, len(context.judges)))
    test, lacks = test_pairs(evidence or gather_evidence(small), context.seed)
    if test is None:
        return Prospect(pairs, testable, None, lacks)
    return Prospect(pairs, testable, test.power if testable == test.pairs else test.power_of(min(testable, 1_000)))


def _small(context: AuditContext) -> AuditContext | None:
    """Return the audit of a few lists by a few judges, those that never saw most of the pairs; `None` without one."""
    marks = unseen_marks(context)
    if not marks.any():
        return None
    chosen = np.sort(np.argsort(-marks.sum(axis=1), kind="stable")[:FEW_JUDGES])
    forget = context.sets["forget"][marks[chosen].any(axis=0)]
    references = context.rankers.references
    kept = tuple(reference for place, reference in enumerate(references) if place in chosen)
    proxies = tuple(proxy for place, proxy in enumerate(context.proxies, len(references)) if place in chosen)
    effort = replace(context.thoroughness, judged_pairs=SMALL.judged_pairs, judged_negatives=SMALL.judged_negatives)
    return replace(
        context,
        rankers=replace(context.rankers, references=kept),
        proxies=proxies,
        sets={**context.sets, "forget": forget},
        thoroughness=effort,
    )
