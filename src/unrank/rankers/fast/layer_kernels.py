"""One layer of an encoder as one function with its own gradient, in Triton kernels.

The library's layer launches about a hundred small kernels, forward and backward, and a step of a small encoder waits
for the launches. Here the sums, norms and activations between two matrix products are one kernel each; backward, the
same kernel adds up the gradients of the biases. Without a gradient, nothing is kept for one.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import gelu, linear

from unrank.rankers.fast.attention_kernels import attend, attend_backward

ROWS = 4
"""Rows that a kernel reads at once."""
PROGRAMS = 1_024
"""Number of partial sums into which the gradient of a bias is added up at first."""


class FusedLayer(torch.autograd.Function):
    """A layer with GELU over packed texts. Text i is `cu_seqlens[i]` to `cu_seqlens[i + 1]`."""

    @staticmethod
    def forward(
        context: Any,
        states: Tensor,
        cu_seqlens: Tensor,
        max_length: int,
        heads: int,
        attention_eps: float,
        ffn_eps: float,
        *weights: Tensor,
    ) -> Tensor:
        """Return the layer's output. [tokens, size]

        Weights and biases are those of: query, key and value in one, attention output, its norm, both layers of the
        feed-forward network, its norm.
        """
        qkv_weight, qkv_bias, out_weight, out_bias, attention_scale, attention_shift = weights[:6]
        ffn_in, ffn_in_bias, ffn_out, ffn_out_bias, ffn_scale, ffn_shift = weights[6:]
        qkv = linear(states, qkv_weight, qkv_bias).view(len(states), 3, heads, -1)
        out, lse = attend(qkv, cu_seqlens, max_length)
        mixed, *attention_sums = add_norm(
            states, linear(out.flatten(1), out_weight, out_bias), attention_scale, attention_shift, attention_eps
        )
        before = linear(mixed, ffn_in, ffn_in_bias)
        activated = gelu(before)
        result, *ffn_sums = add_norm(mixed, linear(activated, ffn_out, ffn_out_bias), ffn_scale, ffn_shift, ffn_eps)
        context.max_length = max_length
        context.save_for_backward(
            states, cu_seqlens, qkv, out, lse, mixed, *attention_sums, before, activated, *ffn_sums,
            qkv_weight, out_weight, attention_scale, ffn_in, ffn_out, ffn_scale,
        )  # fmt: skip
        return result

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (
            states, cu_seqlens, qkv, out, lse, mixed, attention_sum, attention_mean, attention_inverse, before,
            activated, ffn_sum, ffn_mean, ffn_inverse, qkv_weight, out_weight, attention_scale, ffn_in, ffn_out,
            ffn_scale,
        ) = context.saved_tensors  # fmt: skip
        d_ffn, (d_ffn_scale, d_ffn_shift, d_ffn_out_bias) = norm_backward(
            gradient, ffn_sum, ffn_mean, ffn_inverse, ffn_scale
        )
        d_before, d_ffn_in_bias = gelu_backward(d_ffn @ ffn_out, before)
        d_mixed = torch.addmm(d_ffn, d_before, ffn_in)
        d_attention, (d_attention_scale, d_attention_shift, d_out_bias) = norm_backward(
            d_mixed, attention_sum, attention_mean, attention_inverse, attention_scale
        )
        d_out = (d_attention @ out_weight).view_as(out)
        d_qkv = attend_backward(d_out, qkv, out, lse, cu_seqlens, context.max_length).view(len(states), -1)
        d_states = torch.addmm(d_attention, d_qkv, qkv_weight) if context.needs_input_grad[0] else None
        if not context.needs_input_grad[6]:
            return (d_states, *[None] * 17)
        return (
            d_states, None, None, None, None, None,
            d_qkv.t() @ states, d_qkv.sum(0), d_attention.t() @ out.flatten(1), d_out_bias,
            d_attention_scale, d_attention_shift,
            d_before.t() @ mixed, d_ffn_in_bias, d_ffn.t() @ activated, d_ffn_out_bias, d_ffn_scale, d_ffn_shift,
        )  # fmt: skip


def layer_forward(
    states: Tensor,
    cu_seqlens: Tensor,
    max_length: int,
    heads: int,
    attention_eps: float,
    ffn_eps: float,
    *weights: Tensor,
) -> Tensor:
    """Return the output of a `FusedLayer`, without a gradient.

    In bfloat16 the activation is a part of the matrix product before it, in the form with tanh. It differs by less than
    5e-4, where bfloat16 rounds by more.
    """
    qkv_weight, qkv_bias, out_weight, out_bias, attention_scale, attention_shift = weights[:6]
    ffn_in, ffn_in_bias, ffn_out, ffn_out_bias, ffn_scale, ffn_shift = weights[6:]
    qkv = linear(states, qkv_weight, qkv_bias).view(len(states), 3, heads, -1)
    out, _ = attend(qkv, cu_seqlens, max_length)
    mixed = norm_of_sum(
        states, linear(out.flatten(1), out_weight, out_bias), attention_scale, attention_shift, attention_eps
    )
    if states.dtype == torch.float32:
        activated = gelu(linear(mixed, ffn_in, ffn_in_bias))
    else:
        activated = torch._addmm_activation(ffn_in_bias, mixed, ffn_in.t(), use_gelu=True)
    return norm_of_sum(mixed, linear(activated, ffn_out, ffn_out_bias), ffn_scale, ffn_shift, ffn_eps)


def embed(ids: Tensor, positions: Tensor, types: Tensor | None, embeddings: Any) -> Tensor:
    """Return the embeddings of token ids, positions and types in a BERT-like family, without a gradient.

    each [tokens] -> [tokens, size]
    """
    words, norm = embeddings.word_embeddings, embeddings.LayerNorm
    kinds = getattr(embeddings, "token_type_embeddings", None)
    rows, size = len(ids), words.weight.shape[1]
    out = torch.empty(rows, size, dtype=words.weight.dtype, device=ids.device)
    _embed[triton.cdiv(rows, ROWS),](
        *(ids, positions, types, words.weight, embeddings.position_embeddings.weight),
        None if kinds is None else kinds.weight,
        *(norm.weight, norm.bias, out, rows, size, norm.eps, ROWS, _width(size)),
        *(kinds is not None, types is not None),
    )
    return out


def add_norm(states: Tensor, added: Tensor, scale: Tensor, shift: Tensor, eps: float) -> tuple[Tensor, ...]:
    """Return the norm of a sum; the sum, written over `added`; and the mean and inverse deviation of each row."""
    out = torch.empty_like(states)
    mean, inverse = torch.empty(2, len(states), device=states.device).unbind()
    _run_add_norm(states, added, scale, shift, eps, out, mean, inverse)
    return out, added, mean, inverse


def norm_of_sum(states: Tensor, added: Tensor, scale: Tensor, shift: Tensor, eps: float) -> Tensor:
    """Return the norm of a sum, written over `added`."""
    _run_add_norm(states, added, scale, shift, eps, added)
    return added


def _run_add_norm(
    states: Tensor,
    added: Tensor,
    scale: Tensor,
    shift: Tensor,
    eps: float,
    out: Tensor,
    mean: Tensor | None = None,
    inverse: Tensor | None = None,
) -> None:
    rows, size = states.shape
    grid = (triton.cdiv(rows, ROWS),)
    _add_norm[grid](
        states, added, scale, shift, out, mean, inverse, rows, size, eps, ROWS, _width(size), mean is not None
    )


def norm_backward(
    gradient: Tensor, sums: Tensor, mean: Tensor, inverse: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the sum [rows, size], and of scale, shift and an added bias [3, size]."""
    rows, size = sums.shape
    gradient = gradient.contiguous()
    out = torch.empty_like(sums)
    programs, each = _shares(rows)
    partial = torch.empty(programs, 3, size, device=sums.device)
    _norm_backward[(programs,)](
        gradient, sums, mean, inverse, scale, out, partial, rows, size, each, ROWS, _width(size)
    )
    return out, partial.sum(0).to(scale.dtype)


