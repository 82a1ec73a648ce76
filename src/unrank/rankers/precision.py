"""An encoder's weights in lower precision, in the places of its own while it computes.

The weights themselves stay float32, so that small steps count. All are cast by one kernel and their gradients come back
by one; nothing is kept longer than the caller says that the weights stand still.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

PRECISION = torch.bfloat16
ALIGNED = 64
"""Kernels read a weight fast if the number of elements before it is a multiple of this."""


class LowWeights:
    """The weights of an encoder, and where its modules look for them."""

    def __init__(self, encoder: nn.Module) -> None:
        self._weights = sorted(encoder.parameters(), key=lambda weight: weight.numel() % ALIGNED != 0)
        number = {id(weight): place for place, weight in enumerate(self._weights)}
        self._places = [
            (module._parameters, name, number[id(weight)])
            for module in encoder.modules()
            for name, weight in module._parameters.items()
            if weight is not None
        ]
        self._still = False
        self._low: Sequence[Tensor] | None = None

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """While the encoder computes with them."""
        low = self._low or _lower(*self._weights)
        if self._still:
            self._low = low
        for weights, name, place in self._places:
            weights[name] = low[place]  # type: ignore[assignment]
        try:
            yield
        finally:
            for weights, name, place in self._places:
                weights[name] = self._weights[place]

    @contextmanager
    def still(self) -> Iterator[None]:
        """While no weight changes: what is made of them for one pass serves the next."""
        self._still = True
        try:
            yield
        finally:
            self._still, self._low = False, None


class _Lower(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        context.set_materialize_grads(False)
        low = _cast(weights, PRECISION)
        context.mark_non_differentiable(
            *(weight for weight, moves in zip(low, context.needs_input_grad, strict=True) if not moves)
        )
        return low

    @staticmethod
    def backward(context: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        given = [gradient for gradient in gradients if gradient is not None]
        raised = iter(_cast(given, torch.float32))
        return tuple(None if gradient is None else next(raised) for gradient in gradients)


def _lower(*weights: Tensor) -> tuple[Tensor, ...]:
    low: tuple[Tensor, ...] = _Lower.apply(*weights)  # type: ignore[no-untyped-call]
    return low


def _cast(tensors: Sequence[Tensor], precision: torch.dtype) -> tuple[Tensor, ...]:
    """Copies in one stretch of memory."""
    whole = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=precision, device=tensors[0].device)
    cast = list(torch._C._nn.unflatten_dense_tensors(whole, list(tensors)))
    torch._foreach_copy_(cast, list(tensors))
    return tuple(cast)
