"""A device that runs out of memory: half as much at once, said once, to the same result."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.table import TableRanker, collection_of, random_lists, random_table
from unrank.collection.collection import Collection
from unrank.engine import memory
from unrank.engine.loop import make_optimizer, squared_gradients, step
from unrank.engine.runtime import Runtime, Silence
from unrank.engine.samples import Phase, Samples, Scored, all_present
from unrank.engine.scoring import scores_of
from unrank.engine.tokens import TokenStore
from unrank.errors import UnrankError
from unrank.rankers import create_ranker
from unrank.rankers.base import Ranker
from unrank.rankers.fast.encoder import FastEncoder
from unrank.rankers.tokens import Tokens

KINDS = ["cross-encoder", "bi-encoder", "colbert", "splade", "parade"]


class Heard(Silence):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


class SmallTable(TableRanker):
    """On a device with room for so many pairs."""

    room = 5

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        if len(queries) > self.room:
            raise torch.OutOfMemoryError("no room")
        return super().forward(queries, documents)


def spread(scored: Scored) -> Tensor:
    """A loss that no sum over samples could stand for."""
    return scored.score.std() + torch.logsumexp(scored.score.flatten(), 0)


def batch_of(collection: Collection) -> tuple[Phase, Samples]:
    pairs = collection.pairs
    samples = Samples.of({"one": all_present(pairs), "other": all_present(np.roll(pairs, 1, axis=0))})
    return Phase("spread", len(samples), lambda generator, epoch: samples, spread, len(samples)), samples


def fail_first(monkeypatch: pytest.MonkeyPatch, times: int) -> Callable[[], int]:
    """So many forward passes with a graph end for want of memory, the first of them after another has gone well."""
    passes = 0
    original = FastEncoder.__call__

    def failing(self: FastEncoder, *inputs: object, **options: object) -> object:
        nonlocal passes
        passes += torch.is_grad_enabled()
        if torch.is_grad_enabled() and 1 < passes <= 1 + times:
            raise torch.OutOfMemoryError("no room")
        return original(self, *inputs, **options)

    monkeypatch.setattr(FastEncoder, "__call__", failing)
    return lambda: passes


def test_scores_are_the_same_and_it_is_said_once() -> None:
    collection = collection_of(random_lists(0), 14)
    whole = random_table(collection, 0)
    small = SmallTable(whole.table.detach())
    heard = Heard()
    runtime = Runtime.on("cpu", heard)
    pairs = collection.list_pairs(np.arange(8))
    store = TokenStore(small, collection)
    for _ in range(2):
        assert (scores_of(small, store, pairs, runtime) == scores_of(whole, store, pairs, Runtime.on("cpu"))).all()
    assert runtime.tokens_at_once <= 2 * SmallTable.room
    assert len(heard.lines) == 1
    assert "out of memory" in heard.lines[0]


def test_a_single_pair_that_does_not_fit_is_one_clear_line() -> None:
    collection = collection_of(random_lists(0), 14)
    small = SmallTable(random_table(collection, 0).table.detach())
    small.room = 0
    store, (phase, samples) = TokenStore(small, collection), batch_of(collection)
    with pytest.raises(UnrankError, match="too little memory for a single pair"):
        scores_of(small, store, collection.pairs, Runtime.on("cpu"))
    with pytest.raises(UnrankError, match="too little memory for a single pair"):
        step(small, phase, samples, make_optimizer(small, 0.1, Runtime.on("cpu")), store, Runtime.on("cpu"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("failures", [1, 3])
def test_a_step_in_pieces_is_the_same_step(
    kind: str, failures: int, encoder: Path, dense: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = create_ranker(kind, str(encoder), 0).eval()
    cut = copy.deepcopy(whole)
    (phase, samples), store, heard = batch_of(dense), TokenStore(whole, dense), Heard()
    runtime = Runtime.on("cpu", heard)
    runtime.memory.tokens_at_once = 512  # several passes a step
    loss = _gradients(whole, phase, samples, store, Runtime.on("cpu"))
    passes = fail_first(monkeypatch, failures)
    assert torch.allclose(loss, _gradients(cut, phase, samples, store, runtime), rtol=1e-5)
    assert passes() > failures + 1
    assert runtime.memory.pieces == 2**failures
    assert len(heard.lines) == 1
    for one, other in zip(whole.parameters(), cut.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None and other.grad is not None:
            assert (one.grad - other.grad).norm() <= 2e-3 * one.grad.norm() + 1e-6


def _gradients(ranker: Ranker, phase: Phase, samples: Samples, store: TokenStore, runtime: Runtime) -> Tensor:
    """The loss of a step that leaves its gradients behind."""
    optimizer = torch.optim.SGD(ranker.parameters(), lr=0.0)
    kept: list[Tensor | None] = []
    optimizer.register_step_post_hook(lambda *_: kept.extend(weight.grad for weight in ranker.parameters()))
    loss = step(ranker, phase, samples, optimizer, store, runtime)
    for weight, gradient in zip(ranker.parameters(), kept, strict=True):
        weight.grad = gradient
    return loss


def test_importance_does_not_depend_on_the_pieces() -> None:
    collection = collection_of(random_lists(0), 14)
    whole = random_table(collection, 0, values=5)
    small = SmallTable(whole.table.detach())
    (phase, _), store = batch_of(collection), TokenStore(whole, collection)
    expected = squared_gradients(whole, phase, 0, store, Runtime.on("cpu"))
    got = squared_gradients(small, phase, 0, store, Runtime.on("cpu"))
    assert torch.allclose(expected["table"], got["table"], rtol=1e-4)
    assert small.table.grad is None


def test_a_training_without_room_is_refused_with_what_would_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    ranker, device = torch.nn.Linear(999, 1000), torch.device("cpu")  # 4 MB, and 16 with gradients and moments
    monkeypatch.setattr(memory, "device_memory", lambda _: 9_000_000)
    with pytest.raises(
        UnrankError, match=r"^1,000,000 weights take about .* GiB.*--adapt lora or --train-layers takes"
    ):
        memory.check_room(ranker, device, copies=2)  # type: ignore[arg-type]
    memory.check_room(ranker, device, copies=2, few=True)  # type: ignore[arg-type]
    monkeypatch.setattr(memory, "device_memory", lambda _: 3_000_000)
    with pytest.raises(UnrankError, match=r"use a larger device$"):
        memory.check_room(ranker, device, copies=1)  # type: ignore[arg-type]
    monkeypatch.setattr(memory, "device_memory", lambda _: 21_000_000)
    memory.check_room(ranker, device, copies=1)  # type: ignore[arg-type]
