"""One figure of every ranker in an audit: the audited one, the original, and the retrained references.

A difference counts if its whole interval lies beyond a threshold. The threshold is the smallest difference of
interest, or the difference between two references if that is larger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Generic, TypeVar

from unrank.evaluation.bootstrap import MIN_QUERIES, BootstrapEstimate

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
