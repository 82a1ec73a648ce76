"""Landing: from weights above the target and weights below it to weights on it.

On the straight line between the two, the place where the forget MRR is on target is looked for by estimates and
confirmed by measurements, which narrow the line down. A run that steps over the target in its last epoch is brought
back to where it wanted to stop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from unrank.rankers.base import Ranker

MOST_EVALUATIONS = 12
TRUSTED = 3
"""So many measurements may be led by estimates; if they did not come near the target, the rest go by themselves."""
MISSES = 2
"""After so many measurements below the target and none above it, the start of the line is measured."""
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


@dataclass(frozen=True)
class Landing:
    """Where on the line the weights came to lie, what they measure, and how many measurements it took."""

    share: float
    forget: float
    evaluations: int


def weights_of(ranker: Ranker) -> Weights:
    """A copy of the weights that training moves."""
    return {name: weight.detach().clone() for name, weight in ranker.named_parameters() if weight.requires_grad}


def put_weights(ranker: Ranker, above: Weights, below: Weights | None = None, share: float = 0.0) -> None:
    """Set the weights to `above`, or to so much of the way from there to `below`."""
    with torch.no_grad():
        for name, weight in ranker.named_parameters():
            if name in above:
                weight.copy_(above[name] if below is None else torch.lerp(above[name], below[name], share))


def land(ranker: Ranker, above: Weights, ends: Ends, target: float, near: float, gauge: Measure) -> Landing:
    """Move a ranker that has crossed the target back onto it. `above` are the last weights above the target.

    If no point on the line is near enough, the nearest at or below the target is taken. That `above` lies above the
    target may be no more than an estimate: it is measured where two measurements were below.
    """
    below = weights_of(ranker)
    line = _Line(0.0, ends.above, 1.0, ends.here)
    best = Landing(1.0, ends.here, 0) if ends.measured else None
    evaluations = 0

    def value_at(share: float, ask: Callable[[], float]) -> float:
        put_weights(ranker, above, below, share)
        return ask()

    while (best is None or abs(best.forget - target) > near) and evaluations < MOST_EVALUATIONS:
        told = not gauge.exact and evaluations < TRUSTED
        guess = _narrowed(line, target, near, lambda share: value_at(share, gauge.estimate)) if told else line
        share = guess.crossing(target, evaluations)
        forget = value_at(share, gauge.measure_again if evaluations or ends.measured else gauge.measure)
        evaluations += 1
        if abs(forget - target) <= near or (forget <= target and (best is None or best.forget < forget)):
            best = Landing(share, forget, evaluations)
        line = line.cut(share, forget, target)
        if evaluations == MISSES and line.low == 0.0 and forget < target - near and not gauge.exact:
            evaluations, forget = evaluations + 1, value_at(0.0, gauge.measure)
            if forget <= target + near:  # the target does not lie on this line
                if abs(forget - target) <= near or best is None or best.forget < forget:
                    best = Landing(0.0, forget, evaluations)
                break
            line = replace(line, low_value=forget)
    if best is not None and best.share < 1.0:
        put_weights(ranker, above, below, best.share)
    else:
        put_weights(ranker, below)
    if best is None:
        best, evaluations = Landing(1.0, gauge.measure(), evaluations), evaluations + 1
    return replace(best, evaluations=evaluations)


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


def _narrowed(line: _Line, target: float, near: float, estimate: Callable[[float], float]) -> _Line:
    """The line cut down by estimates until they say that its crossing is on target."""
    for turn in range(MOST_EVALUATIONS):
        share = line.crossing(target, turn)
        value = estimate(share)
        if abs(value - target) <= near / 2:
            return _Line(share, value, share, value)
        line = line.cut(share, value, target)
    return line
