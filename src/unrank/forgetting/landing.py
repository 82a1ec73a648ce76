"""Landing: from weights above the target and weights below it to weights on it.

On the straight line between the two, the place where the forget MRR is on target is looked for by estimates and
confirmed by measurements, which narrow the line down. What an estimate was off by where it was measured, the others
are taken to have been off by too, so that few more are needed. A run that steps over the target in its last epoch is
brought back to where it wanted to stop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from unrank.rankers.base import Ranker
from unrank.record import Landing

MOST_EVALUATIONS = 12
TRUSTED = 3
"""So many measurements may be led by estimates; if they did not come near the target, the rest go by themselves."""
MISSES = 2
"""After so many measurements on one side of the target and none on the other, the end that lies there is measured."""
Weights = dict[str, Tensor]


class Measure(Protocol):
    """Whoever knows the ranker's forget MRR."""

    exact: bool

    def measure(self) -> float:
        """The forget MRR."""

    def measure_again(self) -> float:
        """The forget MRR, not far from where it was measured last."""

    def estimate(self) -> float:
        """About the same, in less time; where it is exact, no less."""


@dataclass(frozen=True)
class Ends:
    """The forget MRR at both ends of the line, as far as it is known."""

    above: float
    here: float
    measured: bool
    """Whether it was measured here; if not, it was estimated."""


def weights_of(ranker: Ranker) -> Weights:
    """A copy of the weights that training moves."""
    return {name: weight.detach().clone() for name, weight in ranker.named_parameters() if weight.requires_grad}


def put_weights(ranker: Ranker, above: Weights, below: Weights | None = None, share: float = 0.0) -> None:
    """Set the weights to `above`, or to so much of the way from there to `below`."""
    with torch.no_grad():
        for name, weight in ranker.named_parameters():
            if name in above:
                weight.copy_(above[name] if below is None else torch.lerp(above[name], below[name], share))


def land(ranker: Ranker, above: Weights, ends: Ends, target: float, near: float, estimator: Measure) -> Landing:
    """Move a ranker that has crossed the target back onto it. `above` are the last weights above the target.

    If no point on the line is near enough, the nearest at or below the target is taken. On which side of the target an
    end of the line lies may be no more than an estimate: it is measured where measurements make one doubt it. A line
    that turns out to lie above the target throughout is gone down to its end.
    """
    return _Search(ranker, above, ends, target, near, estimator).run()


class _Search:
    """For the place on the line that is on target."""

    def __init__(
        self, ranker: Ranker, above: Weights, ends: Ends, target: float, near: float, estimator: Measure
    ) -> None:
        self._ranker, self._above, self._below = ranker, above, weights_of(ranker)
        self._target, self._near, self._estimator = target, near, estimator
        self._line = _Line(0.0, ends.above, 1.0, ends.here)
        self._best = Landing(1.0, ends.here, 0) if ends.measured else None
        self._known_nearby = ends.measured
        self._evaluations = 0
        estimated = {0.0: ends.above} if ends.measured else {0.0: ends.above, 1.0: ends.here}
        self._estimates = _Estimates(
            lambda share: self._at(share, estimator.estimate), {} if estimator.exact else estimated
        )

    def run(self) -> Landing:
        while not self._arrived and self._evaluations < MOST_EVALUATIONS:
            self._measure(self._likeliest())
            if not self._arrived and (end := self._doubtful_end()) is not None:
                self._measure(end)
                if self._line.low == self._line.high:  # nothing is left of it
                    break
        best = self._best or Landing(1.0, self._line.low_value, 0)  # or all of the line lies above the target
        put_weights(self._ranker, self._above, self._below, best.share)
        return replace(best, evaluations=self._evaluations)

    @property
    def _arrived(self) -> bool:
        return self._best is not None and abs(self._best.forget - self._target) <= self._near

    def _likeliest(self) -> float:
        trusted = not self._estimator.exact and self._evaluations < TRUSTED
        line = self._estimates.narrowed(self._line, self._target, self._near) if trusted else self._line
        return line.crossing(self._target, self._evaluations)

    def _measure(self, share: float) -> None:
        forget = self._at(share, self._estimator.measure_again if self._known_nearby else self._estimator.measure)
        self._known_nearby = True
        self._evaluations += 1
        self._estimates.correct(share, forget)
        best, near = self._best, abs(forget - self._target) <= self._near
        if near or (forget <= self._target and (best is None or best.forget < forget)):
            self._best = Landing(share, forget, self._evaluations)
        self._line = self._line.cut(share, forget, self._target)

    def _at(self, share: float, ask: Callable[[], float]) -> float:
        put_weights(self._ranker, self._above, self._below, share)
        return ask()

    def _doubtful_end(self) -> float | None:
        """An end that was never measured and that no measurement has shown to be on the right side of the target: to
        be measured after so many on the other side, or as soon as what it was estimated at, corrected, says no."""
        for end, is_above in ((self._line.low, True), (self._line.high, False)):
            estimate = self._estimates.of_end(end)
            if estimate is not None and (self._evaluations >= MISSES or (estimate > self._target) != is_above):
                return end
        return None


@dataclass(frozen=True)
class _Line:
    """A stretch of the way with its ends' values: above the target at the low share, at or below it at the high one."""

    low: float
    low_value: float
    high: float
    high_value: float

    def crossing(self, target: float, turn: int) -> float:
        """Where the target may lie: as on a straight line, or by turns half way, which no bend can slow down."""
        fall = self.low_value - self.high_value
        part = (self.low_value - target) / fall if turn % 3 < 2 and fall > 0 else 0.5
        return self.low + min(max(part, 0.05), 0.95) * (self.high - self.low)

    def cut(self, share: float, value: float, target: float) -> _Line:
        """What is left of it when the value at a share is known."""
        if value > target:
            return _Line(share, value, self.high, self.high_value)
        return _Line(self.low, self.low_value, share, value)


class _Estimates:
    """What estimates have said of places on the line, and of its ends."""

    def __init__(self, estimate: Callable[[float], float], ends: dict[float, float]) -> None:
        self._estimate = estimate
        self._values = dict(ends)

    def narrowed(self, line: _Line, target: float, near: float) -> _Line:
        """The line cut down, by what was said and by more estimates, until one is on target."""
        for share, value in self._values.items():
            if line.low < share < line.high:
                line = line.cut(share, value, target)
        for turn in range(MOST_EVALUATIONS):
            share = line.crossing(target, turn)
            value = self._values[share] = self._estimate(share)
            if abs(value - target) <= near / 2:
                return _Line(share, value, share, value)
            line = line.cut(share, value, target)
        return line

    def correct(self, share: float, measured: float) -> None:
        """What was measured is no estimate any more, and the others were off by as much."""
        off = measured - self._values.pop(share, measured)
        self._values = {other: value + off for other, value in self._values.items()}

    def of_end(self, share: float) -> float | None:
        """What an end of the line was estimated at; None for a place that was measured."""
        return self._values.get(share)
