"""Membership: can one tell from its score that a pair was trained on?

A pair's signal is `s(q, d) − log Σ exp s(q, negative)`: how far it stands out from its query's negatives. Forgotten
pairs are set against pairs of test queries, which no ranker was trained on. These are other queries, so even a ranker
that saw neither may tell them apart a little: what counts is how much better the audited one does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from unrank.audit.case import Case, Subject
from unrank.audit.verdict import Finding, find, unknown
from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
from unrank.evaluation.bootstrap import BootstrapEstimate, resamples
from unrank.evaluation.measure import Floats, area_under_curve, found_at

MEASURES = "the AUC of forgotten pairs against test pairs"

Signals = tuple[Floats, Floats]
"""Of members and of strangers."""


def membership(case: Case) -> Finding:
    members, strangers = (pairs[case.with_negatives(pairs)] for pairs in (case.sets["forget"], case.sets["test"]))
    if not len(members) or not len(strangers):
        return unknown(MEASURES, "there are no test pairs to compare forgotten ones with")
    signals = case.each(lambda subject: (_signals(case, subject, members), _signals(case, subject, strangers)))
    read = partial(_read, members[:, 0], strangers[:, 0], case.seed)
    area, found = (case.compare(signals.map(partial(read, statistic))) for statistic in (area_under_curve, found_at))
    relative = area.gap.value / area.reference.value if area.gap and area.reference else None
    return find(
        MEASURES,
        area,
        relative_to_reference=relative,
        found_at_1_percent=found.to_json(),
        forgotten_pairs=len(members),
        test_pairs=len(strangers),
    )


def _signals(case: Case, subject: Subject, pairs: Pairs) -> Floats:
    queries = np.unique(pairs[:, 0])
    negatives = case.negatives(queries)
    scores = subject.scores(np.concatenate([pairs, negatives])).astype(np.float64)
    crowd = np.full(len(queries), -np.inf)
    np.logaddexp.at(crowd, np.searchsorted(queries, negatives[:, 0]), scores[len(pairs) :])
    signals: Floats = scores[: len(pairs)] - crowd[np.searchsorted(queries, pairs[:, 0])]
    return signals


def _read(
    member_of: Rows, stranger_of: Rows, seed: int, statistic: Callable[[Floats, Floats], float], signals: Signals
) -> BootstrapEstimate:
    """A statistic of the signals, with the queries of either side resampled."""
    members, strangers = signals
    draws = zip(resamples(member_of, seed), resamples(stranger_of, seed + 1), strict=True)
    resampled = np.array([statistic(members[some], strangers[others]) for some, others in draws])
    queries = min(len(np.unique(owners)) for owners in (member_of, stranger_of))
    return BootstrapEstimate(statistic(members, strangers), resampled, queries)
