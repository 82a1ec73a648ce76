"""Methods that push forget pairs and keep others in the same steps: their losses by hand, and what they draw."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.table import Listed, as_set, collection_of, forgetting, random_table, task_of
from unrank.collection.collection import Collection
from unrank.collection.partition import Partition
from unrank.engine.loop import Schedule, fit, mean_gradients
from unrank.engine.runtime import Runtime
from unrank.engine.samples import Phase, Scored
from unrank.engine.tokens import TokenStore
from unrank.errors import UnrankError
from unrank.methods import make_method
from unrank.methods.contrast import Contrast
from unrank.methods.npo import NegativePreference
from unrank.methods.salun import SalientUnlearning
from unrank.methods.undial import Undial

METHODS = ("neggrad-plus", "npo", "simnpo", "undial", "salun")
ROLES = ("forget", "forget_1", "kept", "kept_1")


def phase_of(collection: Collection, partition: Partition, method: Contrast) -> Phase:
    [phase] = method.plan(task_of(collection, partition, random_table(collection, 0)))
    return phase


def softplus(value: float) -> float:
    """With one negative, ℓ of a pair is the softplus of the negative's score less its own."""
    return math.log1p(math.exp(value))


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def binary(first: float) -> float:
    """The cross-entropy of a distribution over two with itself swapped in for the student at scores 2 and 0."""
    return first * softplus(-2) + (1 - first) * softplus(2)


