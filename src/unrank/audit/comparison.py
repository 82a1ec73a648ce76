"""One figure of every ranker in an audit: the audited one, the original, and the retrained references.

A difference counts if its whole interval lies beyond a threshold. The threshold is the smallest difference of
interest, or the difference between two references if that is larger. A figure is equivalent to the references' if two
one-sided tests show that it is within a margin of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Generic, TypeVar

import numpy as np

from unrank.audit.margins import ONE_SIDED, Equivalence, more
from unrank.errors import count
from unrank.evaluation.bootstrap import LEVEL, MIN_QUERIES, BootstrapEstimate
from unrank.evaluation.significance import p_value

Json = dict[str, Any]
T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class PerRanker(Generic[T]):
    """One value for each ranker in an audit."""

    ranker: T
    """The audited ranker's."""
    original: T | None
    references: tuple[T, ...]

    def map(self, make: Callable[[T], U]) -> PerRanker[U]:
        original = make(self.original) if self.original is not None else None
        return PerRanker(make(self.ranker), original, tuple(make(one) for one in self.references))


@dataclass(frozen=True)
class Comparison(PerRanker[BootstrapEstimate]):
    """One figure of every ranker, estimated on the same queries."""

    margin: float
    """The smallest difference of interest."""

    @classmethod
    def of(cls, each: PerRanker[BootstrapEstimate], margin: float) -> Comparison:
        return cls(each.ranker, each.original, each.references, margin)

    @property
    def reference(self) -> BootstrapEstimate | None:
        """The mean of the references."""
        return BootstrapEstimate.mean_of(self.references) if self.references else None

    @property
    def noise(self) -> BootstrapEstimate | None:
        """The largest difference between two references; `None` if there are fewer than two."""
        gaps = (one - other for one, other in combinations(self.references, 2))
        return max(gaps, key=lambda gap: abs(gap.value), default=None)

    @property
    def threshold(self) -> float:
        return max(self.margin, abs(self.noise.value)) if self.noise else self.margin

    @property
    def gap(self) -> BootstrapEstimate | None:
        """The audited ranker's figure minus the references'."""
        return self.ranker - self.reference if self.reference else None

    @property
    def enough(self) -> bool:
        return self.ranker.queries >= MIN_QUERIES

    @property
    def above(self) -> bool:
        return self.gap is not None and self.gap.low > self.threshold

    @property
    def below(self) -> bool:
        return self.gap is not None and self.gap.high < -self.threshold

    @property
    def power(self) -> float | None:
        """About the smallest difference from the references that would have been found."""
        return self.threshold + (self.gap.high - self.gap.low) / 2 if self.gap else None

    @property
    def p_above(self) -> float | None:
        """The chance that the gap is not above the threshold; `None` without a reference."""
        return p_value(self.gap.resampled - self.threshold) if self.gap else None

    @property
    def p_below(self) -> float | None:
        """The chance that the gap is not below minus the threshold; `None` without a reference."""
        return p_value(-self.threshold - self.gap.resampled) if self.gap else None

    @property
    def p_as_original(self) -> float | None:
        """The chance that the figure is lower than the original's by the threshold; `None` without an original."""
        return p_value((self.ranker - self.original).resampled + self.threshold) if self.original else None

    @property
    def equivalence(self) -> Equivalence | None:
        """The gap beside the differences between two references; `None` without a reference.

        The request is these queries and no others. So with several references only the noise between trainings counts;
        with one reference that noise is not known, and the interval is the bootstrap's.
        """
        if self.gap is None:
            return None
        if len(self.references) == 1:
            margin, (low, high) = self.margin, map(float, np.quantile(self.gap.resampled, [1 - LEVEL, LEVEL]))
        else:
            gaps = np.concatenate([(one - other).resampled for one, other in combinations(self.references, 2)])
            margin = max(self.margin, float(np.quantile(np.abs(gaps), LEVEL)))
            half = ONE_SIDED * math.sqrt(float(np.mean(gaps**2)) / 2 / len(self.references))
            low, high = self.gap.value - half, self.gap.value + half
        found = Equivalence(margin, low, high)
        return found if found.passed else replace(found, needs=self._needs(found))

    def _needs(self, found: Equivalence) -> str:
        """Say what more would decide, about."""
        assert self.gap is not None
        gap, number, references = abs(self.gap.value), self.ranker.queries, len(self.references)
        if gap > 0.95 * found.margin:  # a difference may be there
            apart, half = max(gap - self.threshold, self.margin / 10), (self.gap.high - self.gap.low) / 2
            return count(more(number, half / apart), "more query")
        short = (found.high - found.low) / 2 / (found.margin - gap)
        if references > 1:
            return count(more(references, short), "more reference")
        return f"a second reference, or {count(more(number, short), 'more query')}"

    @property
    def as_original(self) -> bool:
        """Whether the figure is no lower than the original's, which was trained on the forget pairs."""
        return self.original is not None and (self.ranker - self.original).low > -self.threshold

    def to_json(self) -> Json:
        return {
            **self.ranker.to_json(),
            "threshold": self.threshold,
            "original": self.original and self.original.to_json(),
            "references": [estimate.to_json() for estimate in self.references],
            "gap": self.gap and self.gap.to_json(),
            "noise_floor": abs(self.noise.value) if self.noise else None,
            "power": self.power,
        }
