"""On a GPU: every kernel and every packed family against the library's own padded computation.

In float32 a result is within 1e-4 of the range of the library's. In bfloat16 it is no further from the library's
float32 than 1.5 times the library's own bfloat16 is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention, silu
from transformers import AutoConfig
from transformers.models.bert.modeling_bert import BertLayer
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from tests.rankers.fast.test_families import TRIED, make_model
from tests.tiny import make_decoder
from unrank.rankers import create_ranker
from unrank.rankers.decoder import DecoderRanker
from unrank.rankers.fast import bf16_weights
from unrank.rankers.fast.encoder import FastEncoder
from unrank.rankers.fast.packed_layers import BERT, Sequences, packed_layer
from unrank.rankers.fast.packing import FAMILIES, Family
from unrank.rankers.tokenisation import EncoderInputs
from unrank.rankers.tokens import token_mask

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

LENGTHS = np.array([1, 7, 64, 65, 130, 33, 2, 96])
TOKENS, WIDTH = int(LENGTHS.sum()), int(LENGTHS.max())
FLOAT32, BFLOAT16 = 1e-4, 1.5
HEADS = 2
SIZES = [16, 32, 64, 128]
EXACT_SIZES = [16, 32, 64]
"""Sizes of a head for float32, in which larger kernels take long to compile."""


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    """Let float32 products be float32, and each test have the same numbers."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(0)
    yield
    torch.set_float32_matmul_precision(before)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda")


def sequences() -> Sequences:
    bounds = np.concatenate([[0], np.cumsum(LENGTHS)]).astype(np.int32)
    return Sequences(torch.from_numpy(bounds).cuda(), 256)


def mask() -> Tensor:
    """True for each token of a padded batch. [texts, width]"""
    return token_mask(LENGTHS, WIDTH, torch.device("cuda"))


def padded(packed: Tensor) -> Tensor:
    """[tokens, ...] -> [texts, width, ...]"""
    whole = packed.new_zeros(len(LENGTHS), WIDTH, *packed.shape[1:])
    whole[mask()] = packed
    return whole


