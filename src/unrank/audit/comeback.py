"""What comes back: the forget MRR before and after something that may bring memory back, judged together."""

from __future__ import annotations

from typing import Any, NamedTuple

from unrank.audit.case import Case
from unrank.audit.readings import Each
from unrank.audit.verdict import Finding, Hiding, find
from unrank.evaluation.measure import Floats


class Comeback(NamedTuple):
    """The reciprocal rank of each query, before and after."""

    before: Floats
    after: Floats


def find_comeback(case: Case, measures: str, each: Each[Comeback], **details: Any) -> Finding:
    """Higher than a retrained ranker's, or risen by more, is memory; it was hidden if it did not show before."""
    before = case.readings(each.map(lambda one: one.before))
    change = case.readings(each.map(lambda one: one.after - one.before))
    return find(
        measures,
        case.readings(each.map(lambda one: one.after)),
        shown_before=before,
        hiding=Hiding("its rise is", change),
        before=before.to_json(),
        change=change.to_json(),
        **details,
    )
