"""The training loop: every draw follows from the seed, and nothing but the student moves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.table import TableRanker, collection_of, forgetting, random_lists, random_table, task_of
from unrank.collection.collection import Collection
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal
from unrank.engine.loop import Schedule, fit
from unrank.engine.runtime import Runtime
from unrank.engine.samples import Phase, Samples, Scored, all_present
from unrank.engine.tokens import TokenStore
from unrank.engine.training_state import Interval
from unrank.errors import NotFinite
from unrank.methods.cocol import Cocol
from unrank.rankers import create_ranker
from unrank.rankers.base import Ranker

KINDS = ["cross-encoder", "bi-encoder"]


def weights_of(ranker: Ranker) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in ranker.named_parameters()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def unlearned(original: Ranker, collection: Collection, seed: int) -> dict[str, Tensor]:
    """The weights after two epochs of CoCoL."""
    partition = make_partition(collection, Removal(queries=["q1", "q2"]))
    student = copy.deepcopy(original)
    plan = Cocol(batch=2).plan(task_of(collection, partition, original))
    store = TokenStore(student, collection)
    list(fit(student, plan, Schedule(2, 1e-3, seed), store, Runtime.on("cpu")))
    return weights_of(student)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_decides_every_bit_and_the_original_stays(kind: str, encoder: Path, golden: Collection) -> None:
    original = create_ranker(kind, str(encoder), 0)
    before = weights_of(original)
    one = unlearned(original, golden, seed=0)
    torch.manual_seed(99)  # nor does the state of anyone's generator matter
    np.random.seed(99)  # noqa: NPY002
    assert same(one, unlearned(original, golden, seed=0))
    assert not same(one, unlearned(original, golden, seed=1))
    assert not same(one, before)
    assert same(before, weights_of(original))


def pull(scored: Scored) -> Tensor:
    return scored.score.square().mean()


def phase(samples: Samples, loss: Callable[[Scored], Tensor] = pull, batch: int = 4, name: str = "pull") -> Phase:
    return Phase(name, len(samples), lambda generator, epoch: samples, loss, batch)


def run(
    phases: Sequence[Phase], epochs: int = 3, stop_after: int = 99, check_every: int | None = None
) -> tuple[TableRanker, list[Interval]]:
    collection = collection_of(random_lists(0), 14)
    ranker = random_table(collection, 0, values=5)
    schedule = Schedule(epochs, 0.1, check_every=check_every)
    store = TokenStore(ranker, collection)
    history = []
    for interval in fit(ranker, phases, schedule, store, Runtime.on("cpu")):
        history.append(interval)
        if len(history) == stop_after:
            break
    return ranker, history


def all_pairs() -> Samples:
    return Samples.of({"one": all_present(collection_of(random_lists(0), 14).pairs)})


def test_an_epoch_is_told_as_it_was() -> None:
    samples = all_pairs()
    _, history = run([phase(samples), phase(samples, batch=100, name="again")])
    assert [epoch.epochs for epoch in history] == [1, 2, 3]
    for epoch in history:
        assert epoch.steps == -(-len(samples) // 4) + 1
        assert epoch.samples == 2 * len(samples)
        assert set(epoch.losses) == {"pull", "again"}
        assert epoch.seconds > 0
    assert history[2].losses["again"] < history[0].losses["again"]


def test_every_sample_is_stepped_on_once_an_epoch() -> None:
    ranker, _ = run([phase(all_pairs())], epochs=1)
    assert sorted(ranker.asked) == sorted(map(tuple, all_pairs().pairs[:, 0].tolist()))


def test_it_stops_when_it_is_told_to() -> None:
    assert len(run([phase(all_pairs())], epochs=9, stop_after=2)[1]) == 2


def test_it_pauses_within_an_epoch_and_takes_the_same_steps() -> None:
    samples = all_pairs()
    whole, _ = run([phase(samples, batch=1), phase(samples, batch=2, name="again")], epochs=2)
    paused, history = run([phase(samples, batch=1), phase(samples, batch=2, name="again")], epochs=2, check_every=3)
    assert torch.equal(whole.table, paused.table)
    steps = len(samples) + -(-len(samples) // 2)
    assert [interval.steps for interval in history] == ([3] * (steps // 3) + [steps % 3] * (steps % 3 > 0)) * 2
    assert [interval.epochs for interval in history] == sorted({interval.epochs for interval in history})
    assert history[-1].epochs == 2
    assert history[0].epochs == pytest.approx(3 / steps)
    assert sum(interval.samples for interval in history) == 4 * len(samples)


def test_the_optimiser_lives_through_all_epochs() -> None:
    """With a steady gradient every step of AdamW is one learning rate long, except for one that forgot the others."""

    def steady(scored: Scored) -> Tensor:
        return scored.score.sum()

    ranker, _ = run([phase(all_pairs(), steady, batch=1_000)], epochs=3)
    collection = collection_of(random_lists(0), 14)
    before = random_table(collection, 0, values=5)
    moved = {
        round((before.table[query, document] - ranker.table[query, document]).item(), 4)
        for query, document in collection.pairs.tolist()
    }
    assert moved == {0.3}


def test_weights_that_need_no_gradient_stay() -> None:
    collection = collection_of(random_lists(0), 14)
    partition = forgetting(collection, queries=[0, 1])
    ranker = random_table(collection, 0)
    ranker.register_parameter("frozen", torch.nn.Parameter(torch.ones(3), requires_grad=False))
    student = copy.deepcopy(ranker)
    plan = Cocol().plan(task_of(collection, partition, ranker))
    list(fit(student, plan, Schedule(1, 0.1), TokenStore(student, collection), Runtime.on("cpu")))
    assert student.get_parameter("frozen").tolist() == [1, 1, 1]
    assert not torch.equal(student.table, ranker.table)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_an_error(value: float) -> None:
    def broken(scored: Scored) -> Tensor:
        return scored.score.mean() * value

    with pytest.raises(
        NotFinite,
        match="the loss of second is not finite in epoch 1; try a lower learning rate",
    ):
        run([phase(all_pairs()), phase(all_pairs(), broken, name="second")])


def test_a_phase_without_samples_is_no_step() -> None:
    none = Samples.of({"one": all_present(np.empty((0, 2), np.int64))})
    ranker, history = run([phase(none)], epochs=1)
    assert (history[0].steps, history[0].samples, history[0].losses) == (0, 0, {})
    assert torch.equal(ranker.table, random_table(collection_of(random_lists(0), 14), 0, 5).table)


@pytest.mark.parametrize(("every", "epochs"), [(1, [1 / 5, 2 / 5, 3 / 5, 4 / 5, 1]), (2, [2 / 5, 4 / 5, 1]), (9, [1])])
def test_pauses_within_an_epoch(every: int, epochs: list[float]) -> None:
    """Two phases of three and two steps; an epoch's end is a pause too, and what is learned is the same."""
    collection = collection_of(random_lists(4), 14)
    partition = forgetting(collection, queries=[0, 1])
    original = random_table(collection, 0)
    sizes = [-(-len(pairs) // steps) for pairs, steps in ((partition.forget, 3), (partition.disjoint, 2))]
    forget, hold = Cocol(min_steps=1, disjoint_per_epoch=100).plan(task_of(collection, partition, original))
    plan = [replace(forget, batch=sizes[0]), replace(hold, batch=sizes[1])]
    students = [copy.deepcopy(original) for _ in range(2)]
    (whole, paused) = (
        list(fit(student, plan, Schedule(2, 1.0, 0, pause), TokenStore(student, collection), Runtime.on("cpu")))
        for student, pause in zip(students, (None, every), strict=True)
    )
    assert [interval.epochs for interval in whole] == [1, 2]
    assert [interval.steps for interval in whole] == [5, 5]
    assert [interval.epochs for interval in paused] == pytest.approx([*epochs, *(1 + epoch for epoch in epochs)])
    assert sum(interval.steps for interval in paused) == 10
    assert sum(interval.samples for interval in paused) == sum(interval.samples for interval in whole)
    assert same(*(weights_of(student) for student in students))


def test_the_rate_rises_over_phases_and_epochs_and_then_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven steps an epoch, in phases of four and three."""
    rates: list[float] = []
    monkeypatch.setattr("unrank.engine.loop.set_rate", lambda optimizer, rate: rates.append(rate))
    samples, collection = all_pairs().take(np.arange(12)), collection_of(random_lists(0), 14)
    phases = [phase(samples, batch=3), phase(samples, batch=4, name="again")]
    ranker = random_table(collection, 0, values=5)
    list(fit(ranker, phases, Schedule(2, 0.5, warm_up=10), TokenStore(ranker, collection), Runtime.on("cpu")))
    assert rates == pytest.approx([0.05 * min(step, 10) for step in range(1, 15)])


def test_a_step_goes_as_far_as_its_rate() -> None:
    """The first step of this optimiser moves every weight that has a gradient by the rate itself."""
    samples, collection = all_pairs(), collection_of(random_lists(0), 14)
    moved = []
    for warm_up in (1, 4):
        ranker = random_table(collection, 0, values=5)
        before = weights_of(ranker)
        schedule = Schedule(1, 0.1, warm_up=warm_up)
        list(fit(ranker, [phase(samples, batch=999)], schedule, TokenStore(ranker, collection), Runtime.on("cpu")))
        moved.append(max(float((weight - before[name]).abs().max()) for name, weight in weights_of(ranker).items()))
    assert moved == pytest.approx([0.1, 0.025], rel=1e-3)
