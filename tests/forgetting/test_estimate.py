"""How long a run would take is timed on steps that change nothing."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.tiny import make_word_vectors
from unrank.collection.collection import Collection
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal
from unrank.engine.loop import step as usual
from unrank.engine.runtime import Runtime
from unrank.evaluation.scorecard import MOST_QUERIES
from unrank.forgetting import estimate as module
from unrank.forgetting.estimate import FEW_EPOCHS, MANY_EPOCHS, Seconds, estimate
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.train import Trained
from unrank.forgetting.workspace import FEW_QUERIES, READ_QUERIES, Workspace, usual_measure
from unrank.methods import make_method
from unrank.rankers import create_ranker

METHODS = ["cocol", "retrain", "finetune", "ssd"]


@pytest.mark.parametrize("name", METHODS)
def test_each_phase_is_timed_after_it_is_warm_and_nothing_moves(
    name: str, trained: Trained, dense: Collection, removal: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = copy.deepcopy(trained.ranker.state_dict())
    steps = {"min_steps": "1"} if name == "cocol" else {}
    method, partition, sizes = make_method(name, steps, ranker=trained.ranker.kind), make_partition(dense, removal), []

    def step(ranker: Any, phase: Any, samples: Any, *more: Any) -> Any:
        assert ranker is not trained.ranker
        sizes.append((phase.name, len(samples)))
        return usual(ranker, phase, samples, *more)

    monkeypatch.setattr(module, "step", step)
    monkeypatch.setattr(module, "WARM_UP", {"cpu": 2})
    monkeypatch.setattr(module, "TIMED_STEPS", {"cpu": 3})
    monkeypatch.setattr(module, "TIMED_SAMPLES", {"cpu": 4})
    workspace = Workspace.open(trained.ranker, dense, partition, "cpu")
    low, high = estimate(workspace, trained.ranker, ForgetOptions(method=method), record=trained.record)
    assert 0 < low <= high
    assert {sizes.count(timed) for timed in sizes} == {5}
    assert {size for _, size in sizes} == {4}
    for key, value in trained.ranker.state_dict().items():
        assert torch.equal(value, before[key])


def test_the_steps_that_are_timed_are_those_of_the_run(
    trained: Trained, dense: Collection, removal: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many rows for each forget pair, though few samples are timed; and no teacher is asked for their sake."""
    method, partition, timed = make_method("cocol"), make_partition(dense, removal), []

    def seconds(student: Any, phase: Any, workspace: Any) -> Seconds:
        timed.append((phase.name, phase.size, phase.batch, phase.together))
        return Seconds(1.0, 2.0)

    monkeypatch.setattr(module, "seconds_per_step", seconds)
    workspace = Workspace.open(trained.ranker, dense, partition, "cpu")
    took = module.seconds_per_epoch(trained.ranker, trained.ranker, workspace, method, None)
    plan = method.plan(workspace.task(trained.ranker))
    assert timed == [(phase.name, phase.size, phase.batch, phase.together) for phase in plan]
    steps = sum(phase.size / phase.batch for phase in plan)
    assert [*took] == [pytest.approx(steps), pytest.approx(2 * steps)]


def test_what_must_be_read_is_counted(
    trained: Trained, dense: Collection, removal: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second a text and none for steps."""
    monkeypatch.setattr(module, "seconds_per_text", lambda *_: Seconds(1.0, 1.0))
    monkeypatch.setattr(module, "seconds_per_epoch", lambda *_: Seconds(0.0, 0.0))
    method, partition = make_method("cocol", {"negatives_seen": "2"}), make_partition(dense, removal)

    def texts(pairs: Any) -> int:
        return sum(len(set(pairs[:, side].tolist())) for side in (0, 1))

    options = ForgetOptions(method=method, target="test-mrr")
    workspace, few = (Workspace.open(trained.ranker, dense, partition, "cpu", measure=most) for most in (0, 1))
    everything, one = (
        [*estimate(opened, trained.ranker, options, record=trained.record)] for opened in (workspace, few)
    )
    asked, forget_lists = dense.list_pairs(workspace.evaluator.queries), workspace.evaluator.forget_lists()
    checks = [texts(forget_lists) * (3 + epochs) for epochs in (FEW_EPOCHS, MANY_EPOCHS)]
    assert everything == [2 * texts(asked) + check for check in checks]
    measured = dense.list_pairs(few.evaluator.queries)
    assert texts(measured) < texts(asked)
    assert one[0] - checks[0] - texts(measured) > texts(measured), "the teacher is asked for more"
    assert one[0] < everything[0]


def test_a_teacher_is_asked_for_what_was_foretold(trained: Trained, dense: Collection, removal: Removal) -> None:
    method, partition = make_method("cocol", {"negatives_seen": "2"}), make_partition(dense, removal)
    workspace = Workspace.open(trained.ranker, dense, partition, "cpu")
    foretold = module.asked_of_teacher(trained.ranker, workspace, method, None)
    task = workspace.task(trained.ranker)
    method.prepare(task)
    assert len(np.unique(foretold, axis=0)) == len(task.teacher._scores)
    assert task.teacher._scores.knows(dense.pair_keys(foretold)).all()


def test_few_queries_are_measured_where_a_processor_reads_every_pair(encoder: Path, tmp_path: Path) -> None:
    words = make_word_vectors(tmp_path / "words.txt")
    bases = {"cross-encoder": encoder, "parade": encoder, "bi-encoder": encoder, "duet": words}
    usual = {kind: usual_measure(create_ranker(kind, str(base), seed=0), "cpu") for kind, base in bases.items()}
    assert [kind for kind, most in usual.items() if most == FEW_QUERIES] == ["cross-encoder", "parade"]
    assert usual["bi-encoder"] == usual["duet"] == MOST_QUERIES


def test_a_gpu_that_reads_every_pair_measures_fewer_queries_too(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Runtime, "on", lambda _: SimpleNamespace(device=torch.device("cuda")))
    usual = [usual_measure(create_ranker(kind, str(encoder), seed=0), "auto") for kind in ("cross-encoder", "colbert")]
    assert usual == [READ_QUERIES, MOST_QUERIES] and FEW_QUERIES < READ_QUERIES < MOST_QUERIES
