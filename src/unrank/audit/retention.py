"""Retention: what is left of the kept sets, beside the lower of the original and a retrained ranker.

A retrained ranker may have learned a set better or worse than the original did; the lower of the two is all that a
ranker owes.
"""

from __future__ import annotations

from unrank.audit.case import Case
from unrank.audit.readings import FEWEST, Readings
from unrank.audit.verdict import Finding, Verdict, unknown
from unrank.evaluation.bootstrap import BootstrapEstimate
from unrank.record import KEPT

MEASURES = "the change in MRR of the kept set that lost most"
ALONE = "neither the original nor a retrained ranker is here to compare with"


def retention(case: Case) -> Finding:
    sets = {name: _readings(case, name) for name in KEPT if len(case.sets[name])}
    changes = {name: change for name, read in sets.items() if read.enough and (change := _change(read))}
    lost = {name: change for name, change in changes.items() if change.high < -sets[name].threshold}
    details = {name: read.to_json() for name, read in sets.items()}
    few = [f"{name} ({read.ranker.queries})" for name, read in sets.items() if not read.enough]
    left_out = f"; left out, with fewer than {FEWEST} queries: {', '.join(few)}" if few else ""
    if not changes:
        return unknown(MEASURES, f"{ALONE if len(few) < len(sets) else 'no set is large enough'}{left_out}")
    name, change = min((lost or changes).items(), key=lambda item: item[1].value)
    how = "lost most" if change.value < 0 else "gained least"
    words = f"{name} {how}: {change.value:+.3f} ({change.low:+.3f} to {change.high:+.3f}){left_out}"
    return Finding(MEASURES, Verdict.LOST if lost else Verdict.KEPT, words, change, sets[name].threshold, None, details)


def _readings(case: Case, name: str) -> Readings:
    return case.readings(
        case.each(lambda subject: subject.workspace.evaluator.reciprocals(subject.scores, case.sets[name]))
    )


def _change(read: Readings) -> BootstrapEstimate | None:
    """Since the original, or since a retrained ranker where that is lower."""
    beside = [one for one in (read.original, read.reference) if one is not None]
    return read.ranker - min(beside, key=lambda one: one.value) if beside else None
