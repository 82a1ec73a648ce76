"""What a layer of a BERT-like encoder computes, over texts laid end to end.

Written out because a library's layer launches some forty kernels where ten do: query, key and value are one product,
and what stands between two products is compiled into one kernel where the machine can compile. Where all that is read
of a text is its first token, the last layer computes no other.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear

VARIANTS = 64
"""How many forms of a layer may be compiled: with gradients and without, for rankers of several sizes."""


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
    weights = [part.weight for part in parts] + [part.bias for part in parts]
    asking, asked_by = states, spans
    if first_only:
        asking = states[spans.starts[:-1]]
        asked_by = Spans(torch.arange(len(spans.starts), dtype=torch.int32, device=states.device), 1)
    mix_norm, norm = layer.get_submodule(names.mix_norm), layer.get_submodule(names.norm)
    compute = _compiled() if states.is_cuda else _layer
    for tensor in (states, asking, spans.starts, asked_by.starts):
        torch._dynamo.maybe_mark_dynamic(tensor, 0)
    return compute(asking, states, weights, asked_by, spans, first_only, heads, activation, mix_norm.eps, norm.eps)


def _layer(
    asking: Tensor,
    states: Tensor,
    weights: Sequence[Tensor],
    asked_by: Spans,
    spans: Spans,
    first_only: bool,
    heads: int,
    activation: Callable[[Tensor], Tensor],
    mix_eps: float,
    eps: float,
) -> Tensor:
    """The tokens that ask attend to all of their text, and go through the rest of the layer."""
    query, key, value, mix, mix_scale, wide, narrow, scale = weights[:8]
    query_bias, key_bias, value_bias, mix_bias, mix_shift, wide_bias, narrow_bias, shift = weights[8:]
    size = (heads, states.shape[1] // heads)
    if first_only:
        asks = linear(asking, query, query_bias).view(-1, *size)
        both = linear(states, torch.cat([key, value]), torch.cat([key_bias, value_bias]))
        keys, values = both.view(-1, 2, *size).unbind(1)
    else:
        all_three = linear(states, torch.cat([query, key, value]), torch.cat([query_bias, key_bias, value_bias]))
        asks, keys, values = all_three.view(-1, 3, *size).unbind(1)
    seen = attend(asks, keys, values, asked_by, spans).flatten(1)
    mixed = layer_norm(asking + linear(seen, mix, mix_bias), scale.shape, mix_scale, mix_shift, mix_eps)
    wider = activation(linear(mixed, wide, wide_bias))
    return layer_norm(mixed + linear(wider, narrow, narrow_bias), scale.shape, scale, shift, eps)


def attend(asks: Tensor, keys: Tensor, values: Tensor, asked_by: Spans, spans: Spans) -> Tensor:
    """Each token that asks, to the tokens of its own text. [tokens, heads, size]

    The operator below `varlen_attn`, which adds much to the time that a short text takes.
    """
    seen: Tensor = torch.ops.aten._flash_attention_forward(
        asks, keys, values, asked_by.starts, spans.starts, asked_by.longest, spans.longest, 0.0, False, False
    )[0]
    return seen


@cache
def _compiled() -> Callable[..., Tensor]:
    """A layer with what lies between the products in one kernel, where there is a compiler."""
    if find_spec("triton") is None or not any(map(shutil.which, ("cc", "gcc", "clang"))):
        return _layer
    torch._dynamo.config.recompile_limit = VARIANTS
    compiled: Callable[..., Tensor] = torch.compile(_layer)
    return compiled
