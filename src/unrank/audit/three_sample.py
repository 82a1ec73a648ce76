"""The three-sample test: is the ranker nearer to rankers that never saw the request than to the original?

Two honest rankers differ, too. So the ranker is placed on the way from the rankers that never saw the request (0) to
the original (1), query by query, by reciprocal ranks, scores and whole lists. An honest ranker is at 0 on average, and
what chance does to its place is in the statistic. A place beyond 0, away from the original, shows that something was
hidden.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from unrank.audit.comparison import Json
from unrank.audit.context import AuditContext
from unrank.audit.evidence import gather_evidence
from unrank.audit.samples import LISTS, Sample, samples
from unrank.audit.verdict import Finding, Verdict, too_few
from unrank.evaluation.bootstrap import MIN_QUERIES, BootstrapEstimate, resampled_columns
from unrank.evaluation.significance import IN_ALL

MEASURES = "the share of the way from rankers that never saw it to the original"
LEAST_SHARE = 0.05
"""The smallest share of the way that counts."""
NO_WAY = "the original is no further from rankers that never saw it than these are from each other"


@dataclass(frozen=True)
class Place:
    """The place of a ranker on the way from rankers that never saw the request (0) to the original (1)."""

    share: BootstrapEstimate
    error: float
    """The standard error of the share, with what chance does between trainings."""
    way: float
    way_error: float
    """The length of the way, and its standard error."""

    @property
    def is_way(self) -> bool:
        """Whether the original is away from rankers that never saw the request at all."""
        return self.way > 2 * self.way_error

    @property
    def p_above(self) -> float:
        """The chance that the place is not towards the original."""
        return normal_tail((self.share.value - LEAST_SHARE) / self.error)

    @property
    def p_below(self) -> float:
        """The chance that the place is not away from the original."""
        return normal_tail((-LEAST_SHARE - self.share.value) / self.error)

    def to_json(self) -> Json:
        return {**self.share.to_json(), "error": self.error, "way": self.way, "way_error": self.way_error}


def three_sample(context: AuditContext) -> Finding:
    if context.rankers.original is None:
        return not_tested("there is no original to compare with")
    evidence = gather_evidence(context)
    found = samples(context, evidence, evidence.forget)
    if not found:
        return not_tested(needed_judges(context))
    unseen, queries = samples(context, evidence, evidence.unseen), len(np.unique(evidence.forget.pairs[:, 0]))
    if queries < MIN_QUERIES:
        return not_tested(too_few(queries))
    places = {name: place(one, unseen.get(name), context.seed) for name, one in found.items()}
    details = {name: one.to_json() for name, one in places.items()}
    told = {name: one for name, one in places.items() if one.is_way}
    return _judge(told, details) if told else replace(not_tested(NO_WAY), details=details)


def not_tested(why: str) -> Finding:
    """Return a finding that neither convicts nor acquits: equivalence decides."""
    return Finding(MEASURES, Verdict.MEASURED, f"not tested: {why}")


def _judge(places: Mapping[str, Place], details: Json) -> Finding:
    """Judge by the figure that tells most; the chance of any of them counts."""
    remembered = min(1.0, len(places) * min(one.p_above for one in places.values()))
    hidden = {name: one.p_below for name, one in places.items() if name != LISTS}
    suppressed = min(1.0, len(hidden) * min(hidden.values(), default=1.0))
    verdict = Verdict.MEASURED
    if min(remembered, suppressed) < IN_ALL:
        verdict = Verdict.REMEMBERED if remembered <= suppressed else Verdict.SUPPRESSED
    name = min(places, key=lambda each: min(places[each].p_above, places[each].p_below))
    one = places[name]
    side = ", on the far side of rankers that never saw it" if one.share.value < 0 else ""
    words = f"by {name} at {one.share.value:+.2f} of the way to the original ({one.error:.2f} standard error){side}"
    if verdict is Verdict.MEASURED:
        words = f"no difference was found: {words}"
    return Finding(MEASURES, verdict, words, one.share, LEAST_SHARE, None, details, remembered, suppressed)


def place(sample: Sample, unseen: Sample | None, seed: int) -> Place:
    """Place a ranker by one sample. The sample of pairs that nobody saw tells how far trainings differ as a whole."""
    ways = np.stack(sample.way, axis=1)
    toward, way = ways.mean(axis=0)
    resampled = resampled_columns(ways, seed)
    assert sample.original is not None
    slope = 1.0 if sample.with_original is not None else abs(float(np.mean(sample.original - sample.level)))
    between = slope * between_trainings(unseen) * math.sqrt(1 + 1 / sample.judges)
    length = max(abs(float(way)), 1e-12)
    single = max(float(resampled[:, 0].std()), sample.way_noise)
    error = max(math.hypot(single, between), 1e-12) / length
    share = BootstrapEstimate(float(toward) / length, resampled[:, 0] / length, len(ways))
    return Place(share, error, float(way), float(resampled[:, 1].std()))


def between_trainings(unseen: Sample | None) -> float:
    """Return the spread of the levels of rankers that never saw the request, on pairs that none of them saw."""
    rows = unseen.never_saw if unseen is not None else ()
    levels = [float(np.nanmean(row)) for row in rows if np.isfinite(row).any()]  # a judge may not have been asked
    return float(np.std(levels, ddof=1)) if len(levels) > 1 else 0.0


def normal_tail(deviations: float) -> float:
    """Return the chance that a normal value lies this many standard deviations or more above its mean.

    >>> normal_tail(0.0), round(normal_tail(1.6449), 3)
    (0.5, 0.05)
    """
    return math.erfc(deviations / math.sqrt(2)) / 2


def needed_judges(context: AuditContext) -> str:
    """Say how many more rankers that never saw the request are needed."""
    left_out = "; those at hand had a share in the run" if context.left_out else ""
    more = "1 more reference or proxy" if context.judges else "2 more references or proxies"
    return f"needs {more} that never saw it{left_out}"