def gelu_backward(gradient: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of the activation's input [rows, size] and of a bias added to it [size]."""
    rows, size = before.shape
    out = torch.empty_like(before)
    programs, each = _shares(rows)
    partial = torch.empty(programs, size, device=before.device)
    width = min(512, _width(size))
    grid = (programs, triton.cdiv(size, width))
    _gelu_backward[grid](gradient, before, out, partial, rows, size, each, ROWS, width)
    return out, partial.sum(0).to(before.dtype)


def _shares(rows: int) -> tuple[int, int]:
    """Return into how many shares the rows are cut, and the number of rows of a share."""
    each = triton.cdiv(triton.cdiv(rows, PROGRAMS), ROWS) * ROWS
    return triton.cdiv(rows, each), each


def _width(size: int) -> int:
    return int(triton.next_power_of_2(size))


@triton.jit
def _embed(
    ids,
    positions,
    types,
    words,
    position_weights,
    kinds,
    scale,
    shift,
    out,
    rows,
    size,
    eps,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    KINDS: tl.constexpr,
    TYPED: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    column = tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (column < size)[None, :]
    word = tl.load(ids + row, row < rows, 0).to(tl.int64)[:, None] * size + column[None, :]
    at = tl.load(positions + row, row < rows, 0).to(tl.int64)[:, None] * size + column[None, :]
    total = tl.load(words + word, inside, 0.0).to(tl.float32)
    total += tl.load(position_weights + at, inside, 0.0).to(tl.float32)
    if KINDS:
        kind = column[None, :] + tl.zeros((ROWS, 1), tl.int64)
        if TYPED:
            kind += tl.load(types + row, row < rows, 0).to(tl.int64)[:, None] * size
        total += tl.load(kinds + kind, inside, 0.0).to(tl.float32)
    normal, _, _ = _normal(total, inside, size, eps)
    factor = tl.load(scale + column, column < size, 0.0).to(tl.float32)
    offset = tl.load(shift + column, column < size, 0.0).to(tl.float32)
    tl.store(out + row[:, None] * size + column[None, :], (normal * factor + offset).to(out.dtype.element_ty), inside)


@triton.jit
def _normal(total, inside, size, eps):
    row_mean = tl.sum(total, 1) / size
    centred = tl.where(inside, total - row_mean[:, None], 0.0)
    row_inverse = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / size + eps)
    return centred * row_inverse[:, None], row_mean, row_inverse


@triton.jit
def _add_norm(
    states,
    added,
    scale,
    shift,
    out,
    mean,
    inverse,
    rows,
    size,
    eps,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    KEEP: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    inside = (row < rows)[:, None] & (column < size)[None, :]
    at = row.to(tl.int64)[:, None] * size + column[None, :]
    total = tl.load(states + at, inside, 0.0).to(tl.float32) + tl.load(added + at, inside, 0.0).to(tl.float32)
    normal, row_mean, row_inverse = _normal(total, inside, size, eps)
    factor = tl.load(scale + column, column < size, 0.0).to(tl.float32)
    offset = tl.load(shift + column, column < size, 0.0).to(tl.float32)
    tl.store(out + at, (normal * factor + offset).to(out.dtype.element_ty), inside)
    if KEEP:
        tl.store(added + at, total.to(added.dtype.element_ty), inside)
        tl.store(mean + row, row_mean, row < rows)
        tl.store(inverse + row, row_inverse, row < rows)


@triton.jit
def _norm_backward(
    gradient, sums, mean, inverse, scale, out, partial, rows, size, each, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    program = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    factor = tl.load(scale + column, column < size, 0.0).to(tl.float32)
    of_scale = tl.zeros((ROWS, WIDTH), tl.float32)
    of_shift = tl.zeros((ROWS, WIDTH), tl.float32)
    of_bias = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, each, ROWS):
        row = program * each + start + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < size)[None, :]
        at = row.to(tl.int64)[:, None] * size + column[None, :]
        given = tl.load(gradient + at, inside, 0.0).to(tl.float32)
        total = tl.load(sums + at, inside, 0.0).to(tl.float32)
        row_mean = tl.load(mean + row, row < rows, 0.0)
        row_inverse = tl.load(inverse + row, row < rows, 0.0)
        normal = tl.where(inside, (total - row_mean[:, None]) * row_inverse[:, None], 0.0)
        scaled = given * factor
        delta = tl.sum(scaled * normal, 1) / size
        level = tl.sum(scaled, 1) / size
        result = tl.where(inside, (scaled - normal * delta[:, None] - level[:, None]) * row_inverse[:, None], 0.0)
        tl.store(out + at, result.to(out.dtype.element_ty), inside)
        of_scale += given * normal
        of_shift += given
        of_bias += result
    at = program * 3 * size + column
    tl.store(partial + at, tl.sum(of_scale, 0), column < size)
    tl.store(partial + at + size, tl.sum(of_shift, 0), column < size)
    tl.store(partial + at + 2 * size, tl.sum(of_bias, 0), column < size)


@triton.jit
def _gelu_backward(gradient, before, out, partial, rows, size, each, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    program = tl.program_id(0)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    of_bias = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, each, ROWS):
        row = program * each + start + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < size)[None, :]
        at = row.to(tl.int64)[:, None] * size + column[None, :]
        given = tl.load(gradient + at, inside, 0.0).to(tl.float32)
        value = tl.load(before + at, inside, 0.0).to(tl.float32)
        below = 0.5 * (1.0 + tl.erf(value * 0.7071067811865476))
        density = 0.3989422804014327 * tl.exp(-0.5 * value * value)
        result = given * (below + value * density)
        tl.store(out + at, result.to(out.dtype.element_ty), inside)
        of_bias += result
    tl.store(partial + program * size + column, tl.sum(of_bias, 0), column < size)
