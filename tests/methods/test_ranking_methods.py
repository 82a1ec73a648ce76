"""Finetune, amnesiac and neggrad: which triples they learn, and which way round."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.table import TableRanker, as_set, forgetting, random_table, task_of
from unrank.collection.collection import Collection
from unrank.collection.partition import Partition
from unrank.engine.loop import Schedule, fit
from unrank.engine.runtime import Runtime
from unrank.engine.samples import Samples, Scored
from unrank.engine.tokens import TokenStore
from unrank.methods import make_method
from unrank.methods.amnesiac import Amnesiac
from unrank.methods.base import Method
from unrank.methods.finetune import Finetune
from unrank.methods.neggrad import NegGrad
from unrank.methods.ranking import ranking_loss, soft_ranking_loss

REMOVALS: dict[str, dict[str, list[int]]] = {"queries": {"queries": [0, 1, 2]}, "documents": {"documents": [1, 5]}}


@pytest.fixture(params=REMOVALS)
def partition(request: pytest.FixtureRequest, shared: Collection) -> Partition:
    return forgetting(shared, **REMOVALS[request.param])


def drawn(collection: Collection, partition: Partition, method: Method, seed: int = 0) -> Samples:
    [phase] = method.plan(task_of(collection, partition, random_table(collection, 0)))
    samples = phase.draw(np.random.default_rng(seed), 1)
    assert samples.present.all()
    assert len(samples) <= phase.size
    return samples


def negatives_of(collection: Collection, partition: Partition) -> set[tuple[int, int]]:
    listed = as_set(collection.negatives.pairs(collection.training_queries))
    return {(query, document) for query, document in listed if document not in partition.documents}


def run(
    collection: Collection, partition: Partition, method: Method, epochs: int = 1
) -> tuple[TableRanker, TableRanker]:
    """The original and the student, whose scores are the weights themselves."""
    original = random_table(collection, 0, values=3)
    student = copy.deepcopy(original)
    phases = method.plan(task_of(collection, partition, original))
    for _ in fit(student, phases, Schedule(epochs, 0.1), TokenStore(student, collection), Runtime.on("cpu")):
        pass
    return original, student


def scored(*rows: tuple[float, float]) -> tuple[Scored, Tensor]:
    """A batch of triples with these scores of their first and second."""
    scores = torch.tensor(rows).flatten().requires_grad_()
    pairs, present = np.zeros((len(rows), 2, 2), np.int64), np.ones((len(rows), 2), bool)
    return Scored.of(Samples(("positive", "negative"), pairs, present), scores), scores


def test_finetune_never_touches_a_forget_pair(shared: Collection, partition: Partition) -> None:
    for seed in range(10):
        samples = drawn(shared, partition, Finetune(negatives=3), seed)
        assert sorted(samples.pairs[:, 0].tolist()) == sorted(3 * partition.retain.tolist())
        assert not as_set(samples.pairs) & as_set(partition.forget)
        assert as_set(samples.pairs[:, 1]) <= negatives_of(shared, partition)
    original, student = run(shared, partition, Finetune(), epochs=5)
    touched = student.table != original.table
    assert touched.any()
    assert not touched[partition.forget[:, 0], partition.forget[:, 1]].any()
    assert not touched[shared.test_queries].any()


def test_finetune_goes_on_from_the_original() -> None:
    assert (Finetune.start, Finetune.run_kind) == ("original", "steered")
    assert make_method("cf") == make_method("finetune") == Finetune()


@pytest.mark.parametrize("forget_only", [False, True])
def test_amnesiac_turns_the_forget_pairs_round_and_leaves_the_entangled_as_they_were(
    shared: Collection, partition: Partition, forget_only: bool
) -> None:
    samples = drawn(shared, partition, Amnesiac(negatives=3, forget_only=forget_only))
    better, worse = samples.pairs[:, 0], samples.pairs[:, 1]
    assert better[:, 0].tolist() == worse[:, 0].tolist()
    kept = np.isin(shared.pair_keys(better), shared.pair_keys(partition.entangled))
    assert sorted(worse[~kept].tolist()) == sorted(3 * partition.forget.tolist())
    assert as_set(better[~kept]) <= negatives_of(shared, partition)
    assert sorted(better[kept].tolist()) == ([] if forget_only else sorted(3 * partition.entangled.tolist()))
    assert as_set(worse[kept]) <= negatives_of(shared, partition)
    assert not as_set(samples.pairs) & as_set(partition.disjoint)


def test_amnesiac_pulls_the_forget_pairs_below_their_negatives(shared: Collection, partition: Partition) -> None:
    original, student = run(shared, partition, Amnesiac(), epochs=30)
    rows = partition.forget[:, 0], partition.forget[:, 1]
    change = (student.table - original.table).detach()
    assert change[rows].mean() < -0.5
    assert change[rows].max() <= 0
    assert change[partition.entangled[:, 0], partition.entangled[:, 1]].min() >= 0


@pytest.mark.parametrize("method", [Amnesiac(), NegGrad()], ids=lambda method: method.name)
def test_the_size_is_what_is_drawn(shared: Collection, method: Amnesiac | NegGrad) -> None:
    partition = forgetting(shared, queries=[0, 1])
    [phase] = method.plan(task_of(shared, partition, random_table(shared, 0)))
    assert len(phase.draw(np.random.default_rng(0), 1)) == phase.size


def test_neggrad_draws_forget_pairs_alone(shared: Collection, partition: Partition) -> None:
    samples = drawn(shared, partition, NegGrad(negatives=2))
    assert sorted(samples.pairs[:, 0].tolist()) == sorted(2 * partition.forget.tolist())
    assert as_set(samples.pairs[:, 1]) <= negatives_of(shared, partition)


def test_neggrad_raises_the_ranking_loss_of_the_forget_pairs(shared: Collection, partition: Partition) -> None:
    original, student = run(shared, partition, NegGrad(), epochs=10)
    pairs = drawn(shared, partition, NegGrad()).pairs

    def loss(ranker: TableRanker) -> float:
        scores = ranker.table[torch.from_numpy(pairs[..., 0]), torch.from_numpy(pairs[..., 1])]
        return (1 - scores[:, 0] + scores[:, 1]).relu().mean().item()

    assert loss(student) > loss(original) + 1
    moved = {(int(query), int(document)) for query, document in (student.table != original.table).nonzero().tolist()}
    assert moved <= as_set(partition.forget) | negatives_of(shared, partition)


def test_a_hinge_has_no_gradient_where_a_pair_is_learned(shared: Collection) -> None:
    task = task_of(shared, forgetting(shared, queries=[0]), random_table(shared, 0))
    learned = (5.0, 1.0)
    for loss, gradient in (("hinge", [0.0, 0.0]), ("soft", [0.0474, -0.0474])):
        batch, scores = scored(learned)
        [phase] = make_method("neggrad", {"loss": loss}).plan(task)
        value = phase.loss(batch)
        value.backward()  # type: ignore[no-untyped-call]
        assert scores.grad is not None
        assert scores.grad.tolist() == pytest.approx(gradient, abs=1e-4)


def test_the_soft_loss_by_hand() -> None:
    batch, _ = scored((1.0, 0.0), (0.0, 1.0))
    assert soft_ranking_loss(batch).item() == pytest.approx((np.log(2) + np.log(1 + np.exp(2))) / 2)
    assert ranking_loss(batch).item() == pytest.approx(1.0)
