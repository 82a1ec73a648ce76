"""One figure of all rankers in an audit: the ranker's, the original's, and those of rankers that never saw it.

A difference counts if its whole interval lies beyond a threshold: a least difference that is worth telling, or what two
retrained rankers differ by, if that is more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Generic, TypeVar

from unrank.evaluation.bootstrap import BootstrapEstimate

FEWEST = 10
"""Of fewer queries an interval says nothing."""

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Each(Generic[T]):
    """One thing of each ranker in an audit: the audited one, the original, the references."""

    ranker: T
    original: T | None
    references: tuple[T, ...]

    def map(self, make: Callable[[T], U]) -> Each[U]:
        original = make(self.original) if self.original is not None else None
        return Each(make(self.ranker), original, tuple(make(one) for one in self.references))


@dataclass(frozen=True)
class Readings(Each[BootstrapEstimate]):
    """The same figure, read of each ranker on the same queries."""

    margin: float
    """The least difference that is worth telling."""

    @classmethod
    def of(cls, each: Each[BootstrapEstimate], margin: float) -> Readings:
        return cls(each.ranker, each.original, each.references, margin)

    @property
    def reference(self) -> BootstrapEstimate | None:
        return BootstrapEstimate.mean_of(self.references) if self.references else None

    @property
    def noise(self) -> BootstrapEstimate | None:
        """What the two references differ by that differ most; None where there are not two."""
        gaps = (one - other for one, other in combinations(self.references, 2))
        return max(gaps, key=lambda gap: abs(gap.value), default=None)

    @property
    def threshold(self) -> float:
        return max(self.margin, abs(self.noise.value)) if self.noise else self.margin

    @property
    def gap(self) -> BootstrapEstimate | None:
        """How much more the ranker shows than one that never saw it."""
        return self.ranker - self.reference if self.reference else None

    @property
    def enough(self) -> bool:
        return self.ranker.queries >= FEWEST

    @property
    def above(self) -> bool:
        return self.gap is not None and self.gap.low > self.threshold

    @property
    def below(self) -> bool:
        return self.gap is not None and self.gap.high < -self.threshold

    @property
    def power(self) -> float | None:
        """About the least difference from a retrained ranker that would have been told."""
        return self.threshold + (self.gap.high - self.gap.low) / 2 if self.gap else None

    @property
    def as_original(self) -> bool:
        """Whether it shows no less than the original, which was trained on what is to be forgotten."""
        return self.original is not None and (self.ranker - self.original).low > -self.threshold

    def to_json(self) -> dict[str, Any]:
        return {
            **self.ranker.to_json(),
            "threshold": self.threshold,
            "original": self.original and self.original.to_json(),
            "references": [reading.to_json() for reading in self.references],
            "gap": self.gap and self.gap.to_json(),
            "noise_floor": abs(self.noise.value) if self.noise else None,
            "power": self.power,
        }
