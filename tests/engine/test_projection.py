"""The projection of an update: by hand, with a mask, and in a run that would hurt kept pairs without it."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.table import TableRanker, collection_of, forgetting, random_lists, random_table, task_of
from unrank.engine.loop import Schedule, fit, make_optimizer, step
from unrank.engine.projection import Projection
from unrank.engine.runtime import Runtime
from unrank.engine.samples import Phase, Samples, all_present
from unrank.engine.tokens import TokenStore
from unrank.errors import UnrankError
from unrank.methods import make_method
from unrank.methods.ranking import planned


@pytest.mark.parametrize(
    ("update", "becomes"),
    [
        ([1.0, 1.0], [1 - 21 / 25, 1 - 28 / 25]),  # it raises the loss by 7: 7/25 of the gradient (3, 4) is taken out
        ([1.0, 0.0], [0.0, 0.0]),  # the second weight did not move and stays, so the gradient is (3, 0)
        ([-1.0, 0.5], [-1.0, 0.5]),  # it lowers the loss by 1
        ([4.0, -3.0], [4.0, -3.0]),  # it does neither
        ([3.0, 4.0], [0.0, 0.0]),
    ],
)
def test_by_hand(update: list[float], becomes: list[float]) -> None:
    ranker = TableRanker([[1.0, 1.0]])
    ranker.table.grad = torch.tensor([[3.0, 4.0]])
    projection = Projection(ranker)
    with torch.no_grad():
        ranker.table.add_(torch.tensor([update]))
    projection.apply()
    assert (ranker.table.detach() - 1).flatten().tolist() == pytest.approx(becomes, abs=1e-6)


def test_several_weights_are_one_direction() -> None:
    """⟨u, g⟩ = 1·1 + 1·(−2) < 0, so nothing is taken out, though the first weight alone would raise the loss."""
    ranker = TableRanker([[0.0]])
    ranker.register_parameter("other", nn.Parameter(torch.zeros(1)))
    ranker.table.grad, ranker.get_parameter("other").grad = torch.tensor([[1.0]]), torch.tensor([-2.0])
    projection = Projection(ranker)
    with torch.no_grad():
        for weight in ranker.parameters():
            weight.add_(1)
    projection.apply()
    assert [weight.item() for weight in ranker.parameters()] == [1.0, 1.0]


def test_a_step_does_not_raise_the_loss_of_its_guard() -> None:
    """Phase and guard want the opposite of the first score; the second is the phase's alone."""
    collection = collection_of(random_lists(4), 14)
    pairs = np.array([[0, 0], [0, 1]])

    def draw(generator: np.random.Generator, epoch: int) -> Samples:
        return Samples.of({"pair": all_present(pairs)})

    def fall(scored: object) -> Tensor:
        return scored.score.sum()  # type: ignore[attr-defined,no-any-return]

    def rise(scored: object) -> Tensor:
        return -scored.score[:1].sum()  # type: ignore[attr-defined,no-any-return]

    guard = Phase("kept", 2, draw, rise, 2)
    phase, samples = Phase("forget", 2, draw, fall, 2, guard=guard), draw(np.random.default_rng(0), 1)
    for guarded, expected in ((None, [-1.0, -1.0]), (samples, [0.0, -1.0])):
        ranker = TableRanker(np.zeros((len(collection.queries), 14)))
        optimizer = make_optimizer(ranker, 1.0, Runtime.on("cpu"))
        loss = step(ranker, phase, samples, optimizer, TokenStore(ranker, collection), Runtime.on("cpu"), guarded)
        assert loss.item() == 0
        assert ranker.table[0, :2].tolist() == pytest.approx(expected, abs=1e-5)
        assert ranker.table.grad is None


def test_every_steered_method_takes_gru_and_no_other() -> None:
    collection = collection_of(random_lists(4), 14)
    partition, original = forgetting(collection, queries=[0, 1]), random_table(collection, 0, values=3)
    task = task_of(collection, partition, original)
    for name in ("cocol", "neggrad", "npo"):
        plan = planned(make_method(name, {"gru": "true"}), task)
        for phase in plan:
            assert phase.guard is not None and phase.guard.batch == phase.batch
            drawn = phase.guard.draw(np.random.default_rng(0), 1)
            kept = {tuple(pair) for pair in partition.retain.tolist()}
            assert {tuple(pair) for pair in drawn.pairs[:, 0].tolist()} <= kept
        assert all(phase.guard is None for phase in planned(make_method(name), task))
    for name in ("ssd", "retrain"):
        with pytest.raises(UnrankError, match=f"^gru=true needs a method that takes steps to a target, and {name} "):
            make_method(name, {"gru": "true"})


def test_a_guarded_run_follows_from_its_seed_and_differs_from_one_without() -> None:
    collection = collection_of(random_lists(4), 14)
    partition, original = forgetting(collection, documents=[1, 5]), random_table(collection, 0, values=3)
    task = task_of(collection, partition, original)
    method = make_method("neggrad", {"gru": "true", "batch": "8", "negatives": "2"})

    def table(guarded: bool, seed: int = 0) -> Tensor:
        student = copy.deepcopy(original)
        plan = planned(method if guarded else replace(method, gru=False), task)
        for _ in fit(student, plan, Schedule(3, 0.1, seed), TokenStore(student, collection), Runtime.on("cpu")):
            pass
        return student.table.detach()

    assert torch.equal(table(True), table(True))
    assert not torch.equal(table(True), table(False)) and not torch.equal(table(True), table(True, 1))
