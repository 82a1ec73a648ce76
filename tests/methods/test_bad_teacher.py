"""Bad teacher: who teaches what, over which lists, and what disobeying means."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.table import Listed, TableRanker, as_set, collection_of, forgetting, random_table, task_of
from unrank.collection.collection import Collection
from unrank.collection.partition import Partition
from unrank.engine.loop import Schedule, fit
from unrank.engine.runtime import Runtime
from unrank.engine.samples import Samples, Scored
from unrank.engine.tokens import TokenStore
from unrank.errors import UnrankError
from unrank.forgetting.workspace import Workspace, randomised
from unrank.methods import make_method
from unrank.methods.bad_teacher import BadTeacher
from unrank.methods.task import Task
from unrank.rankers import create_ranker


def taught(collection: Collection, partition: Partition, original: TableRanker, untrained: TableRanker) -> Task:
    """A task whose untrained teacher is this table, and whose random one is all zeros."""
    task = task_of(collection, partition, original)
    zeros = TableRanker(np.zeros_like(untrained.table.detach()))
    asked = {"initial": untrained, "random": zeros}
    return replace(task, untrained=lambda which: task_of(collection, partition, asked[which]).teacher)


def view(samples: Samples) -> tuple[Any, Any]:
    """The pairs of all lists, and what their teacher says of them."""
    assert samples.teacher is not None
    return samples.pairs[samples.present], samples.teacher.score[samples.present]


@pytest.mark.parametrize("who", ["initial", "random", "disobey"])
def test_who_teaches_what(shared: Collection, partition: Partition, who: Any) -> None:
    trained, untrained = random_table(shared, 0), random_table(shared, 1)
    unlearn, keep = BadTeacher(teacher=who).plan(taught(shared, partition, trained, untrained))
    assert (unlearn.size, keep.size) == (len(partition.forget), len(partition.retain))
    for phase, expected, pairs in (
        (unlearn, {"initial": untrained.table, "random": 0 * trained.table, "disobey": trained.table}[who], "forget"),
        (keep, trained.table, "retain"),
    ):
        samples = phase.draw(np.random.default_rng(0), 1)
        listed, scores = view(samples)
        assert samples.pairs[:, 0].tolist() == getattr(partition, pairs).tolist()
        assert scores.tolist() == expected.detach()[listed[:, 0], listed[:, 1]].tolist()


def test_a_list_is_one_relevant_document_and_negatives_of_its_query(shared: Collection, partition: Partition) -> None:
    unlearn, keep = BadTeacher(teacher="disobey", negatives=3).plan(task_of(shared, partition, random_table(shared, 0)))
    negatives = {
        pair for pair in as_set(shared.negatives.pairs(shared.training_queries)) if pair[1] not in partition.documents
    }
    for phase in (unlearn, keep):
        samples = phase.draw(np.random.default_rng(0), 1)
        assert samples.pairs.shape[1:] == (4, 2)
        assert (samples.pairs[..., 0] == samples.pairs[:, :1, 0]).all()
        assert samples.present[:, 0].all()
        assert as_set(samples.pairs[:, 1:][samples.present[:, 1:]]) <= negatives
    kept = keep.draw(np.random.default_rng(0), 1)
    assert not as_set(kept.pairs[kept.present]) & as_set(partition.forget)


def run(collection: Collection, task: Task, student: TableRanker, method: BadTeacher, epochs: int) -> list[float]:
    """The unlearning loss of each epoch."""
    schedule = Schedule(epochs, 0.1)
    intervals = fit(student, method.plan(task), schedule, TokenStore(student, collection), Runtime.on("cpu"))
    return [interval.losses["unlearn"] for interval in intervals]


def test_the_student_comes_to_rank_forget_pairs_as_the_untrained_do(shared: Collection) -> None:
    partition = forgetting(shared, queries=[0, 1, 2])
    trained, untrained = random_table(shared, 0, values=4), random_table(shared, 1, values=4)
    student = copy.deepcopy(trained)
    losses = run(shared, taught(shared, partition, trained, untrained), student, BadTeacher(), epochs=60)
    assert losses[-1] < 0.1 * losses[0]
    change = (student.table - trained.table).detach()
    assert change[:3].abs().max() > 0.5
    assert change[3:].abs().max() < 0.2  # what rounding comes to where a step has no gradient to speak of


def test_to_disobey_is_to_move_away(shared: Collection) -> None:
    """At the outset student and teacher agree, and no way leads away faster than another: a nudge decides."""
    partition = forgetting(shared, queries=[0, 1, 2])
    trained = random_table(shared, 0, values=4)
    task, still = task_of(shared, partition, trained), copy.deepcopy(trained)
    assert run(shared, task, still, BadTeacher(teacher="disobey"), 1) == pytest.approx([0], abs=1e-6)
    nudged = copy.deepcopy(trained)
    with torch.no_grad():
        nudged.table[partition.forget[:, 0], partition.forget[:, 1]] -= 0.1
    losses = run(shared, task, nudged, BadTeacher(teacher="disobey"), 30)
    assert losses[-1] < losses[0] < 0
    change = (nudged.table - trained.table).detach()
    assert change[partition.forget[:, 0], partition.forget[:, 1]].mean() < -1
    assert change[3:].abs().max() < 0.2


def test_the_losses_are_means_of_divergences(shared: Collection) -> None:
    partition = forgetting(shared, queries=[0])
    task = task_of(shared, partition, random_table(shared, 0))
    two = torch.tensor([[0.0, 0.0], [5.0, 0.0]])
    present, zero = torch.ones(2, 2, dtype=torch.bool), torch.zeros(2, 2)
    for who, sign in (("disobey", -1), ("initial", 1)):
        taught_task = replace(task, untrained=lambda which: task.teacher)
        unlearn, keep = BadTeacher(teacher=who).plan(taught_task)  # type: ignore[arg-type]
        scored = Scored(("relevant", "negative_0"), two.flip(0), present, two, zero, zero)
        assert unlearn.loss(scored).item() == pytest.approx(sign * (1.8136 + 0.6530) / 2, abs=1e-4)
        assert keep.loss(scored).item() == pytest.approx((1.8136 + 0.6530) / 2, abs=1e-4)


def test_a_list_of_the_relevant_document_alone_teaches_nothing() -> None:
    collection = collection_of([Listed([0], [1]), Listed([1], [0]), Listed([0], [2])], 3)
    partition = forgetting(collection, documents=[1])  # takes the only negative of query 0
    trained, student = random_table(collection, 0), random_table(collection, 1)
    method = BadTeacher(teacher="disobey")
    run(collection, task_of(collection, partition, trained), student, method, 3)
    assert torch.isfinite(student.table).all()
    assert student.table[0, 0] == random_table(collection, 1).table[0, 0]
    assert student.table[2, 0] != random_table(collection, 1).table[2, 0]


def test_an_untrained_teacher_needs_a_base(shared: Collection) -> None:
    task = task_of(shared, forgetting(shared, queries=[0]), random_table(shared, 0))
    for who, needs in (("initial", True), ("random", True), ("disobey", False)):
        method = make_method("badt", {"teacher": who})
        assert method.needs_base == needs
        if needs:
            with pytest.raises(UnrankError, match="is not known: name it with --base"):
                method.plan(task)
        else:
            assert len(method.plan(task)) == 2


def test_the_untrained_teacher_is_what_training_began_with(encoder: Path, dense: Collection) -> None:
    fresh = create_ranker("bi-encoder", str(encoder), 5)
    trained = create_ranker("bi-encoder", str(encoder), 6)
    with torch.no_grad():
        for weight in trained.parameters():
            weight.mul_(1.5)
    partition = forgetting(dense, queries=[0, 1])
    workspace = Workspace.open(trained, dense, partition, "cpu")
    task = workspace.task(trained, str(encoder), seed=5)
    pairs = dense.list_pairs(np.array([0, 1]))
    initial, random = (task.untrained(which).scores(pairs) for which in ("initial", "random"))
    assert initial.tolist() == pytest.approx(workspace.scorer(fresh)(pairs).tolist(), abs=1e-5)
    assert not np.allclose(initial, task.teacher.scores(pairs))
    assert not np.allclose(initial, random)
    assert np.isfinite(random).all()


def test_random_throughout_follows_from_the_seed(encoder: Path) -> None:
    one, again, other = (randomised(create_ranker("bi-encoder", str(encoder), 0), seed) for seed in (0, 0, 1))
    fresh = create_ranker("bi-encoder", str(encoder), 0)
    for a, b, c, d in zip(*(ranker.parameters() for ranker in (one, again, other, fresh)), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c) == torch.equal(a, d) == (a.dim() == 1)
