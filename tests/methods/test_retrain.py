"""Retrain: kept pairs alone, with fresh negatives of their queries."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.table import Listed, as_set, collection_of, forgetting, random_table, task_of
from unrank.collection.collection import Collection
from unrank.collection.partition import Partition
from unrank.engine.samples import Phase, Samples, Scored
from unrank.errors import UnrankError
from unrank.methods import make_method
from unrank.methods.retrain import Retrain

REMOVALS: dict[str, dict[str, list[int]]] = {"queries": {"queries": [0, 1, 2]}, "documents": {"documents": [1, 5]}}


def phase_of(collection: Collection, partition: Partition, method: Retrain) -> Phase:
    [phase] = method.plan(task_of(collection, partition, random_table(collection, 0)))
    return phase


@pytest.mark.parametrize("removal", REMOVALS)
def test_every_kept_pair_so_many_times_each_with_a_negative_of_its_query(shared: Collection, removal: str) -> None:
    partition = forgetting(shared, **REMOVALS[removal])
    negatives = as_set(shared.negatives.pairs(shared.training_queries))
    for seed in range(10):
        samples = phase_of(shared, partition, Retrain(negatives=3)).draw(np.random.default_rng(seed), 1)
        positive, negative = samples.pairs[:, 0], samples.pairs[:, 1]
        assert samples.pairs.shape == (3 * len(partition.retain), 2, 2)
        assert samples.present.all()
        assert samples.teacher is None
        assert sorted(positive.tolist()) == sorted(3 * partition.retain.tolist())
        assert positive[:, 0].tolist() == negative[:, 0].tolist()
        assert as_set(negative) <= negatives
        assert not np.isin(negative[:, 1], partition.documents).any()
        assert not as_set(samples.pairs) & as_set(partition.forget)


def test_negatives_are_fresh_each_time(shared: Collection) -> None:
    partition = forgetting(shared, queries=[0])
    phase = phase_of(shared, partition, Retrain())
    one, again, other = (phase.draw(np.random.default_rng(seed), 1).pairs for seed in (0, 0, 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_with_nothing_removed_it_is_training(shared: Collection) -> None:
    nothing = np.empty((0, 2), np.int64)
    samples = phase_of(shared, Partition(nothing, nothing, shared.pairs), Retrain()).draw(np.random.default_rng(0), 1)
    assert as_set(samples.pairs[:, 0]) == as_set(shared.pairs)
    assert len(samples) == 8 * len(shared.pairs)


def test_a_pair_without_a_negative_teaches_nothing() -> None:
    collection = collection_of([Listed([0], [1]), Listed([0], [2]), Listed([1]), Listed([2], [1])], 3)
    partition = forgetting(collection, documents=[1])
    samples = phase_of(collection, partition, Retrain()).draw(np.random.default_rng(0), 1)
    assert as_set(samples.pairs[:, 0]) == {(1, 0)}
    assert as_set(samples.pairs[:, 1]) == {(1, 2)}


def test_the_loss_is_the_mean_margin(shared: Collection) -> None:
    phase = phase_of(shared, forgetting(shared, queries=[0]), Retrain())
    samples = Samples(("positive", "negative"), np.zeros((3, 2, 2), np.int64), np.ones((3, 2), bool))
    scores = torch.tensor([3.0, 1.0, 0.5, 0.0, -1.0, 1.0], requires_grad=True)
    loss = phase.loss(Scored.of(samples, scores))
    assert loss.item() == pytest.approx((0 + 0.5 + 3) / 3)
    loss.backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert scores.grad.tolist() == pytest.approx([0, 0, -1 / 3, 1 / 3, -1 / 3, 1 / 3])


def test_it_starts_anew_and_no_target_stops_it() -> None:
    assert Retrain.start == "initial"
    assert Retrain.run_kind == "training"
    assert make_method("retrain", {"negatives": "2", "enough": "0.9"}) == Retrain(negatives=2, enough=0.9)
    with pytest.raises(UnrankError, match="unknown setting of retrain 'negative': did you mean 'negatives'"):
        make_method("retrain", {"negative": "2"})
    with pytest.raises(UnrankError, match="enough must be more than 0"):
        make_method("retrain", {"enough": "-1"})
