"""Equivalence: does the ranker differ from rankers that never saw the request by no more than two of these may?

Two one-sided tests show that the difference is within the margin. The request is these queries and no others, so what
is uncertain is the level of rankers that never saw it, of which there are only a few.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from unrank.audit.context import AuditContext
from unrank.audit.evidence import Evidence, gather_evidence
from unrank.audit.margins import ONE_SIDED, Equivalence, Margin, SaidMargins, draw_margin, more
from unrank.audit.samples import Sample, samples
from unrank.audit.three_sample import needed_judges
from unrank.audit.verdict import Finding, Verdict, undecided
from unrank.errors import count
from unrank.evaluation.bootstrap import BootstrapEstimate

MEASURES = "the difference from rankers that never saw it, by the figure that is nearest to its margin"
SURE = 3.0
"""The number of standard errors at which a difference survives the correction for several tests."""


def say_margins(
    context: AuditContext, evidence: Evidence | None = None, queries: int | None = None
) -> SaidMargins | None:
    """Return the margins of a request; `None` if fewer than two rankers never saw it, or no pair is left to draw.

    `queries` is the number of its queries, if there are more than the evidence has.
    """
    evidence = evidence or gather_evidence(context)
    unseen = samples(context, evidence, evidence.unseen)
    queries = queries or len(np.unique(evidence.forget.pairs[:, 0]))
    if not unseen or not queries:
        return None
    figures = {name: draw_margin(one.never_saw, queries, context.seed) for name, one in unseen.items()}
    drawn_from = len(np.unique(evidence.unseen.pairs[:, 0]))
    return SaidMargins(figures, queries, drawn_from, evidence.source, len(context.judges))


def needed_for_margins(context: AuditContext, evidence: Evidence) -> str:
    """Say what more is needed to draw margins: pairs that no ranker saw, or rankers that never saw the request."""
    if len(context.judges) > 1 and not len(evidence.unseen.pairs):
        return "needs pairs that no ranker saw, reserved ones or those of test queries: there are none"
    return needed_judges(context)


def equivalence(context: AuditContext) -> Finding:
    evidence = gather_evidence(context)
    said = context.said or say_margins(context, evidence)
    found = samples(context, evidence, evidence.forget)
    if said is None or not found:
        return undecided(MEASURES, needed_for_margins(context, evidence))
    tests = {name: within(found[name], margin) for name, margin in said.figures.items() if name in found}
    name = max(tests, key=lambda each: max(-tests[each].low, tests[each].high) / max(tests[each].margin, 1e-12))
    worst, failed = tests[name], [each for each, test in tests.items() if not test.passed]
    if failed:
        missing = f"needs {worst.needs}" if worst.needs else "this is beyond the margin"
        words = f"not shown by {', '.join(failed)}; by {name} {worst}; {missing}"
    else:
        words = f"within the margin by {', '.join(tests)}; by {name} {worst}"
    details = {
        "margins": said.to_json(),
        "said_beforehand": context.said is not None,
        **{each: test.to_json() for each, test in tests.items()},
    }
    verdict = Verdict.UNDECIDED if failed else Verdict.EQUIVALENT
    figure = BootstrapEstimate.of_mean(found[name].gap, context.seed)
    return Finding(MEASURES, verdict, words, figure, worst.margin, details=details, equivalence=worst)


def within(sample: Sample, said: Margin) -> Equivalence:
    """Test whether the mean gap of a sample is within its margin."""
    gap, judges = float(sample.gap.mean()), sample.judges
    half = ONE_SIDED * said.noise / math.sqrt(judges)
    found = Equivalence(said.margin, gap - half, gap + half)
    if found.passed or abs(gap) - half > said.margin:  # it is within, or surely beyond
        return found
    left = said.margin - abs(gap)
    if left > 0.05 * said.margin:
        return replace(found, needs=count(more(round(judges), half / left), "more reference") + " or proxies")
    error = said.noise * math.sqrt(1 + 1 / judges)  # a difference may be there: how many queries would show it?
    return replace(found, needs=count(more(len(sample.ranker), SURE * error / abs(gap)), "more query"))