@pytest.mark.parametrize(
    ("name", "settings", "forget", "weight"),
    [
        ("neggrad-plus", {"alpha": "0.75"}, -0.25 * (softplus(-2) + softplus(1)) / 2, 0.75),
        ("neggrad-plus", {"alpha": "1"}, 0.0, 1.0),
        (
            "npo",  # the original has ℓ₀ = softplus(−3) for both
            {"beta": "0.5"},
            -4 * sum(math.log(sigmoid(0.5 * (softplus(own) - softplus(-3)))) for own in (-2, 1)) / 2,
            1.0,
        ),
        (
            "simnpo",
            {"beta": "2", "delta": "0.25", "alpha": "3"},
            -1 * sum(math.log(sigmoid(2 * (softplus(own) - 0.25))) for own in (-2, 1)) / 2,
            3.0,
        ),
        (
            "undial",  # the original's 3 and 0, lowered to 1 and 0
            {"beta": "2", "alpha": "1"},
            (binary(sigmoid(1)) + sigmoid(1) * softplus(1) + (1 - sigmoid(1)) * softplus(-1)) / 2,
            1.0,
        ),
        ("salun", {}, (softplus(2) + softplus(-1)) / 2, 1.0),
    ],
)
def test_the_losses_by_hand(
    shared: Collection, partition: Partition, name: str, settings: dict[str, str], forget: float, weight: float
) -> None:
    """The student scores two forget pairs 2 and −1 above their negative; only the first has a kept pair beside it."""
    method = make_method(name, settings)
    assert isinstance(method, Contrast)
    score = torch.tensor([[2.0, 0.0, 4.0, 3.0], [1.0, 2.0, 9.0, 9.0]])
    teacher = torch.tensor([[3.0, 0.0, 1.0, 1.0], [4.0, 1.0, 1.0, 1.0]])
    present, zero = torch.tensor([[True] * 4, [True, True, False, False]]), torch.zeros(2, 4)
    loss = phase_of(shared, partition, method).loss(Scored(ROLES, score, present, teacher, zero, zero))
    assert loss.item() == pytest.approx(forget + weight * softplus(-1), rel=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_a_sample_is_a_forget_list_and_a_kept_list(shared: Collection, partition: Partition, name: str) -> None:
    method = make_method(name, {"negatives": "3", "alpha": "0.5"})
    assert isinstance(method, Contrast)
    phase = phase_of(shared, partition, method)
    samples = phase.draw(np.random.default_rng(0), 1)
    assert len(samples) == phase.size == len(partition.forget)
    assert samples.roles == tuple(f"{of}{number}" for of in ("forget", "kept") for number in ("", "_1", "_2", "_3"))
    assert samples.pairs[:, 0].tolist() == partition.forget.tolist()
    assert as_set(samples.pairs[:, 4]) <= as_set(partition.retain)
    listed = as_set(shared.negatives.pairs(shared.training_queries))
    for first in (0, 4):
        lists, here = samples.pairs[:, first : first + 4], samples.present[:, first + 1 : first + 4]
        assert (lists[..., 0] == lists[:, :1, 0]).all()
        assert as_set(lists[:, 1:][here]) <= {pair for pair in listed if pair[1] not in partition.documents}
    assert (samples.teacher is not None) == method.asks_teacher


def test_the_teacher_is_asked_for_forget_lists_alone_and_before_the_run(
    shared: Collection, partition: Partition
) -> None:
    ranker = random_table(shared, 0)
    task, method = task_of(shared, partition, ranker), NegativePreference()
    method.prepare(task)
    known = len(ranker.asked)
    [phase] = method.plan(task)
    for seed in range(5):
        samples = phase.draw(np.random.default_rng(seed), 1)
        assert samples.teacher is not None
        forget = samples.pairs[:, :5][samples.present[:, :5]]
        scores = ranker.table.detach()[forget[:, 0], forget[:, 1]]
        assert samples.teacher.score[:, :5][samples.present[:, :5]].tolist() == scores.tolist()
    assert len(ranker.asked) == known
    assert {query for query, _ in ranker.asked} == set(partition.forget[:, 0].tolist())


def test_without_a_weight_no_kept_pair_is_scored(shared: Collection, partition: Partition) -> None:
    samples = phase_of(shared, partition, Undial()).draw(np.random.default_rng(0), 1)
    assert samples.present[:, :5].any() and not samples.present[:, 5:].any()


def run(collection: Collection, partition: Partition, method: Contrast, epochs: int) -> tuple[Tensor, Tensor]:
    """The tables of an original that has learned its pairs, and of the student."""
    original = random_table(collection, 0, values=3)
    with torch.no_grad():
        original.table[collection.pairs[:, 0], collection.pairs[:, 1]] += 4.0
    student, task = copy.deepcopy(original), task_of(collection, partition, original)
    store, runtime = TokenStore(student, collection), Runtime.on("cpu")
    masks = method.masks(task, lambda phase: mean_gradients(student, phase, 0, store, runtime))
    for _ in fit(student, method.plan(task), Schedule(epochs, 0.1), store, runtime, masks=masks):
        pass
    return original.table.detach(), student.table.detach()


@pytest.mark.parametrize("name", METHODS)
def test_forget_pairs_fall_and_kept_pairs_stay_up(shared: Collection, partition: Partition, name: str) -> None:
    method = make_method(name, {"beta": "1"} if name == "npo" else {})
    assert isinstance(method, Contrast)
    before, after = run(shared, partition, method, epochs=30)
    forget, kept = (tuple(pairs.T) for pairs in (partition.forget, partition.retain))
    assert (after - before)[forget].mean() < -0.5
    assert (after - before)[kept].min() >= -1e-5
    assert torch.isfinite(after).all()
    assert (after == before)[shared.test_queries].all()


def test_salun_moves_the_salient_weights_alone(shared: Collection) -> None:
    partition = forgetting(shared, queries=[0, 1, 2])
    before, after = run(shared, partition, SalientUnlearning(share=0.02), epochs=5)
    moved = as_set((after != before).nonzero().numpy())
    assert len(moved) == round(0.02 * before.numel())
    assert {query for query, _ in moved} <= {0, 1, 2}
    none, _ = run(shared, partition, SalientUnlearning(share=0.001), epochs=1)
    assert torch.equal(none, before)


def test_a_list_without_negatives_teaches_nothing() -> None:
    collection = collection_of([Listed([0], [1]), Listed([1], [0]), Listed([0], [2])], 3)
    partition = forgetting(collection, documents=[1])  # takes the only negative of query 0
    for name in METHODS:
        method = make_method(name)
        assert isinstance(method, Contrast)
        before, after = run(collection, partition, method, epochs=3)
        assert torch.isfinite(after).all() and after[0, 0] == before[0, 0], name


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("neggrad-plus", {"alpha": "1.5"}, "alpha must be from 0 to 1, not 1.5"),
        ("salun", {"share": "2"}, "share must be from 0 to 1, not 2.0"),
        ("npo", {"beta": "0"}, "beta must be more than 0 and finite, not 0.0"),
        ("simnpo", {"delta": "-1"}, "delta must be 0 or more and finite, not -1.0"),
        ("undial", {"alpha": "-1"}, "alpha must be 0 or more and finite, not -1.0"),
    ],
)
def test_settings_that_cannot_be(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UnrankError, match=f"^{message}$"):
        make_method(name, settings)
