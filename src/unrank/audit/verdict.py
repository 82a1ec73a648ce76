"""The finding of a test: a figure, what it is compared with, a verdict, and the reason in words.

A higher figure means more memory. A figure above the references' says that something is still remembered. A figure
below them, or one that rises as theirs does not, says that something was hidden.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from unrank.audit.comparison import Comparison, Json
from unrank.evaluation.bootstrap import MIN_QUERIES, BootstrapEstimate


class Verdict(StrEnum):
    """The verdicts of the tests of memory, from the worst to the best; then those of the other tests."""

    REMEMBERED = "still remembered"
    SUPPRESSED = "suppressed"
    UNKNOWN = "cannot be known"
    INDISTINGUISHABLE = "indistinguishable from a retrained ranker at this test's power"
    LOST = "lost"
    KEPT = "kept"
    MEASURED = "measured"

    @property
    def short(self) -> str:
        """The verdict without its explanation.

        >>> Verdict.INDISTINGUISHABLE.short, Verdict.SUPPRESSED.short
        ('indistinguishable', 'suppressed')
        """
        return self.value.partition(" from ")[0]


COMPARED = ("original", "references", "gap", "noise_floor", "power")


@dataclass(frozen=True)
class Finding:
    """The result of one test."""

    measures: str
    """The name of the figure."""
    verdict: Verdict
    words: str
    figure: BootstrapEstimate | None = None
    threshold: float | None = None
    """The smallest difference that counts."""
    compared: Comparison | None = None
    details: Json = field(default_factory=dict)

    def to_json(self) -> Json:
        figure = self.figure.to_json() if self.figure else dict.fromkeys(("figure", "low", "high", "queries"))
        compared = self.compared.to_json() if self.compared else dict.fromkeys(COMPARED)
        said = {"measures": self.measures, "verdict": str(self.verdict), "words": self.words}
        return {**said, **figure, "threshold": self.threshold, **compared, "details": self.details}


@dataclass(frozen=True)
class Hiding:
    """A second figure. Above the references' it shows that something was hidden."""

    words: str
    compared: Comparison


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of several verdicts.

    >>> worst([Verdict.INDISTINGUISHABLE, Verdict.SUPPRESSED]).value
    'suppressed'
    """
    return min(verdicts, key=list(Verdict).index)


def find(
    measures: str,
    now: Comparison,
    *,
    shown_before: Comparison | None = None,
    hiding: Hiding | None = None,
    **details: Any,
) -> Finding:
    """Judge a figure.

    `shown_before` is the figure before an attempt to bring memory back: memory that it did not show was hidden.
    """
    verdict = _verdict(now, shown_before or now, hiding)
    return Finding(measures, verdict, _words(verdict, now, hiding), now.ranker, now.threshold, now, details)


def unknown(measures: str, why: str) -> Finding:
    return Finding(measures, Verdict.UNKNOWN, why)


def too_few(queries: int) -> str:
    """Say that there are not enough queries.

    >>> too_few(3)
    'not enough queries to tell: 3, where 10 are needed'
    """
    return f"not enough queries to tell: {queries}, where {MIN_QUERIES} are needed"


def _verdict(now: Comparison, before: Comparison, hiding: Hiding | None) -> Verdict:
    if not now.enough:
        return Verdict.UNKNOWN
    # Memory that was not seen before was hidden only if the figure has risen.
    risen = now.ranker.value > before.ranker.value + now.threshold
    if not now.references:
        if not now.as_original:
            return Verdict.UNKNOWN
        return Verdict.SUPPRESSED if risen and not before.as_original else Verdict.REMEMBERED
    if now.above:
        return Verdict.SUPPRESSED if risen and not before.above else Verdict.REMEMBERED
    if now.below or (hiding is not None and hiding.compared.above):
        return Verdict.SUPPRESSED
    return Verdict.INDISTINGUISHABLE


def _words(verdict: Verdict, now: Comparison, hiding: Hiding | None) -> str:
    """Give the reason for a verdict."""
    if not now.enough:
        return too_few(now.ranker.queries)
    if now.gap is None:
        if verdict is Verdict.UNKNOWN:
            return "there is no retrained ranker to compare with"
        return "no lower than the original, which was trained on it"
    if verdict is Verdict.INDISTINGUISHABLE:
        return f"a difference of {now.power:.3f} or more would have been found; a smaller one may be there"
    if now.above:
        back = "it comes back, " if verdict is Verdict.SUPPRESSED else ""
        return f"{back}{_gap(now.gap)} above a ranker that never saw it"
    if now.below:
        return f"{_gap(now.gap)} below a ranker that never saw it, which shows that something was hidden"
    assert hiding is not None and hiding.compared.gap is not None
    return f"{hiding.words} {_gap(hiding.compared.gap)} above that of a ranker that never saw it"


def _gap(gap: BootstrapEstimate) -> str:
    """Write a gap whose interval lies on one side of zero."""
    near, far = sorted(map(abs, gap.interval))
    return f"{abs(gap.value):.3f} ({near:.3f} to {far:.3f})"
