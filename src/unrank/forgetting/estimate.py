"""How long forgetting would take, from a few pairs timed on this machine."""

from __future__ import annotations

import copy

import numpy as np
import torch

from unrank.collection.collection import Collection
from unrank.collection.partition import Partition
from unrank.engine.loop import step
from unrank.engine.runtime import Device
from unrank.engine.scoring import scores_of
from unrank.forgetting.clock import Clock
from unrank.forgetting.workshop import Workshop
from unrank.methods.base import Method
from unrank.rankers.base import Ranker

TIMED_LISTS = 3
TIMED_SAMPLES = 8
TYPICAL_EPOCHS = 4
TYPICAL_CHECKS = 8


def estimate(
    ranker: Ranker, collection: Collection, parts: Partition, method: Method, device: Device = "auto"
) -> float:
    """Seconds for a typical run: its epochs, the teacher's scores, the checks and the landing."""
    workshop = Workshop.open(ranker, collection, parts, device)
    clock = Clock(workshop.runtime)
    queries = np.unique(parts.forget[:, 0])
    some = collection.list_pairs(queries[:TIMED_LISTS])
    scores_of(ranker, workshop.store, some, workshop.runtime)  # tokenises and warms up
    with clock.on("lists"):
        scores_of(ranker, workshop.store, some, workshop.runtime)
    few = Partition(parts.forget[:TIMED_SAMPLES], parts.entangled, parts.disjoint[:TIMED_SAMPLES])
    steps = 0.0
    whole = {"forget": len(parts.forget), "hold": len(parts.disjoint)}
    pupil = copy.deepcopy(ranker)
    optimizer = torch.optim.AdamW(pupil.parameters(), lr=0.0, weight_decay=0.0)
    for phase in method.plan(Workshop.open(ranker, collection, few, device).task(ranker)):
        drawn = phase.draw(np.random.default_rng(0))
        sample = drawn.take(np.arange(min(TIMED_SAMPLES, len(drawn))))
        with clock.on(phase.name):
            step(pupil, phase, sample, optimizer, workshop.store, workshop.runtime)
        steps += clock.seconds[phase.name] * whole.get(phase.name, len(drawn)) / max(1, len(sample))
    a_list = clock.seconds["lists"] / len(queries[:TIMED_LISTS])
    teacher = len(np.unique(np.concatenate([parts.forget, parts.retain])[:, 0])) * a_list
    return teacher + TYPICAL_EPOCHS * steps + TYPICAL_CHECKS * len(queries) * a_list
