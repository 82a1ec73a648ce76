"""One layer as one function with a gradient of its own, for a GPU.

A library's layer leaves it to the framework to launch some hundred small kernels a layer, forward and backward, and a
step of a small encoder waits for the launches. Here the sums, norms and activations between two products are a kernel
each, which on the way back adds up the gradients of the biases too. Where there is no way back, nothing is kept for it.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import gelu, linear

from unrank.rankers.attention import attend, attend_backward

ROWS = 4
"""Rows that a kernel reads at once."""
PROGRAMS = 1_024
"""Into how many partial sums the gradient of a bias is added up at first."""


class FusedLayer(torch.autograd.Function):
    """A layer with GELU over texts laid end to end. Text i is at `starts[i]` to `starts[i + 1]`."""

    @staticmethod
    def forward(
        context: Any,
        states: Tensor,
        starts: Tensor,
        longest: int,
        heads: int,
        mix_eps: float,
        eps: float,
        *weights: Tensor,
    ) -> Tensor:
        """states [tokens, size]; weight and bias of: query, key and value in one, mix, its norm, wide, narrow, norm"""
        sides, sides_bias, mix, mix_bias, mix_scale, mix_shift = weights[:6]
        wide, wide_bias, narrow, narrow_bias, scale, shift = weights[6:]
        three = linear(states, sides, sides_bias).view(len(states), 3, heads, -1)
        seen, weight = attend(three, starts, longest)
        mixed, *first = add_norm(states, linear(seen.flatten(1), mix, mix_bias), mix_scale, mix_shift, mix_eps)
        before = linear(mixed, wide, wide_bias)
        wider = gelu(before)
        out, *second = add_norm(mixed, linear(wider, narrow, narrow_bias), scale, shift, eps)
        context.longest = longest
        context.save_for_backward(
            states, starts, three, seen, weight, mixed, *first, before, wider, *second,
            sides, mix, mix_scale, wide, narrow, scale,
        )  # fmt: skip
        return out

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (
            states, starts, three, seen, weight, mixed, mix_sum, mix_mean, mix_inverse, before, wider, sum_, mean,
            inverse, sides, mix, mix_scale, wide, narrow, scale,
        ) = context.saved_tensors  # fmt: skip
        at_sum, (scale_, shift_, narrow_bias_) = norm_backward(gradient, sum_, mean, inverse, scale)
        before_, wide_bias_ = gelu_backward(at_sum @ narrow, before)
        mixed_ = torch.addmm(at_sum, before_, wide)
        at_mix, (mix_scale_, mix_shift_, mix_bias_) = norm_backward(mixed_, mix_sum, mix_mean, mix_inverse, mix_scale)
        seen_ = (at_mix @ mix).view_as(seen)
        sides_ = attend_backward(seen_, three, seen, weight, starts, context.longest).view(len(states), -1)
        states_ = torch.addmm(at_mix, sides_, sides) if context.needs_input_grad[0] else None
        if not context.needs_input_grad[6]:
            return (states_, *[None] * 17)
        return (
            states_, None, None, None, None, None,
            sides_.t() @ states, sides_.sum(0), at_mix.t() @ seen.flatten(1), mix_bias_, mix_scale_, mix_shift_,
            before_.t() @ mixed, wide_bias_, at_sum.t() @ wider, narrow_bias_, scale_, shift_,
        )  # fmt: skip


def layer_of(
    states: Tensor, starts: Tensor, longest: int, heads: int, mix_eps: float, eps: float, *weights: Tensor
) -> Tensor:
    """What a `FusedLayer` computes, without a way back.

    The activation is a part of the product before it, in the form with tanh: it differs by less than 5e-4, where
    bfloat16 rounds by more.
    """
    sides, sides_bias, mix, mix_bias, mix_scale, mix_shift = weights[:6]
    wide, wide_bias, narrow, narrow_bias, scale, shift = weights[6:]
    three = linear(states, sides, sides_bias).view(len(states), 3, heads, -1)
    seen, _ = attend(three, starts, longest)
    mixed = norm_of_sum(states, linear(seen.flatten(1), mix, mix_bias), mix_scale, mix_shift, mix_eps)
    wider = torch._addmm_activation(wide_bias, mixed, wide.t(), use_gelu=True)
    return norm_of_sum(mixed, linear(wider, narrow, narrow_bias), scale, shift, eps)


def embed(ids: Tensor, places: Tensor, types: Tensor | None, embeddings: Any) -> Tensor:
    """What a BERT-like family makes of token ids, their places and types: the norm of a sum. Without a way back.

    each [tokens] -> [tokens, size]
    """
    words, positions, norm = embeddings.word_embeddings, embeddings.position_embeddings, embeddings.LayerNorm
    kinds = getattr(embeddings, "token_type_embeddings", None)
    rows, size = len(ids), words.weight.shape[1]
    out = torch.empty(rows, size, dtype=words.weight.dtype, device=ids.device)
    _embed[triton.cdiv(rows, ROWS),](
        *(ids, places, types, words.weight, positions.weight, None if kinds is None else kinds.weight),
        *(norm.weight, norm.bias, out, rows, size, norm.eps, ROWS, _width(size)),
        *(kinds is not None, types is not None),
    )
    return out


def add_norm(states: Tensor, added: Tensor, scale: Tensor, shift: Tensor, eps: float) -> tuple[Tensor, ...]:
    """The norm of the sum; the sum, which takes the place of what was added; its mean and inverse spread by row."""
    out = torch.empty_like(states)
    mean, inverse = torch.empty(2, len(states), device=states.device).unbind()
    _run_add_norm(states, added, scale, shift, eps, out, mean, inverse)
    return out, added, mean, inverse


def norm_of_sum(states: Tensor, added: Tensor, scale: Tensor, shift: Tensor, eps: float) -> Tensor:
    """The same without the sum; it takes the place of what was added."""
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
    """Gradients: of the sum, [rows, size]; of scale, shift, and a bias that was added into the sum, [3, size]"""
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
    """Gradients: of what went into the activation, [rows, size]; of a bias that was added there, [size]"""
    rows, size = before.shape
    out = torch.empty_like(before)
    programs, each = _shares(rows)
    partial = torch.empty(programs, size, device=before.device)
    width = min(512, _width(size))
    grid = (programs, triton.cdiv(size, width))
    _gelu_backward[grid](gradient, before, out, partial, rows, size, each, ROWS, width)
    return out, partial.sum(0).to(before.dtype)


def _shares(rows: int) -> tuple[int, int]:
    """Into how many shares the rows are cut, and how many rows one has."""
    each = triton.cdiv(triton.cdiv(rows, PROGRAMS), ROWS) * ROWS
    return triton.cdiv(rows, each), each


def _width(size: int) -> int:
    return int(triton.next_power_of_2(size))


@triton.jit
def _embed(
    ids,
    places,
    types,
    words,
    positions,
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
    there = (row < rows)[:, None] & (column < size)[None, :]
    word = tl.load(ids + row, row < rows, 0).to(tl.int64)[:, None] * size + column[None, :]
    place = tl.load(places + row, row < rows, 0).to(tl.int64)[:, None] * size + column[None, :]
    total = tl.load(words + word, there, 0.0).to(tl.float32) + tl.load(positions + place, there, 0.0).to(tl.float32)
    if KINDS:
        kind = column[None, :] + tl.zeros((ROWS, 1), tl.int64)
        if TYPED:
            kind += tl.load(types + row, row < rows, 0).to(tl.int64)[:, None] * size
        total += tl.load(kinds + kind, there, 0.0).to(tl.float32)
    normal, _, _ = _normal(total, there, size, eps)
    factor = tl.load(scale + column, column < size, 0.0).to(tl.float32)
    offset = tl.load(shift + column, column < size, 0.0).to(tl.float32)
    tl.store(out + row[:, None] * size + column[None, :], (normal * factor + offset).to(out.dtype.element_ty), there)


@triton.jit
def _normal(total, there, size, eps):
    middle = tl.sum(total, 1) / size
    gap = tl.where(there, total - middle[:, None], 0.0)
    narrow = 1.0 / tl.sqrt(tl.sum(gap * gap, 1) / size + eps)
    return gap * narrow[:, None], middle, narrow


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
    there = (row < rows)[:, None] & (column < size)[None, :]
    place = row.to(tl.int64)[:, None] * size + column[None, :]
    total = tl.load(states + place, there, 0.0).to(tl.float32) + tl.load(added + place, there, 0.0).to(tl.float32)
    normal, middle, narrow = _normal(total, there, size, eps)
    factor = tl.load(scale + column, column < size, 0.0).to(tl.float32)
    offset = tl.load(shift + column, column < size, 0.0).to(tl.float32)
    tl.store(out + place, (normal * factor + offset).to(out.dtype.element_ty), there)
    if KEEP:
        tl.store(added + place, total.to(added.dtype.element_ty), there)
        tl.store(mean + row, middle, row < rows)
        tl.store(inverse + row, narrow, row < rows)


@triton.jit
def _norm_backward(
    gradient, sums, mean, inverse, scale, out, partial, rows, size, each, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    share = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    factor = tl.load(scale + column, column < size, 0.0).to(tl.float32)
    of_scale = tl.zeros((ROWS, WIDTH), tl.float32)
    of_shift = tl.zeros((ROWS, WIDTH), tl.float32)
    of_bias = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, each, ROWS):
        row = share * each + start + tl.arange(0, ROWS)
        there = (row < rows)[:, None] & (column < size)[None, :]
        place = row.to(tl.int64)[:, None] * size + column[None, :]
        given = tl.load(gradient + place, there, 0.0).to(tl.float32)
        total = tl.load(sums + place, there, 0.0).to(tl.float32)
        middle = tl.load(mean + row, row < rows, 0.0)
        narrow = tl.load(inverse + row, row < rows, 0.0)
        normal = tl.where(there, (total - middle[:, None]) * narrow[:, None], 0.0)
        scaled = given * factor
        along = tl.sum(scaled * normal, 1) / size
        level = tl.sum(scaled, 1) / size
        result = tl.where(there, (scaled - normal * along[:, None] - level[:, None]) * narrow[:, None], 0.0)
        tl.store(out + place, result.to(out.dtype.element_ty), there)
        of_scale += given * normal
        of_shift += given
        of_bias += result
    place = share * 3 * size + column
    tl.store(partial + place, tl.sum(of_scale, 0), column < size)
    tl.store(partial + place + size, tl.sum(of_shift, 0), column < size)
    tl.store(partial + place + 2 * size, tl.sum(of_bias, 0), column < size)


@triton.jit
def _gelu_backward(gradient, before, out, partial, rows, size, each, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    share = tl.program_id(0)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    of_bias = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, each, ROWS):
        row = share * each + start + tl.arange(0, ROWS)
        there = (row < rows)[:, None] & (column < size)[None, :]
        place = row.to(tl.int64)[:, None] * size + column[None, :]
        given = tl.load(gradient + place, there, 0.0).to(tl.float32)
        value = tl.load(before + place, there, 0.0).to(tl.float32)
        below = 0.5 * (1.0 + tl.erf(value * 0.7071067811865476))
        density = 0.3989422804014327 * tl.exp(-0.5 * value * value)
        result = given * (below + value * density)
        tl.store(out + place, result.to(out.dtype.element_ty), there)
        of_bias += result
    tl.store(partial + share * size + column, tl.sum(of_bias, 0), column < size)
