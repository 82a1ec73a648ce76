"""Landing: from weights above the target and weights below it to weights on it.

A search on the straight line between the two finds the point where the forget MRR is on target. Estimates propose a
point, and measurements confirm it and shorten the line. The error of an estimate at a measured point corrects the other
estimates, so that few more are needed. So a run that steps over the target in its last epoch ends on it.
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
"""The number of measurements that estimates may lead. If none comes near the target, the rest go without them."""
MISSES = 2
"""After this many measurements on one side of the target and none on the other, the other end is measured."""
Weights = dict[str, Tensor]


class Measure(Protocol):
    """A source of the ranker's forget MRR."""

    exact: bool

    def measure(self) -> float:
        """Return the forget MRR."""

    def measure_again(self) -> float:
        """Return the forget MRR of weights not far from the last measured ones."""

    def estimate(self) -> float:
        """Return an estimate of the forget MRR, in less time; if `exact`, a measurement."""


@dataclass(frozen=True)
class Ends:
    """The forget MRR at both ends of the line."""

    above: float
    here: float
    measured: bool
    """Whether `here` was measured; otherwise it was estimated."""


def weights_of(ranker: Ranker) -> Weights:
    """Return a copy of the trainable weights."""
    return {name: weight.detach().clone() for name, weight in ranker.named_parameters() if weight.requires_grad}


def put_weights(ranker: Ranker, above: Weights, below: Weights | None = None, share: float = 0.0) -> None:
    """Set the weights to `above`, or to a share of the way from there to `below`."""
    with torch.no_grad():
        for name, weight in ranker.named_parameters():
            if name in above:
                weight.copy_(above[name] if below is None else torch.lerp(above[name], below[name], share))


def land(ranker: Ranker, above: Weights, ends: Ends, target: float, near: float, estimator: Measure) -> Landing:
    """Move a ranker that has crossed the target back onto it. `above` are the last weights above the target.

    If no point on the line is near enough, take the nearest one at or below the target. The side of the target that an
    end is on may be an estimate: it is measured if other measurements contradict it. If the whole line is above the
    target, take its lower end.
    """
    return _Search(ranker, above, ends, target, near, estimator).run()


class _Search:
    """The search for the point on the line that is on target."""

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
        best = self._best or Landing(1.0, self._line.low_value, 0)  # or the whole line is above the target
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
        """Return an end whose side of the target is only estimated, and doubtful; `None` if there is none.

        It is doubtful after `MISSES` measurements on the other side, or if its corrected estimate contradicts its side.
        """
        for end, is_above in ((self._line.low, True), (self._line.high, False)):
            estimate = self._estimates.of_end(end)
            if estimate is not None and (self._evaluations >= MISSES or (estimate > self._target) != is_above):
                return end
        return None


@dataclass(frozen=True)
class _Line:
    """A part of the line with the values of its ends: above the target at the low share, at or below it at the high."""

    low: float
    low_value: float
    high: float
    high_value: float

    def crossing(self, target: float, turn: int) -> float:
        """Return a share where the target may be: by linear interpolation, and every third turn half way."""
        fall = self.low_value - self.high_value
        part = (self.low_value - target) / fall if turn % 3 < 2 and fall > 0 else 0.5
        return self.low + min(max(part, 0.05), 0.95) * (self.high - self.low)

    def cut(self, share: float, value: float, target: float) -> _Line:
        """Return the part that remains when the value at a share is known."""
        if value > target:
            return _Line(share, value, self.high, self.high_value)
        return _Line(self.low, self.low_value, share, value)


class _Estimates:
    """The estimates of points on the line, and of its ends."""

    def __init__(self, estimate: Callable[[float], float], ends: dict[float, float]) -> None:
        self._estimate = estimate
        self._values = dict(ends)

    def narrowed(self, line: _Line, target: float, near: float) -> _Line:
        """Shorten the line by the estimates so far and by more of them, until one is on target."""
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
        """Drop the estimate of a measured point, and correct the others by its error."""
        off = measured - self._values.pop(share, measured)
        self._values = {other: value + off for other, value in self._values.items()}

    def of_end(self, share: float) -> float | None:
        """Return the estimate of an end of the line; `None` if it was measured."""
        return self._values.get(share)
