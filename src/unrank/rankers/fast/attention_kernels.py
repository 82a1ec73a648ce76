"""Attention over packed texts, in Triton kernels for short texts.

A token attends to the tokens of its own text. The usual kernels work on blocks of 128 tokens, most of which a short
text leaves empty, and write the gradients of query, key and value apart. These use smaller blocks, read and write all
three side by side, and add up in a fixed order. Text i is `cu_seqlens[i]` to `cu_seqlens[i + 1]`.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64


def attend(qkv: Tensor, cu_seqlens: Tensor, max_length: int) -> tuple[Tensor, Tensor]:
    """Return the output of attention and the log2 of the sum of each token's exponentials.

    qkv [tokens, 3, heads, size] -> out [tokens, heads, size], lse [heads, tokens]
    """
    tokens, _, heads, size = qkv.shape
    out = torch.empty(tokens, heads, size, dtype=qkv.dtype, device=qkv.device)
    lse = torch.empty(heads, tokens, device=qkv.device)
    _attend[_grid(cu_seqlens, max_length, heads)](
        *(qkv, out, lse, cu_seqlens, tokens, _scale(size), heads, size, BLOCK), num_warps=4, num_stages=3
    )
    return out, lse


def attend_backward(
    gradient: Tensor, qkv: Tensor, out: Tensor, lse: Tensor, cu_seqlens: Tensor, max_length: int
) -> Tensor:
    """Return the gradient of query, key and value. [tokens, 3, heads, size]"""
    tokens, _, heads, size = qkv.shape
    qkv_gradient = torch.empty_like(qkv)
    delta = torch.empty_like(lse)
    grid, sizes = _grid(cu_seqlens, max_length, heads), (cu_seqlens, tokens, _scale(size), heads, size, BLOCK)
    _query_gradient[grid](gradient, qkv, out, lse, delta, qkv_gradient, *sizes)
    _key_value_gradient[grid](gradient, qkv, lse, delta, qkv_gradient, *sizes)
    return qkv_gradient


def attend_first(queries: Tensor, kv: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Return the output of attention for the first token of each text, without a gradient.

    queries [texts, heads, size], kv [tokens, 2, heads, size] -> [texts, heads, size]
    """
    texts, heads, size = queries.shape
    out = torch.empty_like(queries)
    _attend_first[texts, heads](queries, kv, out, cu_seqlens, _scale(size), heads, size, BLOCK)
    return out


def _grid(cu_seqlens: Tensor, max_length: int, heads: int) -> tuple[int, int, int]:
    return triton.cdiv(max_length, BLOCK), heads, len(cu_seqlens) - 1


def _scale(size: int) -> float:
    """Return the factor of a product of query and key, for exponentials of base 2."""
    return math.log2(math.e) / math.sqrt(size)


@triton.jit
def _attend(
    qkv,
    out,
    lse,
    cu_seqlens,
    tokens,
    scale,
    heads,
    SIZE: tl.constexpr,
    QUERY_BLOCK: tl.constexpr,
):
    key_block: tl.constexpr = QUERY_BLOCK // 2  # fewer keys than queries at once: most texts end within a block
    head, text = tl.program_id(1), tl.program_id(2)
    start, end = tl.load(cu_seqlens + text), tl.load(cu_seqlens + text + 1)
    rows = (start + tl.program_id(0) * QUERY_BLOCK + tl.arange(0, QUERY_BLOCK)).to(tl.int64)
    if start + tl.program_id(0) * QUERY_BLOCK < end:
        dims = tl.arange(0, SIZE)
        stride = 3 * heads * SIZE
        query = tl.load(qkv + rows[:, None] * stride + head * SIZE + dims[None, :], (rows < end)[:, None], 0.0)
        highest = tl.full((QUERY_BLOCK,), float("-inf"), tl.float32)
        total = tl.zeros((QUERY_BLOCK,), tl.float32)
        weighted = tl.zeros((QUERY_BLOCK, SIZE), tl.float32)
        for first in range(start, end, key_block):
            columns = (first + tl.arange(0, key_block)).to(tl.int64)
            valid = columns < end
            at = qkv + columns[:, None] * stride + (heads + head) * SIZE + dims[None, :]
            key = tl.load(at, valid[:, None], 0.0)
            value = tl.load(at + heads * SIZE, valid[:, None], 0.0)
            products = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
            products = tl.where(valid[None, :], products, float("-inf"))
            higher = tl.maximum(highest, tl.max(products, 1))
            powers = tl.exp2(products - higher[:, None])
            rescale = tl.exp2(highest - higher)
            total = total * rescale + tl.sum(powers, 1)
            weighted = weighted * rescale[:, None] + tl.dot(powers.to(value.dtype), value, input_precision="ieee")
            highest = higher
        at_out = rows[:, None] * heads * SIZE + head * SIZE + dims[None, :]
        tl.store(out + at_out, (weighted / total[:, None]).to(out.dtype.element_ty), (rows < end)[:, None])
        tl.store(lse + head * tokens + rows, highest + tl.log2(total), rows < end)


