"""SCRUB: its losses by hand, which epochs push, and what they do."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

from tests.table import forgetting, random_table, task_of
from unrank.collection.collection import Collection
from unrank.engine.loop import Schedule, fit
from unrank.engine.runtime import Runtime
from unrank.engine.samples import Scored
from unrank.engine.tokens import TokenStore
from unrank.methods.scrub import Scrub


def test_the_losses_by_hand(shared: Collection) -> None:
    """Two lists of two: KL((.5, .5) ‖ softmax(5, 0)) = 1.8136 and the other way round .6530."""
    method = Scrub(alpha=0.5, gamma=2.0)
    push, keep = method.plan(task_of(shared, forgetting(shared, queries=[0]), random_table(shared, 0)))
    teacher, present = torch.tensor([[0.0, 0.0], [5.0, 0.0]]), torch.ones(2, 2, dtype=torch.bool)
    zero = torch.zeros(2, 2)
    scored = Scored(("pair", "pair_1"), teacher.flip(0), present, teacher, zero, zero)
    apart = (1.8136 + 0.6530) / 2
    assert push.loss(scored).item() == pytest.approx(-apart, abs=1e-4)
    ranking = (math.log1p(math.exp(-5)) + math.log(2)) / 2
    assert keep.loss(scored).item() == pytest.approx(0.5 * apart + 2 * ranking, abs=1e-4)


def test_the_first_epoch_and_the_last_ones_only_keep(shared: Collection) -> None:
    partition = forgetting(shared, queries=[0, 1, 2])
    push, keep = Scrub(push_epochs=2).plan(task_of(shared, partition, random_table(shared, 0)))
    for epoch, pushes in ((1, False), (2, True), (3, True), (4, False)):
        drawn, kept = (phase.draw(np.random.default_rng(0), epoch) for phase in (push, keep))
        assert drawn.pairs[:, 0].tolist() == (partition.forget.tolist() if pushes else [])
        assert kept.pairs[:, 0].tolist() == partition.retain.tolist()


def test_forget_lists_come_apart_and_kept_ones_stay(shared: Collection) -> None:
    partition, original = forgetting(shared, queries=[0, 1, 2]), random_table(shared, 0, values=3)
    with torch.no_grad():
        original.table[shared.pairs[:, 0], shared.pairs[:, 1]] += 4.0
    student, task = copy.deepcopy(original), task_of(shared, partition, original)
    with torch.no_grad():  # what no epoch on kept pairs can do here: a table shares no weight between queries
        student.table[partition.forget[:, 0], partition.forget[:, 1]] -= 0.1
    method = Scrub(push_epochs=20)
    losses = [
        interval.losses
        for interval in fit(
            student, method.plan(task), Schedule(30, 0.1), TokenStore(student, shared), Runtime.on("cpu")
        )
    ]
    assert "push" not in losses[0] and "push" not in losses[-1]
    assert losses[20]["push"] < losses[1]["push"] < 0
    change = (student.table - original.table).detach()
    assert change[partition.forget[:, 0], partition.forget[:, 1]].mean() < -1
    assert change[partition.retain[:, 0], partition.retain[:, 1]].min() >= 0
