"""Recorded passes, tried on a CPU: there a recording is the same work done again. Graphs themselves need a GPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.rankers.fast.test_encoder import DOCUMENTS, KINDS, QUERIES, as_on_a_gpu
from unrank.rankers import parade
from unrank.rankers.base import Ranker
from unrank.rankers.cross_encoder import CrossEncoderRanker
from unrank.rankers.fast import cuda_graphs
from unrank.rankers.fast.bucketing import MAX_FILLING, Bucket
from unrank.rankers.layers import train_layers_of

STEPS = 6


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What was recorded, in order, by rankers that run as on a GPU."""
    as_on_a_gpu(monkeypatch, torch.float32)
    made: list[Callable[[], None]] = []
    under_way: list[Callable[[], None]] = []

    def record(memory: cuda_graphs.GraphMemory, work: Callable[[], None]) -> Callable[[], None]:
        assert not under_way, "a GPU records one thing at a time"
        under_way.append(work)
        work()
        under_way.clear()
        for tensor in work.__self__.outputs:  # type: ignore[attr-defined]
            tensor.data.fill_(torch.nan)  # a GPU notes what is recorded, and does none of it
        made.append(work)
        return work

    monkeypatch.setattr(cuda_graphs.GraphMemory, "record", record)
    return made


def train(ranker: Ranker, steps: int = STEPS) -> list[Tensor]:
    """The scores at each step of a short training."""
    rates = {"bi-encoder": 1e-4}  # its scores are no shares: at a higher rate they overflow
    moving = [weight for weight in ranker.parameters() if weight.requires_grad]
    optimizer = torch.optim.SGD(moving, lr=rates.get(ranker.kind, 0.05))
    queries, documents = ranker.tokenize(QUERIES, "query"), ranker.tokenize(DOCUMENTS, "document")
    seen = []
    with ranker.repeated_steps():
        for _ in range(steps):
            with ranker.constant_weights():
                scores: Tensor = ranker(queries, documents)
            assert scores.isfinite().all()
            seen.append(scores.detach().cpu())
            scores.square().mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return seen


