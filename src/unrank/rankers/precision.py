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
        self._handle: Tensor | None = None
        self._identity: int | None = None

    @property
    def moving(self) -> list[Tensor]:
        """The weights that are trained."""
        return [weight for weight in self._weights if weight.requires_grad]

    @property
    def identity(self) -> int:
        """Another number where weights lie elsewhere, or others are trained."""
        if self._identity is None or not self._still:
            self._identity = hash(tuple((weight.data_ptr(), weight.requires_grad) for weight in self._weights))
        return self._identity

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """While the encoder computes with them."""
        low = self._low or _lower(*self._weights)
        if self._still:
            self._low = low
        with self._replaced(low):
            yield

    @contextmanager
    def leaves(self) -> Iterator[list[Tensor]]:
        """The same, with no way back to the weights themselves: those that are trained, in lower precision."""
        low = [weight.detach() for weight in _cast([weight.detach() for weight in self._weights], PRECISION)]
        for copy, weight in zip(low, self._weights, strict=True):
            copy.requires_grad_(weight.requires_grad)
        with self._replaced(low):
            yield [copy for copy in low if copy.requires_grad]

    def handle(self) -> Tensor:
        """A tensor that stands for all weights that are trained: its gradient is theirs, one after another."""
        handle: Tensor = self._handle if self._handle is not None else _Handle.apply(*self.moving)  # type: ignore[no-untyped-call]
        if self._still:
            self._handle = handle
        return handle

    def gradient_buffer(self) -> tuple[Tensor, list[Tensor]]:
        """Room for the gradient of the handle, and the place of each weight in it."""
        whole = torch.zeros(sum(weight.numel() for weight in self.moving), device=self._weights[0].device)
        return whole, _cut(whole, self.moving)

    @contextmanager
    def _replaced(self, low: Sequence[Tensor]) -> Iterator[None]:
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
            self._still, self._low, self._handle, self._identity = False, None, None, None


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


class _Handle(torch.autograd.Function):
    """Nobody reads what it holds."""

    @staticmethod
    def forward(context: Any, *weights: Tensor) -> Tensor:
        context.save_for_backward(*weights)
        return weights[0].new_empty(1).expand(sum(weight.numel() for weight in weights))

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        return tuple(_cut(gradient, context.saved_tensors))


def _lower(*weights: Tensor) -> tuple[Tensor, ...]:
    low: tuple[Tensor, ...] = _Lower.apply(*weights)  # type: ignore[no-untyped-call]
    return low


def _cast(tensors: Sequence[Tensor], precision: torch.dtype) -> tuple[Tensor, ...]:
    """Copies in one stretch of memory."""
    whole = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=precision, device=tensors[0].device)
    cast = _cut(whole, tensors)
    torch._foreach_copy_(cast, list(tensors))
    return tuple(cast)


def _cut(whole: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    return list(torch._C._nn.unflatten_dense_tensors(whole, list(like)))
