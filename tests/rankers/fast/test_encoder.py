"""The way an encoder runs on a GPU, tried on a CPU: the same scores without padding, and in bfloat16 nearly so."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.rankers.conftest import enliven
from unrank.rankers import create_ranker
from unrank.rankers.base import Ranker
from unrank.rankers.fast import bf16_weights, packed_layers, packing
from unrank.rankers.fast import encoder as fast_encoder
from unrank.rankers.fast.bucketing import Bucket
from unrank.rankers.layers import train_layers_of
from unrank.rankers.tokenisation import EncoderInputs

KINDS = ["cross-encoder", "bi-encoder", "colbert", "parade"]
QUERIES = ["ba be", "", "cel dan fos gu", "hir ka le mi no pu ran sel tir"]
DOCUMENTS = ["ba ce di fo gu han kel", "lir mos", "", "can del fir gos " * 30]


def as_on_a_gpu(patch: pytest.MonkeyPatch, kind: torch.dtype) -> None:
    patch.setattr(fast_encoder, "on_gpu", lambda encoder: True)
    patch.setattr(bf16_weights, "PRECISION", kind)


def scores(ranker: Ranker) -> Tensor:
    result: Tensor = ranker(ranker.tokenize(QUERIES, "query"), ranker.tokenize(DOCUMENTS, "document"))
    return result


def scores_and_gradients(ranker: Ranker) -> tuple[Tensor, dict[str, Tensor]]:
    ranker.zero_grad()
    given = scores(ranker)
    given.sum().backward()  # type: ignore[no-untyped-call]
    return given.detach(), {name: weight.grad for name, weight in ranker.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("kind", KINDS)
def test_with_less_than_the_library_computes_scores_and_gradients_stay(
    kind: str, packed: bool, rankers: dict[str, Ranker], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker, whole = copy.deepcopy(rankers[kind]), copy.deepcopy(rankers[kind])
    for encoder in whole.fast_encoders:
        encoder.first_only = False
    expected, its_gradients = scores_and_gradients(whole)
    if packed:
        as_on_a_gpu(monkeypatch, torch.float32)
    given, gradients = scores_and_gradients(ranker)
    np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-5)
    assert gradients.keys() == its_gradients.keys()
    for name, gradient in its_gradients.items():
        np.testing.assert_allclose(gradients[name], gradient, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("kind", ["cross-encoder", "bi-encoder", "parade"])
def test_where_the_first_token_is_all_that_is_read_the_last_layer_computes_no_other(
    kind: str, rankers: dict[str, Ranker]
) -> None:
    ranker, seen = copy.deepcopy(rankers[kind]), []
    (encoder,) = ranker.fast_encoders
    layers: Any = encoder._encoder.encoder
    for layer in layers.layer:
        layer.register_forward_hook(lambda layer, inputs, output: seen.append(output.shape[1]))
    scores(ranker)
    passes = [seen[start : start + len(layers.layer)] for start in range(0, len(seen), len(layers.layer))]
    assert passes
    assert all(min(first) > 1 and last == 1 for *first, last in passes)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_moves_scores_by_little_and_weights_stay_float32(
    kind: str, rankers: dict[str, Ranker], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = copy.deepcopy(rankers[kind])
    usual = scores(ranker).detach()
    as_on_a_gpu(monkeypatch, torch.bfloat16)
    lower = scores(ranker)
    assert lower.dtype == torch.float32
    np.testing.assert_allclose(lower.detach(), usual, rtol=0.05, atol=0.05 * float(usual.abs().max()))
    lower.sum().backward()  # type: ignore[no-untyped-call]
    grads = [weight.grad for weight in ranker.parameters() if weight.grad is not None]
    assert grads and all(grad.dtype == torch.float32 and grad.isfinite().all() for grad in grads)


def test_a_copy_runs_on_its_own_weights(rankers: dict[str, Ranker], monkeypatch: pytest.MonkeyPatch) -> None:
    as_on_a_gpu(monkeypatch, torch.float32)
    original = rankers["cross-encoder"]
    before = scores(original).detach()
    changed = copy.deepcopy(original)
    with torch.no_grad():
        for weight in changed.parameters():
            weight.mul_(0.5)
    assert not torch.allclose(scores(changed), before, atol=1e-3)
    assert torch.equal(scores(original), before)


def test_what_is_frozen_gets_no_gradient(rankers: dict[str, Ranker], monkeypatch: pytest.MonkeyPatch) -> None:
    as_on_a_gpu(monkeypatch, torch.float32)
    ranker = copy.deepcopy(rankers["cross-encoder"])
    train_layers_of(ranker, 1)
    scores(ranker).sum().backward()  # type: ignore[no-untyped-call]
    assert {name for name, weight in ranker.named_parameters() if weight.grad is not None} == {
        name for name, weight in ranker.named_parameters() if weight.requires_grad
    }


def test_padding_reaches_no_layer(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranker = enliven(create_ranker("cross-encoder", str(encoder), seed=0))
    as_on_a_gpu(monkeypatch, torch.float32)
    seen: list[int] = []

    def noted(states: Tensor, *rest: Any) -> Tensor:
        seen.append(len(states))
        return packed_layers.packed_layer(states, *rest)

    monkeypatch.setattr(packing, "packed_layer", noted)
    queries, documents = ranker.tokenize(QUERIES, "query"), ranker.tokenize(DOCUMENTS, "document")
    ranker(queries, documents)
    lengths = ranker.lengths(queries.lengths, documents.lengths)
    assert set(seen) == {Bucket.around(lengths).tokens}
    assert seen[0] < 0.6 * len(lengths) * lengths.max()


def test_a_family_that_is_not_listed_runs_through_its_own_layers(
    rankers: dict[str, Ranker], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = copy.deepcopy(rankers["bi-encoder"])
    usual = scores(ranker).detach()
    as_on_a_gpu(monkeypatch, torch.float32)
    monkeypatch.setattr(packing, "FAMILIES", {})
    np.testing.assert_allclose(scores(ranker).detach(), usual, rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", KINDS)
def test_on_a_gpu_scores_are_those_of_the_cpu(kind: str, rankers: dict[str, Ranker]) -> None:
    expected = scores(rankers[kind]).detach()
    given = scores(copy.deepcopy(rankers[kind]).cuda()).detach().cpu()
    np.testing.assert_allclose(given, expected, rtol=0.05, atol=0.05 * float(expected.abs().max()))


def test_inputs_are_forgotten_after_the_pass(rankers: dict[str, Ranker]) -> None:
    (held,) = rankers["bi-encoder"].fast_encoders
    with pytest.raises(ZeroDivisionError), held.reading(EncoderInputs(np.array([1], np.int32), np.array([1]), 8, 0)):
        assert held.current.packable is not None
        _ = 1 / 0
    assert held.current.packable is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", KINDS)
def test_on_a_gpu_gradients_are_those_of_the_cpu(kind: str, rankers: dict[str, Ranker]) -> None:
    usual, lean_one = copy.deepcopy(rankers[kind]), copy.deepcopy(rankers[kind]).cuda()
    for ranker in (usual, lean_one):
        scores(ranker).square().sum().backward()  # type: ignore[no-untyped-call]
    expected = {name: weight.grad for name, weight in usual.named_parameters() if weight.grad is not None}
    given = {name: weight.grad.cpu() for name, weight in lean_one.named_parameters() if weight.grad is not None}
    assert given.keys() == expected.keys()
    whole = float(torch.cat([gradient.flatten() for gradient in expected.values()]).norm())
    for name, gradient in expected.items():
        apart = float((given[name] - gradient).norm())
        assert apart <= 0.1 * float(gradient.norm()) + 0.005 * whole, name
