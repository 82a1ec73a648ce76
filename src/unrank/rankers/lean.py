"""How an encoder runs on a GPU: in bfloat16, and without its padding.

The weights stay float32, so that small steps count; each pass casts them. The layers of the families listed here see
the tokens of all texts end to end, and each token attends to those of its own text; other families see padding. On a
CPU nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from unrank.rankers.staging import to_device
from unrank.rankers.tokens import Ints

PRECISION = torch.bfloat16
PACKED = "unrank_packed"
LAYERS = {
    "bert": "encoder",
    "camembert": "encoder",
    "distilbert": "transformer",
    "electra": "encoder",
    "roberta": "encoder",
    "xlm-roberta": "encoder",
}
"""Families whose layers know nothing of positions, and what they call the module that holds them."""


class LeanEncoder:
    """Takes the place of an encoder's `forward`. It begins where the encoder does and hands back float32."""

    def __init__(self, encoder: nn.Module) -> None:
        self._plain = _Plain(encoder)
        self._weights = dict(self._plain.named_parameters())
        self._lengths: Ints | None = None
        encoder.forward = self  # also where a library calls `forward` itself

    @contextmanager
    def reading(self, lengths: Ints) -> Iterator[None]:
        """While texts of these lengths are read. Known here, they need not be asked of the device, which would wait."""
        self._lengths = lengths
        try:
            yield
        finally:
            self._lengths = None

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        encoder = self._plain.encoder
        if not on_gpu(encoder):
            return self._plain(*inputs, **options)
        weights = dict(zip(self._weights, _lower(*self._weights.values()), strict=True))
        with _packed(encoder, self._lengths):
            output = functional_call(self._plain, weights, inputs, options, tie_weights=False)
        for name, value in output.items():
            if isinstance(value, Tensor) and value.dtype == PRECISION:
                output[name] = value.float()
        return output


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
    cast = [torch.empty_like(tensor, dtype=precision) for tensor in tensors]
    torch._foreach_copy_(cast, list(tensors))
    return tuple(cast)


class _Plain(nn.Module):
    """The encoder with the forward pass of its class."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, *inputs: Any, **options: Any) -> Any:
        return type(self.encoder).forward(self.encoder, *inputs, **options)


def on_gpu(encoder: nn.Module) -> bool:
    return next(encoder.parameters()).is_cuda


@contextmanager
def _packed(encoder: Any, lengths: Ints | None) -> Iterator[None]:
    """Let the layers see no padding, where lengths are known and the family allows it."""
    config = encoder.config
    if lengths is None or config.model_type not in LAYERS:
        yield
        return
    layers = getattr(encoder, LAYERS[config.model_type])
    packing = _Packing(lengths, encoder.device)
    usual, config._attn_implementation = config._attn_implementation, PACKED
    hooks = (
        layers.register_forward_pre_hook(packing.pack, with_kwargs=True),
        layers.register_forward_hook(packing.unpack),
    )
    try:
        yield
    finally:
        config._attn_implementation = usual
        for hook in hooks:
            hook.remove()


class _Packing:
    """Where each token of a padded batch stands when all texts are laid end to end."""

    def __init__(self, lengths: Ints, device: torch.device) -> None:
        self._longest, self._tokens = int(lengths.max()), int(lengths.sum())
        self._starts = to_device(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), device)
        self._lengths = to_device(lengths, device)

    def pack(self, layers: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
        states: Tensor = options.pop("hidden_states", None) if not inputs else inputs[0]
        self._shape = states.shape
        text = torch.repeat_interleave(self._lengths, output_size=self._tokens)
        place = torch.arange(self._tokens, device=states.device) - self._starts[text]
        self._row = text * states.shape[1] + place
        options |= {"cu_seq_lens_q": self._starts, "max_length_q": self._longest}
        return (states.flatten(0, 1)[self._row].unsqueeze(0), *inputs[1:]), options

    def unpack(self, layers: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        packed: Tensor = output.last_hidden_state[0]
        padded = packed.new_zeros(self._shape[0] * self._shape[1], self._shape[2])
        output.last_hidden_state = padded.index_copy(0, self._row, packed).view(self._shape)
        return output


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: None, *, cu_seq_lens_q: Tensor,
    max_length_q: int, **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Each token to those of its own text. [1, heads, tokens, width] -> [1, tokens, heads, width]"""
    query, key, value = (side[0].transpose(0, 1) for side in (query, key, value))
    states = varlen_attn(query, key, value, cu_seq_lens_q, cu_seq_lens_q, max_length_q, max_length_q)
    assert isinstance(states, Tensor)
    return states.unsqueeze(0), None


AttentionInterface.register(PACKED, _attend)
