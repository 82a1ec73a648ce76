"""How long forgetting would take, from a few pairs timed on this machine."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition
from unrank.engine.loop import make_optimizer, step
from unrank.engine.runtime import Device
from unrank.engine.samples import Phase
from unrank.engine.scoring import scores_of
from unrank.engine.teacher import Scores, Teacher
from unrank.evaluation.scorecard import MOST_QUERIES
from unrank.forgetting.clock import Clock
from unrank.forgetting.freezing import Freeze, check_freeze, encoded_sides, freeze_side, keep_frozen
from unrank.forgetting.mrr_estimator import Effort, to_read
from unrank.forgetting.workspace import Workspace
from unrank.methods.base import Method
from unrank.rankers.base import Ranker
from unrank.rankers.layers import Layers, train_layers_of

TIMED_LISTS = {"cpu": 3, "cuda": 256}
TIMED_SAMPLES = {"cpu": 8, "cuda": 256}
"""The most in a step: on a GPU as many as a step of the method has, on a CPU as few as tell."""
TIMED_STEPS = {"cpu": 1, "cuda": 3}
WARM_UP = {"cpu": 0, "cuda": 3}
"""Steps in which a GPU compiles its kernels and records its passes."""
TYPICAL_EPOCHS = 4
TYPICAL_LANDING = 2
"""Measurements not far from the first one."""


def estimate(
    ranker: Ranker,
    collection: Collection,
    partition: Partition,
    method: Method,
    base: str | None = None,
    device: Device = "auto",
    freeze: Freeze | None = None,
    train_layers: Layers | None = None,
    measure: int = MOST_QUERIES,
) -> float:
    """Seconds for a typical run: the scorecards before and after, what the teacher is asked for, some epochs, a check
    after each, and the landing."""
    check_freeze(freeze, ranker, method)
    workspace = Workspace.open(ranker, collection, partition, device, measure=measure)
    lists = collection.list_pairs(workspace.evaluator.queries)
    whole, sides = encoded_sides(ranker, None), encoded_sides(ranker, freeze)
    a_text = _seconds_a_text(ranker, workspace)
    card = a_text * to_read(lists, whole)
    pupil = copy.deepcopy(ranker)
    freeze_side(pupil, freeze)
    if train_layers is not None:
        train_layers_of(pupil, train_layers)
    keep_frozen(workspace.store, ranker, pupil, freeze)
    steps = _seconds_an_epoch(ranker, pupil, workspace, method, base)
    if method.run_kind == "training":
        return method.epochs * steps + 2 * card
    if method.run_kind == "edit":
        return steps + 2 * card
    asked = np.unique(np.concatenate([lists, _asked_of_the_teacher(ranker, workspace, method, base)]), axis=0)
    check = Effort.of(workspace.evaluator.forget_lists(), workspace.partition.forget, sides)
    looks = TYPICAL_EPOCHS * check.estimate + check.whole + TYPICAL_LANDING * check.again
    reading = to_read(asked, whole) + looks + to_read(lists, sides)
    return TYPICAL_EPOCHS * steps + a_text * reading


def _seconds_a_text(ranker: Ranker, workspace: Workspace) -> float:
    """What it takes to read a pair, or a text where the sides are encoded apart, in the lists of some queries."""
    queries = np.unique(workspace.partition.forget[:, 0])[: TIMED_LISTS[workspace.runtime.device.type]]
    pairs = workspace.collection.list_pairs(queries)
    scores_of(ranker, workspace.store, pairs, workspace.runtime)  # tokenises and warms up
    clock = Clock(workspace.runtime)
    with clock.on("lists"):
        scores_of(ranker, workspace.store, pairs, workspace.runtime)
    return clock.total / to_read(pairs, encoded_sides(ranker, None))


class _Listening(Teacher):
    """A teacher that says nothing and hears what it is asked for."""

    def __init__(self, *known: Any) -> None:
        super().__init__(*known)
        self.asked: list[Pairs] = [np.empty((0, 2), np.int64)]

    def scores(self, pairs: Pairs) -> Scores:
        self.asked.append(pairs)
        return np.zeros(len(pairs), np.float32)


def _asked_of_the_teacher(ranker: Ranker, workspace: Workspace, method: Method, base: str | None) -> Pairs:
    """The pairs whose scores a method wants to know before it begins."""
    teacher = _Listening(ranker, workspace.collection, workspace.store, workspace.runtime)
    method.prepare(replace(workspace.task(ranker, base), teacher=teacher))
    return np.concatenate(teacher.asked)


def _seconds_an_epoch(ranker: Ranker, pupil: Ranker, workspace: Workspace, method: Method, base: str | None) -> float:
    """Some samples of each phase, scaled to all of them. No teacher is asked: what it says costs no time in a step."""
    silent = _Listening(ranker, workspace.collection, workspace.store, workspace.runtime)
    task = replace(workspace.task(ranker, base), teacher=silent, untrained=lambda which: silent)
    return sum(phase.size * _seconds_a_sample(pupil, phase, workspace) for phase in method.plan(task))


def _seconds_a_sample(pupil: Ranker, phase: Phase, workspace: Workspace) -> float:
    """In steps that leave the weights as they are, after some to warm up."""
    device, drawn = workspace.runtime.device.type, phase.draw(np.random.default_rng(0), 1)
    batch = drawn.take(np.arange(min(len(drawn), phase.batch, TIMED_SAMPLES[device])))
    if not len(batch):
        return 0.0
    workspace.store.read(batch.pairs[batch.present])
    optimizer, clock = make_optimizer(pupil, 0.0, workspace.runtime), Clock(workspace.runtime)
    with pupil.repeated_steps():
        for number in range(WARM_UP[device] + TIMED_STEPS[device]):
            with clock.on("steps" if number >= WARM_UP[device] else "warm-up"):
                step(pupil, phase, batch, optimizer, workspace.store, workspace.runtime)
    return clock.seconds["steps"] / (TIMED_STEPS[device] * len(batch))