def assert_trained_alike(replayed: Ranker, usual: Ranker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one with recorded passes, the other without."""
    seen = train(replayed)
    monkeypatch.setattr(cuda_graphs, "MAX_TOKENS", 0)
    for expected, given in zip(train(usual), seen, strict=True):
        np.testing.assert_allclose(given, expected, rtol=1e-4, atol=1e-5)
    assert not torch.equal(seen[0], seen[-1])
    for its, ours in zip(usual.parameters(), replayed.parameters(), strict=True):
        np.testing.assert_allclose(ours.detach(), its.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_steps_are_the_usual_ones(
    kind: str, rankers: dict[str, Ranker], monkeypatch: pytest.MonkeyPatch, recorded: list[Callable[[], None]]
) -> None:
    replayed, usual = copy.deepcopy(rankers[kind]), copy.deepcopy(rankers[kind])
    assert_trained_alike(replayed, usual, monkeypatch)
    assert recorded


@pytest.mark.parametrize("kind", ["bi-encoder", "colbert"])
def test_where_queries_have_an_encoder_of_their_own_its_passes_are_recorded(
    kind: str, rankers: dict[str, Ranker], monkeypatch: pytest.MonkeyPatch, recorded: list[Callable[[], None]]
) -> None:
    replayed: Any = copy.deepcopy(rankers[kind])
    replayed.freeze_documents()
    usual = copy.deepcopy(replayed)
    assert_trained_alike(replayed, usual, monkeypatch)
    assert recorded


def test_what_is_read_again_on_the_way_back_is_not_recorded(
    rankers: dict[str, Ranker], monkeypatch: pytest.MonkeyPatch, recorded: list[Callable[[], None]]
) -> None:
    usual = train(copy.deepcopy(rankers["parade"]))
    before = len(recorded)
    monkeypatch.setattr(parade, "MANY_PASSAGES", 0)
    for expected, given in zip(usual, train(copy.deepcopy(rankers["parade"])), strict=True):
        np.testing.assert_allclose(given, expected, rtol=1e-4, atol=1e-5)
    assert 0 < before == len(recorded)


def test_memory_is_taken_until_its_pass_went_back(
    rankers: dict[str, Ranker], recorded: list[Callable[[], None]]
) -> None:
    """Two passes, the first goes back, a third begins: it must not be given the second's memory."""
    ranker = copy.deepcopy(rankers["cross-encoder"])
    queries, documents = ranker.tokenize(QUERIES, "query"), ranker.tokenize(DOCUMENTS, "document")
    with ranker.repeated_steps():
        for _ in range(3 * cuda_graphs.SEEN_BEFORE + 3):
            ranker.zero_grad()
            first, second = ranker(queries, documents).sum(), ranker(queries, documents).sum()
            first.backward()
            (held,) = ranker.fast_encoders
            assert held._recorded is not None
            taken = {pending.memory for pending in held._recorded._pending}
            third = ranker(queries, documents).sum()
            after = {pending.memory for pending in held._recorded._pending}
            assert len(after) >= len(taken)
            (second + third).backward()
    assert after == {0, 1} and taken == {1}


def test_nothing_is_recorded_where_the_same_bits_are_asked_for(
    rankers: dict[str, Ranker], monkeypatch: pytest.MonkeyPatch, recorded: list[Callable[[], None]]
) -> None:
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    train(copy.deepcopy(rankers["cross-encoder"]))
    assert not recorded


def test_texts_that_nobody_reads_may_be_longer_than_the_encoder_can_read(
    rankers: dict[str, Ranker], monkeypatch: pytest.MonkeyPatch
) -> None:
    as_on_a_gpu(monkeypatch, torch.float32)
    ranker: Any = copy.deepcopy(rankers["cross-encoder"])
    tokens = ranker.tokenize(["ba"] * 7, "query"), ranker.tokenize(["ba ce di"] * 7, "document")
    lengths = ranker.lengths(tokens[0].lengths, tokens[1].lengths)
    assert Bucket.around(lengths).filled(lengths).max() > lengths.max()
    expected = ranker(*tokens).detach()
    encoder, longest = ranker.model.model.base_model, int(lengths.max())
    encoder.config.max_position_embeddings = longest
    table = encoder.embeddings.position_embeddings
    table.weight = torch.nn.Parameter(table.weight[:longest].detach().clone())
    shorter = CrossEncoderRanker(ranker.model)
    np.testing.assert_allclose(shorter(*tokens).detach(), expected, rtol=1e-5, atol=1e-6)


def test_a_copy_records_its_own_passes(rankers: dict[str, Ranker], recorded: list[Callable[[], None]]) -> None:
    original = copy.deepcopy(rankers["cross-encoder"])
    with original.repeated_steps():
        train(original)
        before = len(recorded)
        other = copy.deepcopy(original)
        with torch.no_grad():
            for weight in other.parameters():
                weight.mul_(0.5)
        expected = train(copy.deepcopy(other), steps=1)
        given = train(other)
    assert len(recorded) == 2 * before
    assert torch.equal(given[0], expected[0])


def test_passes_that_wait_for_each_other_do_not_share_a_recording(
    rankers: dict[str, Ranker], recorded: list[Callable[[], None]]
) -> None:
    ranker = copy.deepcopy(rankers["cross-encoder"])
    queries, documents = ranker.tokenize(QUERIES, "query"), ranker.tokenize(DOCUMENTS, "document")
    swapped = ranker.tokenize(QUERIES[::-1], "query")

    def gradient(*sides: Any) -> Tensor:
        ranker.zero_grad()
        scores = [ranker(side, documents) for side in sides]
        torch.stack(scores).square().sum().backward()  # type: ignore[no-untyped-call]
        return torch.cat([weight.grad.flatten() for weight in ranker.parameters() if weight.grad is not None])

    with ranker.repeated_steps():
        for _ in range(2 * cuda_graphs.SEEN_BEFORE + 2):
            both = gradient(queries, swapped)
    assert len(recorded) == 4  # there and back, for each of the two
    np.testing.assert_allclose(both, gradient(queries) + gradient(swapped), rtol=1e-3, atol=1e-4)


def test_what_is_frozen_gets_no_gradient_from_a_recording(
    rankers: dict[str, Ranker], recorded: list[Callable[[], None]]
) -> None:
    ranker = copy.deepcopy(rankers["cross-encoder"])
    train_layers_of(ranker, 1)
    before = {name: weight.clone() for name, weight in ranker.named_parameters()}
    train(ranker)
    assert recorded
    moved = {name for name, weight in ranker.named_parameters() if not torch.equal(weight, before[name])}
    assert moved and moved <= {name for name, weight in ranker.named_parameters() if weight.requires_grad}


def test_rare_shapes_and_passes_without_gradients_are_not_recorded(
    rankers: dict[str, Ranker], recorded: list[Callable[[], None]]
) -> None:
    ranker = copy.deepcopy(rankers["cross-encoder"])
    train(ranker, steps=cuda_graphs.SEEN_BEFORE)
    assert not recorded
    with torch.no_grad(), ranker.repeated_steps():
        for _ in range(4):
            ranker(ranker.tokenize(QUERIES, "query"), ranker.tokenize(DOCUMENTS, "document"))
    assert not recorded


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", KINDS)
def test_graphs_give_what_single_kernels_give(
    kind: str, rankers: dict[str, Ranker], monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed, usual = copy.deepcopy(rankers[kind]).cuda(), copy.deepcopy(rankers[kind]).cuda()
    seen = train(replayed)
    monkeypatch.setattr(cuda_graphs, "MAX_TOKENS", 0)
    for expected, given in zip(train(usual), seen, strict=True):
        np.testing.assert_allclose(given, expected, rtol=0.03, atol=0.03 * float(expected.abs().max()))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_recordings_share_their_memory(rankers: dict[str, Ranker]) -> None:
    ranker = copy.deepcopy(rankers["cross-encoder"]).cuda()
    held = []
    with ranker.repeated_steps():
        for texts in (256, 248, 240, 232, 224, 216):
            queries = ranker.tokenize(["ba be ce"] * texts, "query")
            documents = ranker.tokenize(["ba ce di fo gu han kel " * 8] * texts, "document")
            for _ in range(cuda_graphs.SEEN_BEFORE + 2):
                ranker(queries, documents).sum().backward()
            held.append(torch.cuda.memory_reserved())
    assert held[-1] - held[0] < 0.5 * held[0]


@hypothesis.given(lengths=st.lists(st.integers(1, 300), min_size=1, max_size=400))
def test_a_bucket_holds_what_it_was_made_for(lengths: list[int]) -> None:
    wanted = np.array(lengths)
    bucket = Bucket.around(wanted)
    filled = bucket.filled(wanted)
    assert filled[: len(wanted)].tolist() == lengths
    assert (len(filled), filled.sum()) == (bucket.sequences, bucket.tokens)
    assert filled.min() >= 1 and filled.max() <= bucket.max_length
    if not bucket.holds(wanted):
        assert bucket.tokens > MAX_FILLING * wanted.sum()
