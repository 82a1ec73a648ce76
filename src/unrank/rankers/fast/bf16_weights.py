"""Copies of an encoder's weights in bfloat16, which its modules use during a pass.

The weights themselves stay float32, so that small updates are not lost. One kernel casts all weights and one casts
their gradients back. Copies are kept only while the caller promises that the weights do not change. A weight with a
low-rank change is added up in float32 and cast then: in bfloat16 most of a small change would be lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

PRECISION = torch.bfloat16
ALIGNED = 64
"""Kernels read a weight fast if the number of elements before it is a multiple of this."""


class LowRank(nn.Module):
    """A parametrization of a weight: the weight plus a product of two thin matrices."""

    def __init__(self, a: Tensor, b: Tensor, scale: float) -> None:
        super().__init__()
        self.a, self.b, self._scale = nn.Parameter(a), nn.Parameter(b), scale
        self.held: Tensor | None = None
        """A copy of the changed weight, which is used in its place during a pass."""

    def forward(self, weight: Tensor) -> Tensor:
        return self.changed(weight, self.a, self.b) if self.held is None else self.held

    def changed(self, weight: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """Return a weight with a change by these matrices."""
        return weight + (b @ a) * self._scale


class BF16Weights:
    """The weights of an encoder, and the slots of its modules that hold them."""

    def __init__(self, encoder: nn.Module) -> None:
        self._changes = [
            (made, made[0])
            for made in encoder.modules()
            if isinstance(made, ParametrizationList) and isinstance(made[0], LowRank)
        ]
        apart = {id(weight) for made, _ in self._changes for weight in made.parameters()}
        plain = [weight for weight in encoder.parameters() if id(weight) not in apart]
        self._weights = sorted(plain, key=lambda weight: weight.numel() % ALIGNED != 0)
        number = {id(weight): index for index, weight in enumerate(self._weights)}
        self._slots = [
            (module._parameters, name, number[id(weight)])
            for module in encoder.modules()
            for name, weight in module._parameters.items()
            if weight is not None and id(weight) in number
        ]
        self._constant = False
        self._copies: Sequence[Tensor] | None = None
        self._handle: Tensor | None = None
        self._fingerprint: int | None = None

    @property
    def trained(self) -> list[Tensor]:
        """The weights that are trained."""
        return [weight for weight in [*self._weights, *self._matrices] if weight.requires_grad]

    @property
    def _matrices(self) -> list[Tensor]:
        """The matrices of all low-rank changes."""
        return [matrix for _, change in self._changes for matrix in (change.a, change.b)]

    @property
    def fingerprint(self) -> int:
        """A number that changes if weights are moved in memory or others are trained."""
        if self._fingerprint is None or not self._constant:
            all_weights = [*self._weights, *self._matrices]
            self._fingerprint = hash(tuple((weight.data_ptr(), weight.requires_grad) for weight in all_weights))
        return self._fingerprint

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the encoder compute with the copies; gradients reach the weights."""
        with self._replaced(self.kept() or self._lowered()):
            yield

    def kept(self) -> Sequence[Tensor] | None:
        """Return the copies that are kept from one pass to the next; make them if there are none yet."""
        if self._constant and self._copies is None:
            self._copies = self._lowered()
        return self._copies

    @contextmanager
    def holding(self, copies: Sequence[Tensor] | None) -> Iterator[None]:
        """Use the copies of an earlier pass."""
        before, self._copies = self._copies, copies
        try:
            yield
        finally:
            self._copies = before

    def _lowered(self) -> Sequence[Tensor]:
        return _lower(*self._weights, *(made() for made, _ in self._changes))

    @contextmanager
    def leaves(self) -> Iterator[list[Tensor]]:
        """Let the encoder compute with detached copies; give those of the trained weights."""
        copies = [weight.detach() for weight in _cast([weight.detach() for weight in self._weights], PRECISION)]
        for copy, weight in zip(copies, self._weights, strict=True):
            copy.requires_grad_(weight.requires_grad)
        matrices = [matrix.detach().requires_grad_(matrix.requires_grad) for matrix in self._matrices]
        changed = [
            change.changed(made.original.detach(), *matrices[2 * place : 2 * place + 2]).to(PRECISION)
            for place, (made, change) in enumerate(self._changes)
        ]
        with self._replaced([*copies, *changed]):
            yield [leaf for leaf in [*copies, *matrices] if leaf.requires_grad]

    def handle(self) -> Tensor:
        """Return a tensor that represents all trained weights: its gradient is theirs, concatenated."""
        handle: Tensor = self._handle if self._handle is not None else _Handle.apply(*self.trained)  # type: ignore[no-untyped-call]
        if self._constant:
            self._handle = handle
        return handle

    def gradient_buffer(self) -> tuple[Tensor, list[Tensor]]:
        """Return a buffer for the gradient of the handle, and the view of each weight in it."""
        whole = torch.zeros(sum(weight.numel() for weight in self.trained), device=self._weights[0].device)
        return whole, _views(whole, self.trained)

    @contextmanager
    def _replaced(self, copies: Sequence[Tensor]) -> Iterator[None]:
        for parameters, name, index in self._slots:
            parameters[name] = copies[index]  # type: ignore[assignment]
        for (_, change), copy in zip(self._changes, copies[len(self._weights) :], strict=True):
            change.held = copy
        try:
            yield
        finally:
            for _, change in self._changes:
                change.held = None
            for parameters, name, index in self._slots:
                parameters[name] = self._weights[index]

    @contextmanager
    def constant(self) -> Iterator[None]:
        """Keep the copies from one pass to the next while no weight changes."""
        self._constant = True
        try:
            yield
        finally:
            self._constant, self._copies, self._handle, self._fingerprint = False, None, None, None


class _Lower(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        context.set_materialize_grads(False)
        copies = _cast(weights, PRECISION)
        context.mark_non_differentiable(
            *(copy for copy, trained in zip(copies, context.needs_input_grad, strict=True) if not trained)
        )
        return copies

    @staticmethod
    def backward(context: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        given = [gradient for gradient in gradients if gradient is not None]
        raised = iter(_cast(given, torch.float32))
        return tuple(None if gradient is None else next(raised) for gradient in gradients)


class _Handle(torch.autograd.Function):
    """A tensor whose value is never read."""

    @staticmethod
    def forward(context: Any, *weights: Tensor) -> Tensor:
        context.save_for_backward(*weights)
        return weights[0].new_empty(1).expand(sum(weight.numel() for weight in weights))

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        return tuple(_views(gradient, context.saved_tensors))


def _lower(*weights: Tensor) -> tuple[Tensor, ...]:
    copies: tuple[Tensor, ...] = _Lower.apply(*weights)  # type: ignore[no-untyped-call]
    return copies


def _cast(tensors: Sequence[Tensor], precision: torch.dtype) -> tuple[Tensor, ...]:
    """Copy tensors into one block of memory."""
    whole = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=precision, device=tensors[0].device)
    cast = _views(whole, tensors)
    torch._foreach_copy_(cast, list(tensors))
    return tuple(cast)


def _views(whole: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    return list(torch._C._nn.unflatten_dense_tensors(whole, list(like)))