@triton.jit
def _attend_first(queries, kv, out, cu_seqlens, scale, heads, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    text, head = tl.program_id(0), tl.program_id(1)
    start, end = tl.load(cu_seqlens + text), tl.load(cu_seqlens + text + 1)
    dims = tl.arange(0, SIZE)
    at_out = (text * heads + head) * SIZE + dims
    stride = 2 * heads * SIZE
    query = tl.load(queries + at_out).to(tl.float32) * scale
    highest = float("-inf")
    total = 0.0
    weighted = tl.zeros((SIZE,), tl.float32)
    for first in range(start, end, BLOCK):
        columns = (first + tl.arange(0, BLOCK)).to(tl.int64)
        valid = columns < end
        at = kv + columns[:, None] * stride + head * SIZE + dims[None, :]
        key = tl.load(at, valid[:, None], 0.0).to(tl.float32)
        value = tl.load(at + heads * SIZE, valid[:, None], 0.0).to(tl.float32)
        products = tl.where(valid, tl.sum(key * query[None, :], 1), float("-inf"))
        higher = tl.maximum(highest, tl.max(products, 0))
        powers = tl.exp2(products - higher)
        rescale = tl.exp2(highest - higher)
        total = total * rescale + tl.sum(powers, 0)
        weighted = weighted * rescale + tl.sum(powers[:, None] * value, 0)
        highest = higher
    tl.store(out + at_out, (weighted / total).to(out.dtype.element_ty))


@triton.jit
def _query_gradient(
    gradient,
    qkv,
    out,
    lse,
    delta,
    qkv_gradient,
    cu_seqlens,
    tokens,
    scale,
    heads,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    head, text = tl.program_id(1), tl.program_id(2)
    start, end = tl.load(cu_seqlens + text), tl.load(cu_seqlens + text + 1)
    rows = (start + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    if start + tl.program_id(0) * BLOCK < end:
        dims = tl.arange(0, SIZE)
        stride = 3 * heads * SIZE
        inside = rows < end
        at = rows[:, None] * stride + head * SIZE + dims[None, :]
        at_out = rows[:, None] * heads * SIZE + head * SIZE + dims[None, :]
        query = tl.load(qkv + at, inside[:, None], 0.0)
        given = tl.load(gradient + at_out, inside[:, None], 0.0)
        output = tl.load(out + at_out, inside[:, None], 0.0)
        row_delta = tl.sum(given.to(tl.float32) * output.to(tl.float32), 1)
        tl.store(delta + head * tokens + rows, row_delta, inside)
        row_lse = tl.load(lse + head * tokens + rows, inside, 0.0)
        result = tl.zeros((BLOCK, SIZE), tl.float32)
        for first in range(start, end, BLOCK):
            columns = (first + tl.arange(0, BLOCK)).to(tl.int64)
            valid = columns < end
            at_key = qkv + columns[:, None] * stride + (heads + head) * SIZE + dims[None, :]
            key = tl.load(at_key, valid[:, None], 0.0)
            value = tl.load(at_key + heads * SIZE, valid[:, None], 0.0)
            weights = tl.exp2(tl.dot(query, tl.trans(key), input_precision="ieee") * scale - row_lse[:, None])
            weights = tl.where(valid[None, :], weights, 0.0)
            products = weights * (tl.dot(given, tl.trans(value), input_precision="ieee") - row_delta[:, None])
            result += tl.dot(products.to(key.dtype), key, input_precision="ieee")
        result *= scale * 0.6931471805599453
        tl.store(qkv_gradient + at, result.to(qkv_gradient.dtype.element_ty), inside[:, None])


@triton.jit
def _key_value_gradient(
    gradient,
    qkv,
    lse,
    delta,
    qkv_gradient,
    cu_seqlens,
    tokens,
    scale,
    heads,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    head, text = tl.program_id(1), tl.program_id(2)
    start, end = tl.load(cu_seqlens + text), tl.load(cu_seqlens + text + 1)
    columns = (start + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    if start + tl.program_id(0) * BLOCK < end:
        dims = tl.arange(0, SIZE)
        stride = 3 * heads * SIZE
        inside = columns < end
        at = columns[:, None] * stride + (heads + head) * SIZE + dims[None, :]
        key = tl.load(qkv + at, inside[:, None], 0.0)
        value = tl.load(qkv + at + heads * SIZE, inside[:, None], 0.0)
        key_gradient = tl.zeros((BLOCK, SIZE), tl.float32)
        value_gradient = tl.zeros((BLOCK, SIZE), tl.float32)
        for first in range(start, end, BLOCK):
            rows = (first + tl.arange(0, BLOCK)).to(tl.int64)
            valid = rows < end
            query = tl.load(qkv + rows[:, None] * stride + head * SIZE + dims[None, :], valid[:, None], 0.0)
            at_given = gradient + rows[:, None] * heads * SIZE + head * SIZE + dims[None, :]
            given = tl.load(at_given, valid[:, None], 0.0)
            row_lse = tl.load(lse + head * tokens + rows, valid, float("inf"))
            row_delta = tl.load(delta + head * tokens + rows, valid, 0.0)
            weights = tl.exp2(tl.dot(key, tl.trans(query), input_precision="ieee") * scale - row_lse[None, :])
            value_gradient += tl.dot(weights.to(given.dtype), given, input_precision="ieee")
            products = weights * (tl.dot(value, tl.trans(given), input_precision="ieee") - row_delta[None, :])
            key_gradient += tl.dot(products.to(query.dtype), query, input_precision="ieee")
        key_gradient *= scale * 0.6931471805599453
        tl.store(qkv_gradient + at, key_gradient.to(qkv_gradient.dtype.element_ty), inside[:, None])
        tl.store(qkv_gradient + at + heads * SIZE, value_gradient.to(qkv_gradient.dtype.element_ty), inside[:, None])
