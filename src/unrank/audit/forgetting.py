"""Forgetting: how high what is to be forgotten still stands, by its MRR."""

from __future__ import annotations

from unrank.audit.case import Case
from unrank.audit.verdict import Finding, find


def forgetting(case: Case) -> Finding:
    readings = case.readings(case.each(lambda subject: subject.reciprocals(case.sets["forget"])))
    since = readings.ranker - readings.original if readings.original else None
    return find("the forget MRR", readings, since_original=since and since.to_json())
