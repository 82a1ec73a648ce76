"""Parts of a decoder's layers in Triton kernels: a gated activation, and the rotation of queries and keys."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2_048
"""Numbers that a kernel of the activation reads at once."""
ROWS = 16
"""Tokens whose heads a kernel turns at once."""


class Gated(torch.autograd.Function):
    """`silu(gate) * up`, of which no more than both inputs is kept for the gradient."""

    @staticmethod
    def forward(context: Any, gate: Tensor, up: Tensor) -> Tensor:
        gate, up = gate.contiguous(), up.contiguous()
        context.save_for_backward(gate, up)
        out = torch.empty_like(up)
        _gate[_blocks(out)](gate, up, out, out.numel(), BLOCK)
        return out

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = context.saved_tensors
        d_gate, d_up = torch.empty_like(gate), torch.empty_like(up)
        _gate_backward[_blocks(up)](gradient.contiguous(), gate, up, d_gate, d_up, up.numel(), BLOCK)
        return d_gate, d_up


class Rotated(torch.autograd.Function):
    """Heads whose first half is turned against the second. [1, heads, tokens, size]"""

    @staticmethod
    def forward(context: Any, states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        context.save_for_backward(cosine, sine)
        return _turn(states, cosine, sine, back=False)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        cosine, sine = context.saved_tensors
        return _turn(gradient, cosine, sine, back=True), None, None


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """Return `silu(gate) * up`."""
    out: Tensor = Gated.apply(gate, up)
    return out


def rotated(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Return heads turned by their positions. states [1, heads, tokens, size], cosine and sine [1, tokens, size]"""
    out: Tensor = Rotated.apply(states, cosine, sine)
    return out


def _blocks(states: Tensor) -> tuple[int]:
    return (triton.cdiv(states.numel(), BLOCK),)


def _turn(states: Tensor, cosine: Tensor, sine: Tensor, back: bool) -> Tensor:
    """Return turned heads, those of a token side by side in memory."""
    _, heads, tokens, size = states.shape
    if states.stride(3) != 1:
        states = states.contiguous()
    out = torch.empty(1, tokens, heads, size, dtype=states.dtype, device=states.device).transpose(1, 2)
    _turn_halves[triton.cdiv(tokens, ROWS), heads](
        *(states, cosine.contiguous(), sine.contiguous(), out),
        *(tokens, states.stride(1), states.stride(2), out.stride(1), out.stride(2)),
        *(size // 2, triton.next_power_of_2(size // 2), ROWS, back),
    )
    return out


@triton.jit
def _gate(gate, up, out, numbers, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < numbers
    value = tl.load(gate + at, inside, 0.0).to(tl.float32)
    factor = tl.load(up + at, inside, 0.0).to(tl.float32)
    tl.store(out + at, (value * tl.sigmoid(value) * factor).to(out.dtype.element_ty), inside)


@triton.jit
def _gate_backward(gradient, gate, up, d_gate, d_up, numbers, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < numbers
    given = tl.load(gradient + at, inside, 0.0).to(tl.float32)
    value = tl.load(gate + at, inside, 0.0).to(tl.float32)
    factor = tl.load(up + at, inside, 0.0).to(tl.float32)
    share = tl.sigmoid(value)
    tl.store(d_up + at, (given * value * share).to(d_up.dtype.element_ty), inside)
    slope = share * (1.0 + value * (1.0 - share))
    tl.store(d_gate + at, (given * factor * slope).to(d_gate.dtype.element_ty), inside)


@triton.jit
def _turn_halves(
    states,
    cosine,
    sine,
    out,
    tokens,
    head_stride,
    token_stride,
    out_head_stride,
    out_token_stride,
    half,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    BACK: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column = tl.arange(0, WIDTH)[None, :]
    inside = (row < tokens) & (column < half)
    at = states + tl.program_id(1).to(tl.int64) * head_stride + row * token_stride + column
    angle = row * 2 * half + column
    first, second = tl.load(at, inside, 0.0).to(tl.float32), tl.load(at + half, inside, 0.0).to(tl.float32)
    cos_first = tl.load(cosine + angle, inside, 0.0).to(tl.float32)
    cos_second = tl.load(cosine + angle + half, inside, 0.0).to(tl.float32)
    sin_first = tl.load(sine + angle, inside, 0.0).to(tl.float32)
    sin_second = tl.load(sine + angle + half, inside, 0.0).to(tl.float32)
    if BACK:
        turned_first = first * cos_first + second * sin_second
        turned_second = second * cos_second - first * sin_first
    else:
        turned_first = first * cos_first - second * sin_first
        turned_second = second * cos_second + first * sin_second
    at_out = out + tl.program_id(1).to(tl.int64) * out_head_stride + row * out_token_stride + column
    tl.store(at_out, turned_first.to(out.dtype.element_ty), inside)
    tl.store(at_out + half, turned_second.to(out.dtype.element_ty), inside)
