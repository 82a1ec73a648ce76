"""The finding of a test: a figure, what it is compared with, a verdict, and the reason in words.

A higher figure means more memory. A figure above the references' says that something is still remembered. A figure
below them, or one that rises as theirs does not, says that something was hidden. A figure that is within a margin of
theirs is equivalent. If neither a difference nor equivalence is shown, the test is undecided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from unrank.audit.comparison import Comparison, Json
from unrank.audit.margins import Equivalence
from unrank.errors import count
from unrank.evaluation.bootstrap import MIN_QUERIES, BootstrapEstimate
from unrank.evaluation.significance import holm


class Verdict(StrEnum):
    """The verdicts of the tests of memory, from the worst to the best; then those of the other tests."""

    REMEMBERED = "still remembered"
    SUPPRESSED = "suppressed"
    UNDECIDED = "undecided"
    EQUIVALENT = "equivalent"
    LOST = "lost"
    KEPT = "kept"
    MEASURED = "measured"


DIFFERENT = (Verdict.REMEMBERED, Verdict.SUPPRESSED)
OLD_UNKNOWN = "cannot be known"
OLD_ALIKE = "indistinguishable from a retrained ranker at this test's power"
"""Verdicts in files of version 1: the first is read as undecided; the second is weaker than equivalent."""
COMPARED = ("original", "references", "gap", "noise_floor", "power")


MEANING = {
    Verdict.REMEMBERED: (
        "By some figure the ranker knows more of it than rankers do that never saw it, or no less than before it was "
        "asked to forget."
    ),
    Verdict.SUPPRESSED: (
        "By some figure it ranks lower than with rankers that never saw it, comes back when it is looked for, or "
        "stands out in another way: somebody who looks may see that it was made to be forgotten."
    ),
    Verdict.UNDECIDED: (
        "No test shows that it is remembered or hidden, and the tests that decide do not show that the ranker is like "
        "rankers that never saw it. This is no sign of forgetting."
    ),
    Verdict.EQUIVALENT: (
        "By the figures that were tested, the difference from rankers that never saw it is within the margin by which "
        "two such rankers differ from each other. This does not show that no trace is left."
    ),
    OLD_UNKNOWN: "The tests could not tell. This is no sign of forgetting.",
    OLD_ALIKE: "No test found a difference. One that is smaller than the tests can find may be there.",
}
"""What each verdict of a whole audit means, in a sentence or two."""


def short(verdict: str) -> str:
    """Return a verdict of any version without its explanation.

    >>> short(OLD_ALIKE), short("suppressed")
    ('indistinguishable', 'suppressed')
    """
    return verdict.partition(" from ")[0]


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
    p_remembered: float | None = None
    """The chance of such a figure if nothing is remembered; `None` if the test cannot say."""
    p_suppressed: float | None = None
    """The chance of such a figure if nothing was hidden; `None` if the test cannot say."""
    equivalence: Equivalence | None = None
    """The figure beside its margin; `None` if no margin is known."""

    def to_json(self) -> Json:
        figure = self.figure.to_json() if self.figure else dict.fromkeys(("figure", "low", "high", "queries"))
        compared = self.compared.to_json() if self.compared else dict.fromkeys(COMPARED)
        said = {"measures": self.measures, "verdict": str(self.verdict), "words": self.words}
        chances = {"p_remembered": self.p_remembered, "p_suppressed": self.p_suppressed}
        equal = {"equivalence": self.equivalence and self.equivalence.to_json()}
        return {**said, **figure, "threshold": self.threshold, **compared, **chances, **equal, "details": self.details}


@dataclass(frozen=True)
class Hiding:
    """A second figure. Above the references' it shows that something was hidden."""

    words: str
    compared: Comparison


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of several verdicts.

    >>> worst([Verdict.EQUIVALENT, Verdict.SUPPRESSED]).value
    'suppressed'
    """
    return min(verdicts, key=list(Verdict).index)


def overall(findings: Mapping[str, Finding], deciding: Sequence[str]) -> tuple[Verdict, str]:
    """Return the verdict of all tests of memory, and its reason.

    A difference that any test finds decides. Without one, the ranker is equivalent if all deciding tests say so: those
    whose margin was said beforehand. The others can convict, and cannot acquit.
    """
    verdict = worst(found.verdict for found in findings.values())
    judging = findings if verdict in DIFFERENT else {name: findings[name] for name in deciding}
    verdict = worst(found.verdict for found in judging.values())
    first = next(name for name, found in judging.items() if found.verdict is verdict)
    return verdict, f"{first.replace('_', ' ')}: {judging[first].words}"


def corrected(findings: Mapping[str, Finding]) -> dict[str, Finding]:
    """Return the findings with verdicts that allow for the number of tests.

    A difference that Holm's procedure does not confirm becomes undecided.
    """
    sides = ("remembered", "suppressed")
    chances = {
        f"{side} {name}": chance
        for name, found in findings.items()
        for side, chance in zip(sides, (found.p_remembered, found.p_suppressed), strict=True)
        if chance is not None
    }
    kept, tests = holm(chances), count(len(findings), "test")

    def settle(name: str, found: Finding) -> Finding:
        side = sides[0] if found.verdict is Verdict.REMEMBERED else sides[1]
        if found.verdict not in DIFFERENT or f"{side} {name}" not in chances or f"{side} {name}" in kept:
            return found
        return replace(found, verdict=Verdict.UNDECIDED, words=f"{found.words}; of {tests} one may say so by chance")

    return {name: settle(name, found) for name, found in findings.items()}


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
    if not now.enough:
        return Finding(
            measures, Verdict.UNDECIDED, too_few(now.ranker.queries), now.ranker, now.threshold, now, details
        )
    came_back = _came_back(now, shown_before or now)
    verdict, chances = _verdict(now, came_back, hiding), _chances(now, came_back, hiding)
    words = _words(verdict, now, hiding)
    return Finding(measures, verdict, words, now.ranker, now.threshold, now, details, *chances, now.equivalence)


def as_attack(found: Finding) -> Finding:
    """Return a finding that may show a difference, and otherwise has no verdict.

    An attack that finds nothing may have been a weak one, so it neither acquits a ranker nor stands in the way of that.
    """
    if found.verdict in DIFFERENT:
        return found
    power = found.compared.power if found.compared and found.compared.enough else None
    words = found.words if power is None else f"no difference was found, where {power:.3f} would have been"
    return replace(found, verdict=Verdict.MEASURED, words=words, equivalence=None)


def undecided(measures: str, why: str) -> Finding:
    return Finding(measures, Verdict.UNDECIDED, why)


def too_few(queries: int) -> str:
    """Say that not enough queries were tested.

    >>> too_few(3)
    'needs 7 more queries: 3 were tested, and 10 are the fewest that tell'
    """
    more, were = count(MIN_QUERIES - queries, "more query"), "was" if queries == 1 else "were"
    return f"needs {more}: {queries} {were} tested, and {MIN_QUERIES} are the fewest that tell"


def _came_back(now: Comparison, before: Comparison) -> bool:
    """Return whether an attempt brought memory back that was not seen before: it was hidden."""
    risen = now.ranker.value > before.ranker.value + now.threshold
    if not now.references:
        return risen and now.as_original and not before.as_original
    return risen and now.above and not before.above


def _verdict(now: Comparison, came_back: bool, hiding: Hiding | None) -> Verdict:
    if came_back or now.below:
        return Verdict.SUPPRESSED
    if now.above or (not now.references and now.as_original):
        return Verdict.REMEMBERED
    if hiding is not None and hiding.compared.above:
        return Verdict.SUPPRESSED
    return Verdict.EQUIVALENT if now.equivalence is not None and now.equivalence.passed else Verdict.UNDECIDED


def _chances(now: Comparison, came_back: bool, hiding: Hiding | None) -> tuple[float | None, float | None]:
    """Return the p-values of memory and of hiding. If there are several signs of hiding, the chance of any counts."""
    memory = now.p_above if now.references else now.p_as_original
    signs = [now.p_below, hiding.compared.p_above if hiding else None, memory if came_back else None]
    known = [chance for chance in signs if chance is not None]
    return (None if came_back else memory), (min(1.0, len(known) * min(known)) if known else None)


def _words(verdict: Verdict, now: Comparison, hiding: Hiding | None) -> str:
    """Give the reason for a verdict."""
    if now.gap is None:
        if verdict is Verdict.UNDECIDED:
            return "there is no retrained ranker to compare with"
        back = "it comes back, " if verdict is Verdict.SUPPRESSED else ""
        return f"{back}not lower than the original by {now.threshold:.3f} or more"
    equal = now.equivalence
    assert equal is not None
    if verdict is Verdict.EQUIVALENT:
        return f"{equal}; a ranker that never saw it may be that far off"
    if verdict is Verdict.UNDECIDED:
        return f"no difference was found, where {now.power:.3f} would have been; {equal}; needs {equal.needs}"
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
