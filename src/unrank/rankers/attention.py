"""Attention over texts laid end to end, in kernels for short texts.

A token attends to those of its own text. The usual kernels work on blocks of 128 tokens, of which a short text leaves
most empty, and give the gradients of query, key and value apart; these work on smaller blocks, read and write all three
side by side, and add up nothing in an order that chance decides.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64
ANSWERS = 32
"""Tokens that are looked at together on the way forward. Fewer than ask, because most texts end within a block."""


def attend(sides: Tensor, starts: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """What each token saw, and the logarithm of its weights' sum, base 2. Text i is `starts[i]` to `starts[i + 1]`.

    sides [tokens, 3, heads, size] -> [tokens, heads, size], [heads, tokens]
    """
    tokens, _, heads, size = sides.shape
    seen = torch.empty(tokens, heads, size, dtype=sides.dtype, device=sides.device)
    weight = torch.empty(heads, tokens, device=sides.device)
    _attend[_grid(starts, longest, heads)](
        *(sides, seen, weight, starts, tokens, _scale(size), heads, size, BLOCK, ANSWERS), num_warps=4, num_stages=3
    )
    return seen, weight


def attend_backward(
    gradient: Tensor, sides: Tensor, seen: Tensor, weight: Tensor, starts: Tensor, longest: int
) -> Tensor:
    """The gradient of query, key and value. [tokens, 3, heads, size]"""
    tokens, _, heads, size = sides.shape
    out = torch.empty_like(sides)
    along = torch.empty_like(weight)
    grid, told = _grid(starts, longest, heads), (starts, tokens, _scale(size), heads, size, BLOCK)
    _of_query[grid](gradient, sides, seen, weight, along, out, *told)
    _of_key_and_value[grid](gradient, sides, weight, along, out, *told)
    return out


def attend_first(asks: Tensor, sides: Tensor, starts: Tensor) -> Tensor:
    """What the one token of each text that asks saw. Without a way back.

    asks [texts, heads, size], sides (key and value) [tokens, 2, heads, size] -> [texts, heads, size]
    """
    texts, heads, size = asks.shape
    seen = torch.empty_like(asks)
    _attend_first[texts, heads](asks, sides, seen, starts, _scale(size), heads, size, BLOCK)
    return seen


def _grid(starts: Tensor, longest: int, heads: int) -> tuple[int, int, int]:
    return triton.cdiv(longest, BLOCK), heads, len(starts) - 1


def _scale(size: int) -> float:
    """What a product of query and key is worth, base 2."""
    return math.log2(math.e) / math.sqrt(size)


@triton.jit
def _attend(
    sides, seen, weight, starts, tokens, scale, heads, SIZE: tl.constexpr, ASKS: tl.constexpr, ANSWERS: tl.constexpr
):
    head, text = tl.program_id(1), tl.program_id(2)
    start, end = tl.load(starts + text), tl.load(starts + text + 1)
    asks = (start + tl.program_id(0) * ASKS + tl.arange(0, ASKS)).to(tl.int64)
    if start + tl.program_id(0) * ASKS < end:
        number = tl.arange(0, SIZE)
        row = 3 * heads * SIZE
        query = tl.load(sides + asks[:, None] * row + head * SIZE + number[None, :], (asks < end)[:, None], 0.0)
        most = tl.full((ASKS,), float("-inf"), tl.float32)
        total = tl.zeros((ASKS,), tl.float32)
        mix = tl.zeros((ASKS, SIZE), tl.float32)
        for first in range(start, end, ANSWERS):
            answers = (first + tl.arange(0, ANSWERS)).to(tl.int64)
            there = answers < end
            at = sides + answers[:, None] * row + (heads + head) * SIZE + number[None, :]
            key = tl.load(at, there[:, None], 0.0)
            value = tl.load(at + heads * SIZE, there[:, None], 0.0)
            match = tl.where(there[None, :], tl.dot(query, tl.trans(key)) * scale, float("-inf"))
            higher = tl.maximum(most, tl.max(match, 1))
            part = tl.exp2(match - higher[:, None])
            fade = tl.exp2(most - higher)
            total = total * fade + tl.sum(part, 1)
            mix = mix * fade[:, None] + tl.dot(part.to(value.dtype), value)
            most = higher
        place = asks[:, None] * heads * SIZE + head * SIZE + number[None, :]
        tl.store(seen + place, (mix / total[:, None]).to(seen.dtype.element_ty), (asks < end)[:, None])
        tl.store(weight + head * tokens + asks, most + tl.log2(total), asks < end)


@triton.jit
def _attend_first(asks, sides, seen, starts, scale, heads, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    text, head = tl.program_id(0), tl.program_id(1)
    start, end = tl.load(starts + text), tl.load(starts + text + 1)
    number = tl.arange(0, SIZE)
    place = (text * heads + head) * SIZE + number
    row = 2 * heads * SIZE
    query = tl.load(asks + place).to(tl.float32) * scale
    most = float("-inf")
    total = 0.0
    mix = tl.zeros((SIZE,), tl.float32)
    for first in range(start, end, BLOCK):
        answers = (first + tl.arange(0, BLOCK)).to(tl.int64)
        there = answers < end
        at = sides + answers[:, None] * row + head * SIZE + number[None, :]
        key = tl.load(at, there[:, None], 0.0).to(tl.float32)
        value = tl.load(at + heads * SIZE, there[:, None], 0.0).to(tl.float32)
        match = tl.where(there, tl.sum(key * query[None, :], 1), float("-inf"))
        higher = tl.maximum(most, tl.max(match, 0))
        part = tl.exp2(match - higher)
        fade = tl.exp2(most - higher)
        total = total * fade + tl.sum(part, 0)
        mix = mix * fade + tl.sum(part[:, None] * value, 0)
        most = higher
    tl.store(seen + place, (mix / total).to(seen.dtype.element_ty))


@triton.jit
def _of_query(
    gradient, sides, seen, weight, along, out, starts, tokens, scale, heads, SIZE: tl.constexpr, BLOCK: tl.constexpr
):
    head, text = tl.program_id(1), tl.program_id(2)
    start, end = tl.load(starts + text), tl.load(starts + text + 1)
    asks = (start + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    if start + tl.program_id(0) * BLOCK < end:
        number = tl.arange(0, SIZE)
        row = 3 * heads * SIZE
        here = asks < end
        at = asks[:, None] * row + head * SIZE + number[None, :]
        place = asks[:, None] * heads * SIZE + head * SIZE + number[None, :]
        query = tl.load(sides + at, here[:, None], 0.0)
        given = tl.load(gradient + place, here[:, None], 0.0)
        mix = tl.load(seen + place, here[:, None], 0.0)
        level = tl.sum(given.to(tl.float32) * mix.to(tl.float32), 1)
        tl.store(along + head * tokens + asks, level, here)
        sum_ = tl.load(weight + head * tokens + asks, here, 0.0)
        result = tl.zeros((BLOCK, SIZE), tl.float32)
        for first in range(start, end, BLOCK):
            answers = (first + tl.arange(0, BLOCK)).to(tl.int64)
            there = answers < end
            from_ = sides + answers[:, None] * row + (heads + head) * SIZE + number[None, :]
            key = tl.load(from_, there[:, None], 0.0)
            value = tl.load(from_ + heads * SIZE, there[:, None], 0.0)
            part = tl.exp2(tl.dot(query, tl.trans(key)) * scale - sum_[:, None])
            part = tl.where(there[None, :], part, 0.0)
            pull = part * (tl.dot(given, tl.trans(value)) - level[:, None])
            result += tl.dot(pull.to(key.dtype), key)
        result *= scale * 0.6931471805599453
        tl.store(out + at, result.to(out.dtype.element_ty), here[:, None])


@triton.jit
def _of_key_and_value(
    gradient, sides, weight, along, out, starts, tokens, scale, heads, SIZE: tl.constexpr, BLOCK: tl.constexpr
):
    head, text = tl.program_id(1), tl.program_id(2)
    start, end = tl.load(starts + text), tl.load(starts + text + 1)
    answers = (start + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    if start + tl.program_id(0) * BLOCK < end:
        number = tl.arange(0, SIZE)
        row = 3 * heads * SIZE
        here = answers < end
        at = answers[:, None] * row + (heads + head) * SIZE + number[None, :]
        key = tl.load(sides + at, here[:, None], 0.0)
        value = tl.load(sides + at + heads * SIZE, here[:, None], 0.0)
        of_key = tl.zeros((BLOCK, SIZE), tl.float32)
        of_value = tl.zeros((BLOCK, SIZE), tl.float32)
        for first in range(start, end, BLOCK):
            asks = (first + tl.arange(0, BLOCK)).to(tl.int64)
            there = asks < end
            query = tl.load(sides + asks[:, None] * row + head * SIZE + number[None, :], there[:, None], 0.0)
            given_at = gradient + asks[:, None] * heads * SIZE + head * SIZE + number[None, :]
            given = tl.load(given_at, there[:, None], 0.0)
            sum_ = tl.load(weight + head * tokens + asks, there, float("inf"))
            level = tl.load(along + head * tokens + asks, there, 0.0)
            part = tl.exp2(tl.dot(key, tl.trans(query)) * scale - sum_[None, :])
            of_value += tl.dot(part.to(given.dtype), given)
            pull = part * (tl.dot(value, tl.trans(given)) - level[None, :])
            of_key += tl.dot(pull.to(query.dtype), query)
        of_key *= scale * 0.6931471805599453
        tl.store(out + at, of_key.to(out.dtype.element_ty), here[:, None])
        tl.store(out + at + heads * SIZE, of_value.to(out.dtype.element_ty), here[:, None])
