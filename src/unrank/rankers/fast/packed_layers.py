"""The layer of a BERT-like encoder over packed texts: sequences concatenated without padding.

The library's layer launches many more kernels than are needed. Here query, key and value are one matrix product, and
on a GPU with Triton the whole layer is one function with its own gradient (`layer_kernels.py`). If only the first token
of a text is used, the last layer computes no other.
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
"""Sizes of a head for which the attention kernels are written."""


class LayerNames(NamedTuple):
    """The names of a layer's modules in one family of encoders."""

    query: str
    key: str
    value: str
    attention_out: str
    attention_norm: str
    ffn_in: str
    ffn_out: str
    ffn_norm: str
    activation: str


BERT = LayerNames(
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
DISTILBERT = LayerNames(
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


class Sequences(NamedTuple):
    """The bounds of packed texts: text i is `cu_seqlens[i]` to `cu_seqlens[i + 1]`."""

    cu_seqlens: Tensor  # int32 [texts + 1]
    max_length: int


def packed_layer(
    states: Tensor, layer: Any, names: LayerNames, heads: int, sequences: Sequences, first_only: bool = False
) -> Tensor:
    """Return the output of one layer; with `first_only`, of each text's first token. [tokens or texts, size]"""
    *modules, activation = map(layer.get_submodule, names)
    query, key, value, attention_out, attention_norm, ffn_in, ffn_out, ffn_norm = modules
    head = (heads, states.shape[1] // heads)
    can_fuse = has_kernels(states.device) and head[1] in HEAD_SIZES
    if can_fuse and not first_only and isinstance(activation, GELUActivation):
        from unrank.rankers.fast.layer_kernels import FusedLayer, layer_forward

        run = FusedLayer.apply if torch.is_grad_enabled() else layer_forward
        after = (attention_out, attention_norm, ffn_in, ffn_out, ffn_norm)
        weights = [weight for module in after for weight in (module.weight, module.bias)]
        eps = attention_norm.eps, ffn_norm.eps
        fused: Tensor = run(states, *sequences, heads, *eps, *_joined(query, key, value), *weights)
        return fused
    if first_only:
        firsts = states[sequences.cu_seqlens[:-1]]
        one_each = Sequences(torch.arange(len(sequences.cu_seqlens), dtype=torch.int32, device=states.device), 1)
        queries, kv = query(firsts).view(-1, *head), linear(states, *_joined(key, value)).view(-1, 2, *head)
        if can_fuse and not torch.is_grad_enabled():
            from unrank.rankers.fast.attention_kernels import attend_first

            return _after_attention(firsts, attend_first(queries, kv, sequences.cu_seqlens).flatten(1), layer, names)
        keys, values = kv.unbind(1)
        return _after_attention(firsts, attend(queries, keys, values, one_each, sequences).flatten(1), layer, names)
    queries, keys, values = linear(states, *_joined(query, key, value)).view(-1, 3, *head).unbind(1)
    return _after_attention(states, attend(queries, keys, values, sequences, sequences).flatten(1), layer, names)


def first_token_layer(states: Tensor, layer: Any, names: LayerNames, heads: int, mask: Tensor | None) -> Tensor:
    """Return the output of a layer for the first token of each padded text. [texts, width, size] -> [texts, 1, size]"""
    query, key, value = map(layer.get_submodule, names[:3])
    firsts = states[:, :1]
    queries, keys, values = (
        part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (query(firsts), key(states), value(states))
    )
    out = scaled_dot_product_attention(queries, keys, values, None if mask is None else mask[:, :, :1])
    return _after_attention(firsts, out.transpose(1, 2).flatten(2), layer, names)


def _after_attention(states: Tensor, out: Tensor, layer: Any, names: LayerNames) -> Tensor:
    """Apply the rest of a layer to the output of its attention."""
    attention_out, attention_norm, ffn_in, ffn_out, ffn_norm, activation = map(layer.get_submodule, names[3:])
    mixed = _norm(states + attention_out(out), attention_norm)
    return _norm(mixed + ffn_out(activation(ffn_in(mixed))), ffn_norm)


def has_kernels(device: torch.device) -> bool:
    """Return whether a device can run the kernels that are written in Triton."""
    return device.type == "cuda" and _has_triton()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def attend(queries: Tensor, keys: Tensor, values: Tensor, asking: Sequences, answering: Sequences) -> Tensor:
    """Let each query attend to the keys of its own text. [tokens, heads, size]

    This is the operator that `varlen_attn` calls; calling it directly costs less time.
    """
    if not queries.is_cuda or queries.dtype == torch.float32:
        return attend_each(queries, keys, values, asking, answering)
    out: Tensor = torch.ops.aten._flash_attention_forward(
        queries, keys, values, *(asking.cu_seqlens, answering.cu_seqlens),
        *(asking.max_length, answering.max_length, 0.0, False, False),
    )[0]  # fmt: skip
    return out


def attend_each(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    asking: Sequences,
    answering: Sequences,
    scale: float | None = None,
    window: int | None = None,
    causal: bool = False,
) -> Tensor:
    """Do the same for one text after another, in any precision and on any device.

    Tokens see `window` neighbours; if `causal`, no token after them. Several heads of queries may share one of keys.
    """
    shared = queries.shape[1] != keys.shape[1]
    bounds = zip(asking.cu_seqlens.tolist(), answering.cu_seqlens.tolist(), strict=True)
    out, (start, kv_start) = [], next(bounds)
    for end, kv_end in bounds:
        query, key, value = (
            part.transpose(0, 1).unsqueeze(0)
            for part in (queries[start:end], keys[kv_start:kv_end], values[kv_start:kv_end])
        )
        near = None
        if window is not None:
            index = torch.arange(end - start, device=queries.device)
            before = index[:, None] - index[None, :]
            near = (before <= window) & (before >= (0 if causal else -window))
        attended = scaled_dot_product_attention(
            query, key, value, near, is_causal=causal and near is None, scale=scale, enable_gqa=shared
        )
        out.append(attended[0].transpose(0, 1))
        start, kv_start = end, kv_end
    return torch.cat(out)


def _joined(*modules: Any) -> tuple[Tensor, Tensor]:
    return torch.cat([module.weight for module in modules]), torch.cat([module.bias for module in modules])


def _norm(states: Tensor, norm: Any) -> Tensor:
    return layer_norm(states, norm.weight.shape, norm.weight, norm.bias, norm.eps)
