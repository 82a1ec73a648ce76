"""Membership: can a score tell that a pair was trained on?

A pair's signal is `s(q, d) − log Σ exp s(q, negative)`: how far it lies above its query's negatives. Forget pairs are
compared with pairs of test queries, which no ranker was trained on. The queries differ, so even a ranker that saw
neither may separate the two a little. What counts is how much better the audited ranker does.
"""

from __future__ import annotations

import numpy as np

from unrank.audit.context import AuditContext, AuditedRanker
from unrank.audit.verdict import Finding, find, undecided
from unrank.collection.collection import Pairs
from unrank.evaluation.bootstrap import ResampledSets
from unrank.evaluation.measure import Floats

MEASURES = "the AUC of forgotten pairs against test pairs"


def membership(context: AuditContext) -> Finding:
    members, strangers = (context.sets[name][context.with_negatives(context.sets[name])] for name in ("forget", "test"))
    if not len(members) or not len(strangers):
        what = "test" if len(members) else "forgotten"
        return undecided(MEASURES, f"there are no {what} pairs whose query has other candidates to compare with")
    signals = context.each(lambda one: (_signals(context, one, members), _signals(context, one, strangers)))
    resampled = ResampledSets.of(members[:, 0], strangers[:, 0], context.seed)
    queries = min(len(np.unique(pairs[:, 0])) for pairs in (members, strangers))
    area, found = (
        context.compare(signals.map(lambda both, estimate=estimate: estimate(*both, queries)))  # type: ignore[misc]
        for estimate in (resampled.area, resampled.found)
    )
    relative = area.gap.value / area.reference.value if area.gap and area.reference else None
    return find(
        MEASURES,
        area,
        relative_to_reference=relative,
        found_at_1_percent=found.to_json(),
        forgotten_pairs=len(members),
        test_pairs=len(strangers),
    )


def _signals(context: AuditContext, one: AuditedRanker, pairs: Pairs) -> Floats:
    queries = np.unique(pairs[:, 0])
    negatives = context.negatives(queries)
    scores = one.scores(np.concatenate([pairs, negatives])).astype(np.float64)
    crowd = np.full(len(queries), -np.inf)
    np.logaddexp.at(crowd, np.searchsorted(queries, negatives[:, 0]), scores[len(pairs) :])
    signals: Floats = scores[: len(pairs)] - crowd[np.searchsorted(queries, pairs[:, 0])]
    return signals
