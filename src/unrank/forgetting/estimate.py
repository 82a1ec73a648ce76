"""How long forgetting would take, from a few pairs timed on this machine."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.partition import Partition
from unrank.engine.loop import make_optimizer, step
from unrank.engine.runtime import Device
from unrank.engine.samples import Phase
from unrank.engine.scoring import scores_of
from unrank.forgetting.clock import Clock
from unrank.forgetting.freezing import Freeze, check_freeze, freeze_side, keep_frozen
from unrank.forgetting.workshop import Workshop
from unrank.methods.base import Method, OneShot
from unrank.methods.retrain import Retrain
from unrank.rankers.base import Ranker

TIMED_LISTS = {"cpu": 3, "cuda": 256}
TIMED_SAMPLES = {"cpu": 8, "cuda": 256}
"""The most in a step: on a GPU as many as a step of the method has, on a CPU as few as tell."""
TIMED_STEPS = {"cpu": 1, "cuda": 3}
WARM_UP = {"cpu": 0, "cuda": 3}
"""Steps in which a GPU compiles its kernels and records its passes."""
TYPICAL_EPOCHS = 4
TYPICAL_CHECKS = 8


def estimate(
    ranker: Ranker,
    collection: Collection,
    parts: Partition,
    method: Method,
    base: str | None = None,
    device: Device = "auto",
    freeze: Freeze | None = None,
) -> float:
    """Seconds for a typical run: the scorecards before and after, some epochs, the checks and the landing."""
    check_freeze(freeze, ranker, method)
    workshop = Workshop.open(ranker, collection, parts, device)
    forgotten, measured = len(np.unique(parts.forget[:, 0])), len(workshop.judge.queries)
    a_list = _seconds_a_list(ranker, workshop)
    pupil = copy.deepcopy(ranker)
    freeze_side(pupil, freeze)
    keep_frozen(workshop.store, ranker, pupil, freeze)
    a_check = a_list if freeze is None else _seconds_a_list(ranker, workshop)
    steps = _seconds_an_epoch(ranker, pupil, workshop, method, base)
    if isinstance(method, Retrain):
        return method.epochs * steps + 2 * measured * a_list
    if isinstance(method, OneShot):
        return steps + 2 * measured * a_list
    return TYPICAL_EPOCHS * steps + measured * a_list + (measured + TYPICAL_CHECKS * forgotten) * a_check


def _seconds_a_list(ranker: Ranker, workshop: Workshop) -> float:
    queries = np.unique(workshop.parts.forget[:, 0])[: TIMED_LISTS[workshop.runtime.device.type]]
    pairs = workshop.collection.list_pairs(queries)
    scores_of(ranker, workshop.store, pairs, workshop.runtime)  # tokenises and warms up
    clock = Clock(workshop.runtime)
    with clock.on("lists"):
        scores_of(ranker, workshop.store, pairs, workshop.runtime)
    return clock.total / len(queries)


def _seconds_an_epoch(ranker: Ranker, pupil: Ranker, workshop: Workshop, method: Method, base: str | None) -> float:
    """Some samples of each phase, scaled to all of them."""
    parts, first = workshop.parts, slice(TIMED_SAMPLES[workshop.runtime.device.type])
    few = replace(parts, forget=parts.forget[first], entangled=parts.entangled[first], disjoint=parts.disjoint[first])
    whole, part = (method.plan(replace(workshop, parts=these).task(ranker, base)) for these in (parts, few))
    return sum(
        all_of_it.size * _seconds_a_sample(pupil, some, workshop) for all_of_it, some in zip(whole, part, strict=True)
    )


def _seconds_a_sample(pupil: Ranker, phase: Phase, workshop: Workshop) -> float:
    """In steps that leave the weights as they are, after some to warm up."""
    device, drawn = workshop.runtime.device.type, phase.draw(np.random.default_rng(0))
    batch = drawn.take(np.arange(min(len(drawn), phase.batch, TIMED_SAMPLES[device])))
    if not len(batch):
        return 0.0
    workshop.store.read(batch.pairs[batch.present])
    optimizer, clock = make_optimizer(pupil, 0.0, workshop.runtime), Clock(workshop.runtime)
    with pupil.repeating():
        for number in range(WARM_UP[device] + TIMED_STEPS[device]):
            with clock.on("steps" if number >= WARM_UP[device] else "warm-up"):
                step(pupil, phase, batch, optimizer, workshop.store, workshop.runtime)
    return clock.seconds["steps"] / (TIMED_STEPS[device] * len(batch))
