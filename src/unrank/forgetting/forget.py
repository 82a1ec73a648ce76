"""Forgetting: run a method from the original until the forget MRR is at the target, land on it, and measure all.

The original is never changed. A method that cannot reach the target within its epochs keeps its best model and says so.
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.partition import partition
from unrank.collection.removal import Removal
from unrank.engine.loop import Schedule, fit
from unrank.engine.runtime import Device, Progress
from unrank.errors import UnrankError
from unrank.evaluation.scorecard import Scorecard
from unrank.forgetting.clock import Clock
from unrank.forgetting.freezing import Freeze, check_freeze, freeze_side, index_stays_valid, keep_frozen
from unrank.forgetting.landing import Landing, weights_of
from unrank.forgetting.record import Record, hashed, save_ranker
from unrank.forgetting.steering import Steering
from unrank.forgetting.target import check_target, resolve_target, tolerance
from unrank.forgetting.train import estimate_learning_epoch, run_training
from unrank.forgetting.workshop import Workshop
from unrank.methods import make_method
from unrank.methods.base import Method, Task
from unrank.methods.retrain import Retrain
from unrank.rankers import create_ranker, public_name
from unrank.rankers.base import Ranker
from unrank.rankers.layers import release, sharing_frozen_start, train_last_layers

KEPT = ("entangled", "disjoint", "test")
WATCHED = 100
"""Queries of each kept set that are measured at every check, where that costs little."""


@dataclass(frozen=True)
class Forgotten:
    """A ranker that has forgotten, and what shows it."""

    ranker: Ranker
    before: Scorecard
    after: Scorecard
    target: float
    reached: bool
    record: Record

    @property
    def kept(self) -> dict[str, float]:
        """What the entangled, disjoint and test sets have left of their MRR before."""
        sets = {name: (getattr(self.before, name), getattr(self.after, name)) for name in KEPT}
        return {name: after.mean / before.mean for name, (before, after) in sets.items() if before and before.mean > 0}

    def save(self, out: str | Path) -> None:
        save_ranker(self.ranker, self.record, Path(out))


def forget(
    ranker: Ranker,
    collection: Collection,
    removal: Removal,
    *,
    method: Method | str = "cocol",
    target: float | str = "unseen",
    base: str | None = None,
    learning_epoch: dict[str, Any] | None = None,
    train_layers: int | None = None,
    freeze: Freeze | None = None,
    watch: int | None = None,
    seed: int = 0,
    device: Device = "auto",
    progress: Progress | None = None,
) -> Forgotten:
    """Make a copy of a ranker that has forgotten, to the degree that the target says.

    `base` is the encoder that the ranker was trained from, for methods that begin there; `learning_epoch` what an epoch
    of training took, if that is known; `train_layers` how many of the encoder's last layers may move, if not all;
    `freeze="documents"` lets queries alone move, so that stored document vectors stay valid; `watch` how many
    queries of each kept set are measured at every check.
    """
    method = make_method(method, ranker=ranker.kind) if isinstance(method, str) else method
    check_freeze(freeze, ranker, method)
    parts = partition(collection, removal)
    check_target(target, collection, parts)
    student = _start(ranker, method, base, seed)
    freeze_side(student, freeze)
    if train_layers is not None:
        train_last_layers(student, train_layers)
    workshop = Workshop.open(ranker, collection, parts, device, progress)
    student.to(workshop.runtime.device)
    known = learning_epoch if learning_epoch and learning_epoch.get("device") == workshop.runtime.name else None
    an_epoch = known or estimate_learning_epoch(ranker, workshop)
    keep_frozen(workshop.store, ranker, student, freeze)
    task = workshop.task(ranker)
    clock = Clock(workshop.runtime)
    history: list[dict[str, Any]] = []
    landing: Landing | None = None
    with sharing_frozen_start(ranker, student):
        with clock.on("teacher"):
            before = workshop.judge.scorecard(task.teacher.scores)
        assert before.forget is not None
        goal = resolve_target(target, before)
        after, reached = before, before.forget.mean <= goal
        if isinstance(method, Retrain):
            clock = Clock(workshop.runtime)  # it asks no teacher
            history = run_training(student, workshop, method, seed, clock)
        elif not reached:
            steering = _unlearn(task, student, workshop, method, goal, before.forget.mean, clock, watch, seed)
            landing, reached, history = steering.land(), steering.on_target, steering.history
        if history:
            after = workshop.judge.scorecard(workshop.scorer(student))
    release(student, ranker)
    record = Record(
        ranker=ranker.kind,
        base=public_name(ranker.kind, base) if base else None,
        method=method.name,
        settings=asdict(method)
        | ({} if train_layers is None else {"train_layers": train_layers})
        | ({} if freeze is None else {"freeze": freeze}),
        seed=seed,
        collection={"name": collection.name, "fingerprint": collection.fingerprint},
        target=goal,
        target_name=str(target),
        reached=reached if method.steered else None,
        epochs=len(history),
        seconds=clock.total,
        timing=clock.seconds,
        learning_epoch=an_epoch,
        landing=asdict(landing) if landing else None,
        device=workshop.runtime.name,
        index_valid=index_stays_valid(ranker, freeze, moved=bool(history)),
        before=before.to_json(),
        after=after.to_json(),
        removed=hashed(removal),
        history=history,
    )
    return Forgotten(student, before, after, goal, record.reached is not False, record)


def _start(ranker: Ranker, method: Method, base: str | None, seed: int) -> Ranker:
    """The model that a method begins with."""
    if method.start == "original":
        return copy.deepcopy(ranker)
    if base is None:
        raise UnrankError(f"{method.name} starts from the model that the ranker was trained from: name it with --base")
    return create_ranker(ranker.kind, base, seed)


def _unlearn(
    task: Task,
    student: Ranker,
    workshop: Workshop,
    method: Method,
    target: float,
    forget_before: float,
    clock: Clock,
    watch: int | None,
    seed: int,
) -> Steering:
    """Unlearn in place: epochs until the target is crossed."""
    near = tolerance(len(np.unique(workshop.parts.forget[:, 0])))
    if watch is None:
        watch = WATCHED if workshop.runtime.device.type == "cuda" else 0
    steering = Steering(student, workshop, target, near, clock, watch, weights_of(student), forget_before)
    schedule = Schedule(method.epochs, method.learning_rate, seed)
    fit(student, method.plan(task), schedule, workshop.store, workshop.runtime, steering.crossed)
    return steering
