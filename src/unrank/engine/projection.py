"""Projection: take out of an update what would raise the loss on other samples, such as kept pairs.

Reference: Wang et al., GRU: Mitigating the Trade-off between Unlearning and Retention for LLMs (2025).
Differs: the update of Adam is projected, not the gradient, because Adam rescales a gradient and would undo it. The
gradient on kept pairs is that of one batch, without a moving average.
"""

from __future__ import annotations

import torch

from unrank.rankers.base import Ranker


class Projection:
    """The weights of a ranker and their gradients at this moment: those of the loss that must not rise."""

    def __init__(self, ranker: Ranker) -> None:
        self._weights = [
            (weight, weight.detach().clone(), weight.grad.clone())
            for weight in ranker.parameters()
            if weight.grad is not None
        ]

    @torch.no_grad()
    def apply(self) -> None:
        """Project the update since then onto the directions that do not raise the loss, if it goes against them.

        A weight that has not moved stays where it is.
        """
        against, square = torch.zeros(()), torch.zeros(())
        for weight, before, gradient in self._weights:
            update = weight - before
            gradient.masked_fill_(update == 0, 0.0)
            against = against.to(weight.device) + (update * gradient).sum()
            square = square.to(weight.device) + gradient.square().sum()
        share = against.clamp(min=0.0) / square.clamp(min=torch.finfo(square.dtype).tiny)
        for weight, _, gradient in self._weights:
            weight.sub_(share * gradient)
