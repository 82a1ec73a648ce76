"""What a test finds: a figure, what it is compared with, and a verdict in plain words.

Figures count memory: the more, the more is remembered. Above a retrained ranker's a figure says that something is
still remembered; below it, or where it rises as a retrained ranker's does not, that something was hidden.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from unrank.audit.readings import FEWEST, Readings
from unrank.errors import count
from unrank.evaluation.bootstrap import BootstrapEstimate


class Verdict(StrEnum):
    """First what is said of forgetting, from the worst to the best; then what is said of other things."""

    REMEMBERED = "still remembered"
    SUPPRESSED = "suppressed"
    UNKNOWN = "cannot be known"
    INDISTINGUISHABLE = "indistinguishable from a retrained ranker at this test's power"
    LOST = "lost"
    KEPT = "kept"
    MEASURED = "measured"

    @property
    def short(self) -> str:
        """
        >>> Verdict.INDISTINGUISHABLE.short, Verdict.SUPPRESSED.short
        ('indistinguishable', 'suppressed')
        """
        return self.value.partition(" from ")[0]


BESIDE = ("original", "references", "gap", "noise_floor", "power")


@dataclass(frozen=True)
class Finding:
    """What one test found."""

    measures: str
    """What the figure is."""
    verdict: Verdict
    words: str
    figure: BootstrapEstimate | None = None
    threshold: float | None = None
    """No smaller difference counts."""
    compared: Readings | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        figure = self.figure.to_json() if self.figure else dict.fromkeys(("figure", "low", "high", "queries"))
        beside = self.compared.to_json() if self.compared else dict.fromkeys(BESIDE)
        said = {"measures": self.measures, "verdict": str(self.verdict), "words": self.words}
        return {**said, **figure, "threshold": self.threshold, **beside, "details": self.details}


@dataclass(frozen=True)
class Hiding:
    """A second figure that tells of hiding where it is above a retrained ranker's."""

    words: str
    readings: Readings


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """What tests come to together: no better than the worst of them.

    >>> worst([Verdict.INDISTINGUISHABLE, Verdict.SUPPRESSED]).value
    'suppressed'
    """
    return min(verdicts, key=list(Verdict).index)


def find(
    measures: str, now: Readings, *, shown_before: Readings | None = None, hiding: Hiding | None = None, **details: Any
) -> Finding:
    """Judge a figure. What was not `shown_before` something that brings memory back was hidden."""
    verdict = _verdict(now, shown_before or now, hiding)
    return Finding(measures, verdict, _words(verdict, now, hiding), now.ranker, now.threshold, now, details)


def unknown(measures: str, why: str) -> Finding:
    return Finding(measures, Verdict.UNKNOWN, why)


def _verdict(now: Readings, before: Readings, hiding: Hiding | None) -> Verdict:
    if not now.enough:
        return Verdict.UNKNOWN
    brought_out = now.ranker.value > before.ranker.value + now.threshold  # that it was not seen before is not enough
    if not now.references:
        if not now.as_original:
            return Verdict.UNKNOWN
        return Verdict.SUPPRESSED if brought_out and not before.as_original else Verdict.REMEMBERED
    if now.above:
        return Verdict.SUPPRESSED if brought_out and not before.above else Verdict.REMEMBERED
    if now.below or (hiding is not None and hiding.readings.above):
        return Verdict.SUPPRESSED
    return Verdict.INDISTINGUISHABLE


def _words(verdict: Verdict, now: Readings, hiding: Hiding | None) -> str:
    """Why the verdict is what it is."""
    if not now.enough:
        return f"{count(now.ranker.queries, 'query')} cannot tell: it takes {FEWEST}"
    if now.gap is None:
        if verdict is Verdict.UNKNOWN:
            return "without a retrained ranker nobody knows what one that never saw it would show"
        return "no less than the original shows, which was trained on it"
    if verdict is Verdict.INDISTINGUISHABLE:
        return f"a difference of {now.power:.3f} or more would have been told"
    if now.above:
        back = "it comes back, " if verdict is Verdict.SUPPRESSED else ""
        return f"{back}{_gap(now.gap)} above a ranker that never saw it"
    if now.below:
        return f"{_gap(now.gap)} below a ranker that never saw it, which tells that something was hidden"
    assert hiding is not None and hiding.readings.gap is not None
    return f"{hiding.words} {_gap(hiding.readings.gap)} above that of a ranker that never saw it"


def _gap(gap: BootstrapEstimate) -> str:
    """How large a gap is that lies wholly on one side."""
    near, far = sorted(map(abs, gap.interval))
    return f"{abs(gap.value):.3f} ({near:.3f} to {far:.3f})"
