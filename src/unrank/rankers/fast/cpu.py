"""Shortcuts on a CPU.

- A faster gradient of GELU, if torch has no vector kernels for the CPU.
- A last layer that computes the first token of each text only.
- States after the frozen first layers, computed once per text and kept.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import gelu
from transformers.activations import GELUActivation

from unrank.rankers.fast.packed_layers import LayerNames, first_token_layer
from unrank.rankers.tokens import Ints, Tokens

NO_KERNELS = "DEFAULT"
"""The capability that torch reports for a CPU without vector kernels, such as most ARM CPUs."""

CACHE_BYTES = 1 << 30
"""Most bytes of kept states; other texts are computed each time."""


def faster_gelus(encoder: nn.Module) -> dict[Any, Any]:
    """Return a `forward` with a faster gradient for each GELU of an encoder, if it is faster on this CPU.

    The gradient takes a third of the time, which is an eighth of a training step.
    """
    if torch.backends.cpu.get_cpu_capability() != NO_KERNELS:
        return {}
    return {module: _gelu for module in encoder.modules() if isinstance(module, GELUActivation)}


def _gelu(states: Tensor) -> Tensor:
    if states.device.type != "cpu" or states.dtype != torch.float32 or not states.requires_grad:
        return gelu(states)
    activated: Tensor = _Gelu.apply(states)  # type: ignore[no-untyped-call]
    return activated


class _Gelu(torch.autograd.Function):
    """x Φ(x), with Φ the normal distribution and φ its density: the gradient is Φ(x) + x φ(x)."""

    @staticmethod
    def forward(context: Any, states: Tensor) -> Tensor:
        context.save_for_backward(states)
        return gelu(states)

    @staticmethod
    @once_differentiable
    def backward(context: Any, gradient: Tensor) -> Tensor:
        (states,) = context.saved_tensors
        below = torch.erf(states * math.sqrt(0.5)).add_(1).mul_(0.5)
        density = torch.square(states).mul_(-0.5).exp_().mul_(1 / math.sqrt(2 * math.pi))
        return below.addcmul_(states, density).mul_(gradient)


class LastLayer:
    """A replacement of the last layer's `forward`: with `first_only`, it computes the first token of each text."""

    def __init__(self, layer: nn.Module, names: LayerNames, heads: int) -> None:
        self._layer: Any = layer
        self._names, self._heads = names, heads

    def __call__(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        *more: Any,
        first_only: bool = False,
        **options: Any,
    ) -> Any:
        if not first_only:
            return type(self._layer).forward(self._layer, hidden_states, attention_mask, *more, **options)
        return first_token_layer(hidden_states, self._layer, self._names, self._heads, attention_mask)


class FrozenStates:
    """States after the last frozen layer, by the tokens of their text."""

    def __init__(self, frozen: int, apart: Ints | None = None) -> None:
        """Make an empty store. Encoders that share it embed the tokens `apart` each in its own way."""
        self.frozen = frozen
        self._apart = frozenset() if apart is None else frozenset(apart.tolist())
        self._states: dict[bytes, Tensor] = {}
        self._free = [CACHE_BYTES]  # a list, because both encoders fill the same memory
        self._owner = b""

    def of_another(self) -> FrozenStates:
        """Return the same states for another encoder; those of texts with a token `apart` are its own."""
        other = copy.copy(self)
        other._owner = b"another"
        return other

    def has(self, texts: Tokens) -> bool:
        return all(key in self._states for key in self._keys(texts))

    def _keys(self, texts: Tokens) -> list[bytes]:
        if not self._apart:
            return [text.tobytes() for text in texts]
        own = [not self._apart.isdisjoint(text.tolist()) for text in texts]
        return [self._owner + text.tobytes() if mine else text.tobytes() for text, mine in zip(texts, own, strict=True)]

    def padded(self, texts: Tokens, width: int) -> Tensor:
        """Return the states of texts, padded with zeros. [texts, width, size]"""
        states = [self._states[key] for key in self._keys(texts)]
        whole = states[0].new_zeros(len(states), width, states[0].shape[1])
        for row, state in zip(whole, states, strict=True):
            row[: len(state)] = state
        return whole

    def keep(self, texts: Tokens, padded: Tensor) -> None:
        self.take_in(texts, [row[:length].detach().clone() for length, row in zip(texts.lengths, padded, strict=True)])

    def take_in(self, texts: Tokens, states: Sequence[Tensor]) -> None:
        """Keep states of texts, as long as there is room. Each [tokens, size]"""
        for key, state in zip(self._keys(texts), states, strict=True):
            if key not in self._states and self._free[0] >= state.nbytes:
                self._states[key] = state
                self._free[0] -= state.nbytes

    def find(self, texts: Tokens) -> list[Tensor | None]:
        """Return the states of each text; `None` if they are not kept."""
        return [self._states.get(key) for key in self._keys(texts)]


@contextmanager
def skipping_frozen(states: FrozenStates | None, texts: Tokens | None, layers: Any) -> Iterator[None]:
    """Skip the frozen layers if their states are kept; else keep them."""
    if states is None or texts is None:
        yield
        return
    whole: Any = layers.layer
    if states.has(texts):
        layers.layer = whole[states.frozen :]
        hook = layers.register_forward_pre_hook(_insert(states, texts), with_kwargs=True)
    else:
        hook = whole[states.frozen - 1].register_forward_hook(_keep(states, texts))
    try:
        yield
    finally:
        hook.remove()
        layers.layer = whole


def _insert(states: FrozenStates, texts: Tokens) -> Any:
    def insert(layers: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
        given: Tensor = options.pop("hidden_states", None) if not inputs else inputs[0]
        return (states.padded(texts, given.shape[1]), *inputs[1:]), options

    return insert


def _keep(states: FrozenStates, texts: Tokens) -> Any:
    def keep(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor | tuple[Tensor, ...]) -> None:
        states.keep(texts, output if isinstance(output, Tensor) else output[0])

    return keep
