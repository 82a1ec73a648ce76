"""Landing: from weights above the target and weights below it to weights on it.

The straight line between the two is bisected by measuring the forget MRR alone. A run that steps over the
target in its last epoch is brought back to where it wanted to stop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from unrank.rankers.base import Ranker

MOST_EVALUATIONS = 12
Weights = dict[str, Tensor]


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


def land(
    ranker: Ranker, above: Weights, at_end: float, target: float, near: float, measure: Callable[[], float]
) -> Landing:
    """Move a ranker that has crossed the target back onto it.

    `above` are the last weights that measured above the target, `at_end` what the ranker measures now. If no point on
    the line is near enough, the nearest at or below the target is taken.
    """
    below = weights_of(ranker)
    low, high = 0.0, 1.0
    best = Landing(1.0, at_end, 0)
    evaluations = 0
    while abs(best.forget - target) > near and evaluations < MOST_EVALUATIONS:
        middle = (low + high) / 2
        put_weights(ranker, above, below, middle)
        forget = measure()
        evaluations += 1
        if abs(forget - target) <= near or best.forget < forget <= target:
            best = Landing(middle, forget, evaluations)
        low, high = (middle, high) if forget > target else (low, middle)
    if best.share == 1.0:
        put_weights(ranker, below)
    else:
        put_weights(ranker, above, below, best.share)
    return Landing(best.share, best.forget, evaluations)
