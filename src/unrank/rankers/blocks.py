"""What a layer of a BERT-like encoder computes, over texts laid end to end.

Written out because a library's layer launches many more kernels than are needed: query, key and value are one product
here, and on a GPU that has Triton all of it is one function with a gradient of its own (`fused.py`). Where all that is
read of a text is its first token, the last layer computes no other, on a CPU too, where the others are the library's.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear, scaled_dot_product_attention
from transformers.activations import GELUActivation

HEAD_SIZES = (16, 32, 64, 128)
"""Those that the kernels of attention are written for."""


class Names(NamedTuple):
    """What a family calls the parts of a layer."""

    query: str
    key: str
    value: str
    mix: str
    mix_norm: str
    wide: str
    narrow: str
    norm: str
    activation: str


BERT = Names(
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
    "intermediate.intermediate_act_fn",
)
DISTILBERT = Names(
    "attention.q_lin",
    "attention.k_lin",
    "attention.v_lin",
    "attention.out_lin",
    "sa_layer_norm",
    "ffn.lin1",
    "ffn.lin2",
    "output_layer_norm",
    "ffn.activation",
)


class Spans(NamedTuple):
    """Where texts stand that are laid end to end: text i from `starts[i]` to `starts[i + 1]`."""

    starts: Tensor  # int32 [texts + 1]
    longest: int


def block(states: Tensor, layer: Any, names: Names, heads: int, spans: Spans, first_only: bool = False) -> Tensor:
    """One layer; of each text its first token alone, if no more is read. [tokens or texts, size]"""
    *parts, activation = map(layer.get_submodule, names)
    query, key, value, mix, mix_norm, wide, narrow, norm = parts
    size = (heads, states.shape[1] // heads)
    can_fuse = has_kernels(states.device) and size[1] in HEAD_SIZES
    if can_fuse and not first_only and isinstance(activation, GELUActivation):
        from unrank.rankers.fused import FusedLayer, layer_of

        run = FusedLayer.apply if torch.is_grad_enabled() else layer_of
        weights = [weight for part in (mix, mix_norm, wide, narrow, norm) for weight in (part.weight, part.bias)]
        fused: Tensor = run(states, *spans, heads, mix_norm.eps, norm.eps, *_joined(query, key, value), *weights)
        return fused
    if first_only:
        asking = states[spans.starts[:-1]]
        asked_by = Spans(torch.arange(len(spans.starts), dtype=torch.int32, device=states.device), 1)
        asks, sides = query(asking).view(-1, *size), linear(states, *_joined(key, value)).view(-1, 2, *size)
        if can_fuse and not torch.is_grad_enabled():
            from unrank.rankers.attention import attend_first

            return _after_attention(asking, attend_first(asks, sides, spans.starts).flatten(1), layer, names)
        keys, values = sides.unbind(1)
    else:
        asking, asked_by = states, spans
        asks, keys, values = linear(states, *_joined(query, key, value)).view(-1, 3, *size).unbind(1)
    seen = attend(asks, keys, values, asked_by, spans).flatten(1)
    return _after_attention(asking, seen, layer, names)


def first_tokens(states: Tensor, layer: Any, names: Names, heads: int, mask: Tensor | None) -> Tensor:
    """What a layer makes of the first token of each padded text. [texts, width, size] -> [texts, 1, size]"""
    query, key, value = map(layer.get_submodule, names[:3])
    asking = states[:, :1]
    asks, keys, values = (
        part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (query(asking), key(states), value(states))
    )
    seen = scaled_dot_product_attention(asks, keys, values, None if mask is None else mask[:, :, :1])
    return _after_attention(asking, seen.transpose(1, 2).flatten(2), layer, names)


def _after_attention(asking: Tensor, seen: Tensor, layer: Any, names: Names) -> Tensor:
    mix, mix_norm, wide, narrow, norm, activation = map(layer.get_submodule, names[3:])
    mixed = _norm(asking + mix(seen), mix_norm)
    return _norm(mixed + narrow(activation(wide(mixed))), norm)


def has_kernels(device: torch.device) -> bool:
    """Whether a device can run the kernels that are written in Triton."""
    return device.type == "cuda" and _has_triton()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def attend(asks: Tensor, keys: Tensor, values: Tensor, asked_by: Spans, spans: Spans) -> Tensor:
    """Each token that asks, to the tokens of its own text. [tokens, heads, size]

    The operator below `varlen_attn`, which takes long to call.
    """
    seen: Tensor = torch.ops.aten._flash_attention_forward(
        asks, keys, values, asked_by.starts, spans.starts, asked_by.longest, spans.longest, 0.0, False, False
    )[0]
    return seen


def _joined(*parts: Any) -> tuple[Tensor, Tensor]:
    return torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])


def _norm(states: Tensor, norm: Any) -> Tensor:
    return layer_norm(states, norm.weight.shape, norm.weight, norm.bias, norm.eps)