def assert_close(given: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> None:
    """Within 1e-4 of the range, tensor by tensor; a range counts as at least a hundredth of the largest."""
    pairs = [(mine, theirs) for mine, theirs in zip(given, expected, strict=True) if theirs is not None]
    ranges = [float(theirs.max() - theirs.min()) for _, theirs in pairs]
    for number, (mine, theirs) in enumerate(pairs):
        assert mine is not None and mine.isfinite().all(), number
        apart = float((mine.float() - theirs.float()).abs().max())
        assert apart <= FLOAT32 * max(ranges[number], 0.01 * max(ranges)), (number, apart, ranges[number])


def distance(given: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> float:
    """The distance of all tensors together, relative to their norm."""
    pairs = [(mine, theirs) for mine, theirs in zip(given, expected, strict=True) if theirs is not None]
    assert all(mine is not None and mine.isfinite().all() for mine, _ in pairs)
    apart = sum(float((mine.float() - theirs).square().sum()) for mine, theirs in pairs if mine is not None)
    return float(np.sqrt(apart / sum(float(theirs.square().sum()) for _, theirs in pairs)))


def assert_as_near(
    given: Sequence[Tensor | None], library: Sequence[Tensor | None], exact: Sequence[Tensor | None]
) -> None:
    """No further from float32 than 1.5 times the library's own bfloat16."""
    ours, theirs = distance(given, exact), distance(library, exact)
    assert 0 < theirs < 0.2, theirs
    assert ours <= BFLOAT16 * theirs, (ours, theirs)


def assert_alike(
    ours: Callable[[torch.dtype], Sequence[Tensor | None]],
    library: Callable[[torch.dtype], Sequence[Tensor | None]],
    dtype: torch.dtype,
) -> None:
    """Compare two computations, which are given a precision, by the rule of that precision.

    In float32 the library attends by its plain kernel, in bfloat16 by the one that it would choose. If that one's
    gradients are not finite, the plain kernel is used: in a sliding window a row of padding attends to nothing.
    """
    with sdpa_kernel(SDPBackend.MATH):
        exact = library(torch.float32)
        if dtype == torch.float32:
            return assert_close(ours(torch.float32), exact)
    given = library(dtype)
    if not all(tensor.isfinite().all() for tensor in given if tensor is not None):
        with sdpa_kernel(SDPBackend.MATH):
            given = library(dtype)
    return assert_as_near(ours(dtype), given, exact)


def sizes_and_types() -> list[tuple[int, torch.dtype]]:
    exact = [(size, torch.float32) for size in EXACT_SIZES]
    return [*exact, *((size, torch.bfloat16) for size in SIZES)]


def library_attention(qkv: Tensor) -> Tensor:
    """Attention over padded texts. [tokens, 3, heads, size] -> [tokens, heads, size]"""
    query, key, value = padded(qkv).permute(2, 0, 3, 1, 4)
    out = scaled_dot_product_attention(query, key, value, mask()[:, None, None, :])
    return out.transpose(1, 2)[mask()]


@pytest.mark.parametrize(("size", "dtype"), sizes_and_types())
def test_attention_and_its_gradient(size: int, dtype: torch.dtype) -> None:
    from unrank.rankers.fast.attention_kernels import attend, attend_backward

    whole, gradient, (cu_seqlens, max_length) = random(TOKENS, 3, HEADS, size), random(TOKENS, HEADS, size), sequences()

    def ours(dtype: torch.dtype) -> Sequence[Tensor]:
        qkv = whole.to(dtype)
        out, lse = attend(qkv, cu_seqlens, max_length)
        return out, attend_backward(gradient.to(dtype), qkv, out, lse, cu_seqlens, max_length)

    def library(dtype: torch.dtype) -> Sequence[Tensor]:
        qkv = whole.to(dtype, copy=True).requires_grad_()
        out = library_attention(qkv)
        return out.detach(), *torch.autograd.grad(out, qkv, gradient.to(dtype))

    assert_alike(ours, library, dtype)


@pytest.mark.parametrize("size", EXACT_SIZES)
def test_the_sum_of_exponentials_of_attention(size: int) -> None:
    from unrank.rankers.fast.attention_kernels import attend

    qkv = random(TOKENS, 3, HEADS, size)
    query, key, _ = padded(qkv).permute(2, 0, 3, 1, 4)
    products = (query @ key.transpose(-1, -2) / size**0.5).masked_fill(~mask()[:, None, None, :], -torch.inf)
    expected = products.logsumexp(-1).transpose(1, 2)[mask()].T / np.log(2)
    _, lse = attend(qkv, *sequences())
    assert_close([lse], [expected])


@pytest.mark.parametrize(("size", "dtype"), sizes_and_types())
def test_attention_of_first_tokens(size: int, dtype: torch.dtype) -> None:
    from unrank.rankers.fast.attention_kernels import attend_first

    whole, cu_seqlens = random(TOKENS, 3, HEADS, size), sequences().cu_seqlens

    def ours(dtype: torch.dtype) -> Sequence[Tensor]:
        qkv = whole.to(dtype)
        return [attend_first(qkv[cu_seqlens[:-1], 0].contiguous(), qkv[:, 1:].contiguous(), cu_seqlens)]

    def library(dtype: torch.dtype) -> Sequence[Tensor]:
        return [library_attention(whole.to(dtype))[cu_seqlens[:-1]]]

    assert_alike(ours, library, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [16, 24, 64, 128])
def test_the_rotation_of_heads_and_its_gradient(size: int, dtype: torch.dtype) -> None:
    from unrank.rankers.fast.decoder_kernels import rotated

    whole, gradient = random(1, TOKENS, HEADS, size), random(1, HEADS, TOKENS, size)
    cosine, sine = random(1, TOKENS, size), random(1, TOKENS, size)

    def turned(turn: Callable[[Tensor, Tensor, Tensor], Tensor], dtype: torch.dtype) -> Sequence[Tensor]:
        states = whole.to(dtype, copy=True).requires_grad_()
        out = turn(states.transpose(1, 2), cosine.to(dtype), sine.to(dtype))
        return out.detach(), *torch.autograd.grad(out, states, gradient.to(dtype))

    def library(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        out: Tensor = apply_rotary_pos_emb(states, states, cosine, sine)[0]
        return out

    assert_alike(partial(turned, rotated), partial(turned, library), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [5, 1_536])
def test_a_gated_activation_and_its_gradient(size: int, dtype: torch.dtype) -> None:
    from unrank.rankers.fast.decoder_kernels import gated

    whole, gradient = random(2, TOKENS, size), random(TOKENS, size)

    def given(activate: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype) -> Sequence[Tensor]:
        both = whole.to(dtype, copy=True).requires_grad_()
        out = activate(*both)
        return out.detach(), *torch.autograd.grad(out, both, gradient.to(dtype))

    def library(gate: Tensor, up: Tensor) -> Tensor:
        return silu(gate) * up

    assert_alike(partial(given, gated), partial(given, library), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [32, 96, 384])
def test_the_norm_of_a_sum_and_its_gradient(size: int, dtype: torch.dtype) -> None:
    from unrank.rankers.fast.layer_kernels import add_norm, norm_backward, norm_of_sum

    states, added, gradient = random(TOKENS, size), random(TOKENS, size), random(TOKENS, size)
    scale, shift = 1 + 0.1 * random(size), 0.1 * random(size)

    def ours(dtype: torch.dtype) -> Sequence[Tensor]:
        first, second, factor, offset = (part.to(dtype, copy=True) for part in (states, added, scale, shift))
        without = norm_of_sum(first, second.clone(), factor, offset, 1e-5)
        out, sums, mean, inverse = add_norm(first, second, factor, offset, 1e-5)
        at_sum, of_weights = norm_backward(gradient.to(dtype), sums, mean, inverse, factor)
        return [out, without, at_sum, *of_weights]

    def library(dtype: torch.dtype) -> Sequence[Tensor]:
        parts = [part.to(dtype, copy=True).requires_grad_() for part in (states, added, scale, shift)]
        first, second, factor, offset = parts
        out = layer_norm(first + second, (size,), factor, offset, 1e-5)
        at_sum, of_scale, of_shift = torch.autograd.grad(out, [first, factor, offset], gradient.to(dtype))
        return [out.detach(), out.detach(), at_sum, of_scale, of_shift, at_sum.sum(0)]

    assert_alike(ours, library, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [64, 1536])
def test_the_gradient_of_gelu(size: int, dtype: torch.dtype) -> None:
    from unrank.rankers.fast.layer_kernels import gelu_backward

    states, gradient = 2 * random(TOKENS, size), random(TOKENS, size)

    def ours(dtype: torch.dtype) -> Sequence[Tensor]:
        return gelu_backward(gradient.to(dtype), states.to(dtype))

    def library(dtype: torch.dtype) -> Sequence[Tensor]:
        before = states.to(dtype, copy=True).requires_grad_()
        (of_states,) = torch.autograd.grad(gelu(before), before, gradient.to(dtype))
        return of_states, of_states.sum(0)

    assert_alike(ours, library, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("family", "typed"), [("bert", True), ("bert", False), ("distilbert", False)])
def test_embeddings(family: str, typed: bool, dtype: torch.dtype) -> None:
    from unrank.rankers.fast.layer_kernels import embed

    embeddings = make_model(family).embeddings.cuda()
    ids, positions = (torch.randint(0, most, (TOKENS,), device="cuda") for most in (99, 72))
    types = torch.randint(0, 2, (TOKENS,), device="cuda") if typed else None
    more = {"token_type_ids": types[None]} if types is not None else {}

    def ours(dtype: torch.dtype) -> Sequence[Tensor]:
        return [embed(ids, positions, types, copy.deepcopy(embeddings).to(dtype))]

    def library(dtype: torch.dtype) -> Sequence[Tensor]:
        return [copy.deepcopy(embeddings).to(dtype)(input_ids=ids[None], position_ids=positions[None], **more)[0]]

    with torch.no_grad():
        assert_alike(ours, library, dtype)


def make_layer(size: int) -> nn.Module:
    config = AutoConfig.for_model(
        "bert", hidden_size=HEADS * size, num_attention_heads=HEADS, intermediate_size=4 * HEADS * size
    )
    config._attn_implementation = "sdpa"
    layer = BertLayer(config).eval()
    with torch.no_grad():
        for weight in layer.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    moved: nn.Module = layer.cuda()
    return moved


@pytest.mark.parametrize("gradients", [True, False], ids=["with gradients", "forward"])
@pytest.mark.parametrize("first_only", [False, True], ids=["all tokens", "first tokens"])
@pytest.mark.parametrize(("size", "dtype"), sizes_and_types())
def test_a_layer(size: int, dtype: torch.dtype, first_only: bool, gradients: bool) -> None:
    layer, whole = make_layer(size), random(TOKENS, HEADS * size)
    cu_seqlens = sequences().cu_seqlens
    rows = cu_seqlens[:-1].long() if first_only else torch.arange(TOKENS, device="cuda")
    gradient = random(len(rows), HEADS * size)

    def found(out: Tensor, states: Tensor, copied: nn.Module, dtype: torch.dtype) -> Sequence[Tensor | None]:
        if not gradients:
            return [out]
        weights = [states, *copied.parameters()]
        return [out.detach(), *torch.autograd.grad(out, weights, gradient.to(dtype))]

    def ours(dtype: torch.dtype) -> Sequence[Tensor | None]:
        copied, states = copy.deepcopy(layer).to(dtype), whole.to(dtype, copy=True).requires_grad_(gradients)
        out = packed_layer(states, copied, BERT, HEADS, sequences(), first_only)
        if gradients and not first_only:
            assert "FusedLayer" in type(out.grad_fn).__name__
        return found(out, states, copied, dtype)

    def library(dtype: torch.dtype) -> Sequence[Tensor | None]:
        copied, states = copy.deepcopy(layer).to(dtype), whole.to(dtype, copy=True).requires_grad_(gradients)
        seen = mask()[:, None, None, :].expand(-1, 1, WIDTH, -1)
        out: Any = copied(padded(states), seen)
        out = out if isinstance(out, Tensor) else out[0]
        return found(out[mask()][rows], states, copied, dtype)

    with torch.set_grad_enabled(gradients):
        assert_alike(ours, library, dtype)


def texts_for(model: Any) -> EncoderInputs:
    """Texts that fit a tiny encoder. Some are longer than the window of modernbert."""
    lengths = np.array([3, 20, 1, 33, 60, 8])
    ids = np.random.default_rng(0).integers(5, 99, lengths.sum()).astype(np.int32)
    return EncoderInputs(ids, lengths, 64, int(model.config.pad_token_id or 0))


@pytest.mark.parametrize("gradients", [True, False], ids=["with gradients", "forward"])
@pytest.mark.parametrize("first_only", [False, True], ids=["all tokens", "first tokens"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", [*FAMILIES, *TRIED])
def test_a_packed_family(
    family: str, dtype: torch.dtype, first_only: bool, gradients: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(family).cuda()
    inputs, device = texts_for(model), torch.device("cuda")
    there = token_mask(inputs.lengths, inputs.width, device)
    if first_only:
        there &= torch.arange(inputs.width, device=device) == 0
    gradient = random(int(there.sum()), 32)

    def found(states: Tensor, copied: Any) -> Sequence[Tensor | None]:
        if not gradients:
            return [states]
        weights = list(copied.parameters())
        return [states.detach(), *torch.autograd.grad(states, weights, gradient.to(states.dtype), allow_unused=True)]

    def ours(dtype: torch.dtype) -> Sequence[Tensor | None]:
        monkeypatch.setattr(bf16_weights, "PRECISION", dtype)
        copied = copy.deepcopy(model)
        fast = FastEncoder(copied, first_only)
        packing = fast.packing()
        assert isinstance(packing, Family), packing
        with fast.reading(inputs) as features:
            states = copied(**features).last_hidden_state
        assert states.dtype == torch.float32
        short = first_only and packing.names is not None
        assert states.shape[1] == (1 if short else inputs.width)
        return found(states[:, 0] if short else states[there], copied)

    def library(dtype: torch.dtype) -> Sequence[Tensor | None]:
        copied = copy.deepcopy(model).to(dtype)
        return found(copied(**inputs.padded(device)).last_hidden_state[there], copied)

    with torch.set_grad_enabled(gradients):
        assert_alike(ours, library, dtype)


def test_switched_off_the_library_computes_alone() -> None:
    model = make_model("bert").cuda()
    inputs = texts_for(model)
    with torch.no_grad():
        expected = model(**inputs.padded(model.device)).last_hidden_state
        fast = FastEncoder(model)
        fast.enabled = False
        with fast.reading(inputs) as features:
            given = model(**features).last_hidden_state
    assert torch.equal(given, expected)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3_text"])
def test_a_decoder_scores_as_the_library(family: str, tmp_path: Path) -> None:
    """Packed in bfloat16, no further from float32 than 1.5 times the library's own bfloat16; gradients are finite."""
    made = create_ranker("decoder", str(make_decoder(tmp_path / "base", family)), seed=0)
    assert isinstance(made, DecoderRanker)
    queries, documents = ["ba be", "cel dan fos gu", "hir", ""] * 4, ["ba ce di fo gu", "lir mos " * 40, "", "ba"] * 4
    exact = torch.tensor(made.library_scores(queries, documents))
    library = copy.deepcopy(made)
    library.fast = False
    library.cuda()
    library.model.to(torch.bfloat16)
    apart = (torch.tensor(library.library_scores(queries, documents)) - exact).abs().max()
    made.cuda()
    assert isinstance(made.fast_encoders[0].packing(), Family)
    scores = made(made.tokenize(queries, "query"), made.tokenize(documents, "document"))
    assert float((scores.detach().cpu() - exact).abs().max()) <= max(BFLOAT16 * float(apart), FLOAT32)
    torch.autograd.backward(scores.sum())
    assert all(weight.grad is not None and bool(weight.grad.isfinite().all()) for weight in made.parameters())
