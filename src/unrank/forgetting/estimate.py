"""How long forgetting would take, from a few pairs timed on this machine."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import torch

from unrank.collection.collection import Collection
from unrank.collection.partition import Partition
from unrank.engine.loop import step
from unrank.engine.runtime import Device
from unrank.engine.scoring import scores_of
from unrank.forgetting.clock import Clock
from unrank.forgetting.freezing import Freeze, check_freeze, freeze_side, keep_frozen
from unrank.forgetting.workshop import Workshop
from unrank.methods.base import Method, OneShot
from unrank.methods.retrain import Retrain
from unrank.rankers.base import Ranker

TIMED_LISTS = 3
TIMED_SAMPLES = 8
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
    queries = np.unique(workshop.parts.forget[:, 0])[:TIMED_LISTS]
    pairs = workshop.collection.list_pairs(queries)
    scores_of(ranker, workshop.store, pairs, workshop.runtime)  # tokenises and warms up
    clock = Clock(workshop.runtime)
    with clock.on("lists"):
        scores_of(ranker, workshop.store, pairs, workshop.runtime)
    return clock.total / len(queries)


def _seconds_an_epoch(ranker: Ranker, pupil: Ranker, workshop: Workshop, method: Method, base: str | None) -> float:
    """A few samples of each phase, scaled to all of them."""
    optimizer = torch.optim.AdamW(pupil.parameters(), lr=0.0, weight_decay=0.0)
    parts, first = workshop.parts, slice(TIMED_SAMPLES)
    few = replace(parts, forget=parts.forget[first], entangled=parts.entangled[first], disjoint=parts.disjoint[first])
    plans = [method.plan(replace(workshop, parts=these).task(ranker, base)) for these in (parts, few)]
    seconds = 0.0
    for whole, part in zip(*plans, strict=True):
        drawn = part.draw(np.random.default_rng(0))
        if not len(drawn):
            continue
        clock = Clock(workshop.runtime)
        with clock.on("step"):
            step(pupil, part, drawn.take(np.arange(len(drawn))[first]), optimizer, workshop.store, workshop.runtime)
        seconds += clock.total * whole.size / min(len(drawn), TIMED_SAMPLES)
    return seconds
