"""The tests by MRR: how high the forget pairs are still ranked, what is left of the kept sets, and the noise floor.

Retention compares each kept set with the lower of the original and the references: a ranker need not be better than
either.
"""

from __future__ import annotations

from collections.abc import Mapping

from unrank.audit.comparison import Comparison
from unrank.audit.context import AuditContext
from unrank.audit.verdict import Finding, Verdict, find, undecided
from unrank.evaluation.bootstrap import MIN_QUERIES, BootstrapEstimate
from unrank.record import KEPT

RETENTION = "the change in MRR of the kept set that lost most"
NOISE = "the largest difference between two retrained rankers"
ALONE = "there is neither an original nor a retrained ranker to compare with"
TOO_SMALL = "not enough queries to tell in any kept set"


def forgetting(context: AuditContext) -> Finding:
    """Measure the MRR of the forget pairs."""
    compared = context.compare_means(context.each(lambda one: one.reciprocals(context.sets["forget"])))
    since = compared.ranker - compared.original if compared.original else None
    return find("the forget MRR", compared, since_original=since and since.to_json())


def retention(context: AuditContext) -> Finding:
    """Find the kept set that lost most of its MRR."""
    sets = {name: _compare(context, name) for name in KEPT if len(context.sets[name])}
    changes = {name: change for name, compared in sets.items() if compared.enough and (change := _change(compared))}
    lost = {name: change for name, change in changes.items() if change.high < -sets[name].threshold}
    few = [f"{name} ({compared.ranker.queries})" for name, compared in sets.items() if not compared.enough]
    left_out = f"; left out, with fewer than {MIN_QUERIES} queries: {', '.join(few)}" if few else ""
    if not changes:
        return undecided(RETENTION, f"{ALONE if len(few) < len(sets) else TOO_SMALL}{left_out}")
    name, change = min((lost or changes).items(), key=lambda item: item[1].value)
    threshold = sets[name].threshold
    how = "lost most" if change.value < 0 else "gained least"
    words = f"{name} {how}: {change.value:+.3f} ({change.low:+.3f} to {change.high:+.3f})"
    if not lost:
        words += f"; a loss of {threshold + (change.high - change.low) / 2:.3f} or more would have been found"
    details = {name: compared.to_json() for name, compared in sets.items()}
    verdict = Verdict.LOST if lost else Verdict.KEPT
    return Finding(RETENTION, verdict, words + left_out, change, threshold, None, details)


def noise_floor(findings: Mapping[str, Finding], margin: float) -> Finding:
    """Find the largest difference between two references over all tests."""
    noise = {name: found.compared.noise for name, found in findings.items() if found.compared}
    measured = {name: gap for name, gap in noise.items() if gap}
    if not measured:
        return undecided(NOISE, f"it takes two retrained rankers; differences below {margin:g} do not count")
    name, gap = max(measured.items(), key=lambda item: abs(item[1].value))
    words = f"up to {abs(gap.value):.3f} ({name}); in each test, smaller differences than its own do not count"
    details = {name: abs(gap.value) for name, gap in measured.items()}
    return Finding(NOISE, Verdict.MEASURED, words, gap, margin, None, details)


def _compare(context: AuditContext, name: str) -> Comparison:
    return context.compare_means(
        context.each(lambda one: one.workspace.evaluator.reciprocals(one.scores, context.sets[name]))
    )


def _change(compared: Comparison) -> BootstrapEstimate | None:
    """Subtract the lower of the original and the references."""
    others = [one for one in (compared.original, compared.reference) if one is not None]
    return compared.ranker - min(others, key=lambda one: one.value) if others else None
