"""An encoder that runs with less than its library gives it.

On a GPU it computes in bfloat16 and without its padding: the weights stay float32, so that small steps count, and each
pass casts them; the layers of families that allow it see the tokens of all texts end to end. On a CPU it passes over
frozen layers whose result is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from unrank.rankers.frozen_start import FrozenStart, beginning_with
from unrank.rankers.packing import family_of, layers_of, run_packed
from unrank.rankers.tokens import Ints, Tokens

PRECISION = torch.bfloat16
ROUND = 64


class LeanEncoder:
    """Takes the place of an encoder's `forward`, and hands back float32."""

    def __init__(self, encoder: nn.Module, first_only: bool = False) -> None:
        self.first_only = first_only
        """Whether all that is read of a text is what its first token became."""
        self._plain = _Plain(encoder)
        self._weights = dict(self._plain.named_parameters())
        self.start: FrozenStart | None = None
        self._still = False
        self._lower_weights: Sequence[Tensor] | None = None
        self._lengths: Ints | None = None
        self._texts: Tokens | None = None
        encoder.forward = self  # also where a library calls `forward` itself

    @property
    def frozen_layers(self) -> int:
        """How many of its first layers stay as they are, with all that stands below them."""
        layers = layers_of(self._plain.encoder)
        if layers is None:
            return 0
        if any(weight.requires_grad for name, weight in self._weights.items() if "embedding" in name):
            return 0
        moves = [any(weight.requires_grad for weight in layer.parameters()) for layer in layers.layer]
        return moves.index(True) if any(moves) else len(moves)

    @contextmanager
    def reading(self, lengths: Ints | None, texts: Tokens | None = None) -> Iterator[None]:
        """While texts of these lengths are read. Known here, they need not be asked of the device, which would wait.
        Without lengths nothing is packed; without texts nothing is remembered."""
        self._lengths, self._texts = lengths, texts
        try:
            yield
        finally:
            self._lengths = self._texts = None

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        encoder = self._plain.encoder
        if not on_gpu(encoder):
            with beginning_with(self.start, self._texts, encoder):
                return self._plain(*inputs, **options)
        weights = dict(zip(self._weights, self._lowered(), strict=True))
        if self._lengths is not None and family_of(encoder):
            options = {"lengths": self._lengths, "first_only": self.first_only, **options}
        output = functional_call(self._plain, weights, inputs, options, tie_weights=False)
        for name, value in output.items():
            if isinstance(value, Tensor) and value.dtype == PRECISION:
                output[name] = value.float()
        return output

    @contextmanager
    def still(self) -> Iterator[None]:
        """While no weight changes: what is made of them for one pass serves the next."""
        self._still = True
        try:
            yield
        finally:
            self._still, self._lower_weights = False, None

    def _lowered(self) -> Sequence[Tensor]:
        """The weights in lower precision."""
        if self._lower_weights is not None:
            return self._lower_weights
        lower = _lower(*self._weights.values())
        if self._still:
            self._lower_weights = lower
        return lower


class _Lower(torch.autograd.Function):
    """All weights in lower precision, by one kernel instead of one each; their gradients back the same way."""

    @staticmethod
    def forward(context: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        lower = _cast(weights, PRECISION)
        frozen = [weight for weight, moves in zip(lower, context.needs_input_grad, strict=True) if not moves]
        context.mark_non_differentiable(*frozen)
        return lower

    @staticmethod
    def backward(context: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        given = [gradient for gradient in gradients if gradient is not None]
        raised = iter(_cast(given, torch.float32))
        return tuple(None if gradient is None else next(raised) for gradient in gradients)


def _lower(*weights: Tensor) -> tuple[Tensor, ...]:
    lower: tuple[Tensor, ...] = _Lower.apply(*weights)  # type: ignore[no-untyped-call]
    return lower


def _cast(tensors: Sequence[Tensor], precision: torch.dtype) -> tuple[Tensor, ...]:
    """Copies in one stretch of memory, each begun at a round number so that kernels may read it in one go."""
    sizes = [-(-tensor.numel() // ROUND) * ROUND for tensor in tensors]
    whole = torch.empty(sum(sizes), dtype=precision, device=tensors[0].device)
    cast = [
        part[: tensor.numel()].view(tensor.shape)
        for part, tensor in zip(torch.split(whole, sizes), tensors, strict=True)
    ]
    torch._foreach_copy_(cast, list(tensors))
    return tuple(cast)


class _Plain(nn.Module):
    """The encoder with the forward pass of its class, without padding where lengths are given."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, *inputs: Any, lengths: Ints | None = None, first_only: bool = False, **options: Any) -> Any:
        if lengths is not None:
            return run_packed(self.encoder, lengths, first_only, *inputs, **options)
        return type(self.encoder).forward(self.encoder, *inputs, **options)


def on_gpu(encoder: nn.Module) -> bool:
    return next(encoder.parameters()).is_cuda
