"""An adapter: it shares its other weights with the original, is trained alone, and is merged without a trace."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from tests.rankers.conftest import ENCODER_KINDS
from tests.rankers.fast.test_cuda_graphs import assert_trained_alike
from tests.rankers.fast.test_cuda_graphs import recorded as recorded
from tests.rankers.fast.test_encoder import KINDS as RECORDED
from tests.rankers.fast.test_encoder import as_on_a_gpu, scores
from unrank.errors import UnrankError
from unrank.rankers import create_ranker
from unrank.rankers.base import Ranker
from unrank.rankers.layers import train_layers_of
from unrank.rankers.lora import add_adapter, linear_layers, share_weights, take_adapter

KINDS = [*(kind for kind in ENCODER_KINDS if kind != "colbert-dot"), "decoder"]


def adapted(ranker: Ranker, rank: int = 4) -> Ranker:
    student = share_weights(ranker)
    add_adapter(student, rank, seed=3)
    return student


def stir(ranker: Ranker) -> None:
    """Move every weight that may move."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in ranker.parameters():
            if weight.requires_grad:
                weight.add_(0.1 * torch.randn(weight.shape, generator=generator))


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_adapter_changes_no_score_and_shares_all_weights(kind: str, rankers: dict[str, Ranker]) -> None:
    original = rankers[kind]
    student = adapted(original)
    assert torch.equal(scores(student), scores(original))
    places = {weight.data_ptr() for weight in original.parameters()}
    own = [weight for weight in student.parameters() if weight.data_ptr() not in places]
    assert {id(weight) for weight in own} == {id(weight) for weight in student.parameters() if weight.requires_grad}
    assert all(weight.requires_grad for weight in original.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_merged_it_scores_as_before_and_the_original_stays_to_the_bit(kind: str, rankers: dict[str, Ranker]) -> None:
    original = rankers[kind]
    before, names = scores(original).detach(), [name for name, _ in original.named_parameters()]
    student = adapted(original)
    stir(student)
    moved = scores(student).detach()
    taken = take_adapter(student)
    assert taken is not None and taken.rank == 4 and [*taken.matrices] == [name for name, _ in linear_layers(original)]
    np.testing.assert_allclose(scores(student).detach(), moved, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(moved, before, atol=1e-3)
    assert [name for name, _ in student.named_parameters()] == names
    with torch.no_grad():
        for weight in student.parameters():
            weight.zero_()
    assert torch.equal(scores(original), before), "the merged ranker has weights of its own"
    assert take_adapter(student) is None


@pytest.mark.parametrize("kind", RECORDED)
def test_recorded_steps_of_an_adapter_are_the_usual_ones(
    kind: str, rankers: dict[str, Ranker], monkeypatch: pytest.MonkeyPatch, recorded: list[object]
) -> None:
    replayed, usual = adapted(rankers[kind]), adapted(rankers[kind])
    stir(replayed)
    stir(usual)
    assert_trained_alike(replayed, usual, monkeypatch)
    assert recorded


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")
def test_a_small_change_is_not_lost_in_bfloat16(rankers: dict[str, Ranker], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is added in float32 and rounded then, as a merged weight is: to the same bits."""
    student = adapted(rankers["cross-encoder"])
    with torch.no_grad():
        for name, weight in student.named_parameters():
            if name.endswith(".b"):
                weight.fill_(1e-4)
    as_on_a_gpu(monkeypatch, torch.bfloat16)
    with torch.no_grad():
        apart = scores(student)
        take_adapter(student)
        assert torch.equal(scores(student), apart)


def test_only_the_layers_that_would_be_trained_are_adapted(rankers: dict[str, Ranker]) -> None:
    student = share_weights(rankers["bi-encoder"])
    train_layers_of(student, 1)
    add_adapter(student, 2, seed=0)
    taken = take_adapter(student)
    assert taken is not None and {name.split("layer.")[1][0] for name in taken.matrices} == {"1"}


def test_a_copy_of_an_adapted_ranker_is_adapted_too(rankers: dict[str, Ranker]) -> None:
    student = adapted(rankers["bi-encoder"])
    stir(student)
    copied = copy.deepcopy(student)
    np.testing.assert_array_equal(scores(copied).detach(), scores(student).detach())


def test_the_librarys_own_passes_have_the_change_too(rankers: dict[str, Ranker]) -> None:
    student = adapted(rankers["bi-encoder"])
    stir(student)
    fast = scores(student).detach()
    student.fast = False
    np.testing.assert_allclose(scores(student).detach(), fast, rtol=1e-4, atol=1e-4)


def test_a_ranker_without_layers_is_refused(bases: dict[str, str]) -> None:
    with pytest.raises(UnrankError, match="this duet has no linear layers within an encoder"):
        add_adapter(create_ranker("duet", bases["duet"], seed=0), 4, seed=0)
