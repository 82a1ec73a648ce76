"""Forgetting: run a method from the original until the forget MRR is at the target, land on it, and measure all.

The original is never changed. A method that cannot reach the target within its epochs keeps its best model and says so.
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.partition import partition
from unrank.collection.removal import Removal
from unrank.engine.loop import Epoch, Schedule, fit
from unrank.engine.runtime import Device, Progress
from unrank.errors import UnrankError
from unrank.evaluation.scorecard import Scorecard
from unrank.forgetting.clock import Clock
from unrank.forgetting.landing import Landing, Weights, land, put_weights, weights_of
from unrank.forgetting.record import Record, hashed, save_ranker
from unrank.forgetting.target import check_target, resolve_target, tolerance
from unrank.forgetting.train import estimate_learning_epoch, run_training
from unrank.forgetting.workshop import Workshop
from unrank.methods import make_method
from unrank.methods.base import Method, Task
from unrank.methods.retrain import Retrain
from unrank.rankers import create_ranker
from unrank.rankers.base import Ranker

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


@dataclass
class Steering:
    """Watches the forget MRR of a run: when to stop, where to land from, which weights were best."""

    student: Ranker
    workshop: Workshop
    target: float
    near: float
    clock: Clock
    watched: int
    above: Weights
    forget: float
    history: list[dict[str, Any]] = field(default_factory=list)
    best: tuple[float, Weights] | None = None

    def reached(self, epoch: Epoch) -> bool:
        """The check after an epoch."""
        self.clock.add("steps", epoch.seconds)
        with self.clock.on("checks"):
            self.forget = self.workshop.judge.forget_mrr(self.workshop.scorer(self.student))
        if self.forget > self.target:
            self.above = weights_of(self.student)
            if self.best is None or self.forget < self.best[0]:
                self.best = self.forget, self.above
        line = {"epoch": epoch.number, "seconds": epoch.seconds, "forget": self.forget, "losses": epoch.losses}
        seen = self.workshop.judge.watch(self.workshop.scorer(self.student), self.watched) if self.watched else {}
        self.history.append(line | seen)
        moved = ", ".join(f"{name} {value:.3f}" for name, value in seen.items())
        self.workshop.runtime.progress.say(
            f"epoch {epoch.number}: forget MRR {self.forget:.3f}, target {self.target:.3f}{moved and f' ({moved})'}"
        )
        return self.forget <= self.target + self.near

    def land(self) -> Landing | None:
        """Onto the target if it was crossed, else back to the best weights."""
        if self.forget > self.target + self.near:
            if self.best is not None:
                self.forget = self.best[0]
                put_weights(self.student, self.best[1])
            return None
        judge, student, score = self.workshop.judge, self.student, self.workshop.scorer(self.student)
        with self.clock.on("landing"):
            landing = land(student, self.above, self.forget, self.target, self.near, lambda: judge.forget_mrr(score))
        self.forget = landing.forget
        return landing


def forget(
    ranker: Ranker,
    collection: Collection,
    removal: Removal,
    *,
    method: Method | str = "cocol",
    target: float | str = "unseen",
    base: str | None = None,
    learning_epoch: dict[str, Any] | None = None,
    watch: int | None = None,
    seed: int = 0,
    device: Device = "auto",
    progress: Progress | None = None,
) -> Forgotten:
    """Make a copy of a ranker that has forgotten, to the degree that the target says.

    `base` is the encoder that the ranker was trained from, for methods that begin there; `learning_epoch` what an epoch
    of training took, if that is known; `watch` how many queries of each kept set are measured at every check.
    """
    check_target(target)
    method = make_method(method) if isinstance(method, str) else method
    parts = partition(collection, removal)
    workshop = Workshop.open(ranker, collection, parts, device, progress)
    task = workshop.task(ranker)
    clock = Clock(workshop.runtime)
    with clock.on("teacher"):
        before = workshop.judge.scorecard(task.teacher.scores)
    assert before.forget is not None
    goal = resolve_target(target, before)
    student, after, history, landing = ranker, before, [], None
    if before.forget.mean > goal or not method.steered:
        student = _start(ranker, method, base, seed)
        student.to(workshop.runtime.device)
        if watch is None:
            watch = WATCHED if workshop.runtime.device.type == "cuda" else 0
        if isinstance(method, Retrain):
            clock = Clock(workshop.runtime)  # no teacher
            history = run_training(student, workshop, method, seed, clock)
        else:
            history, landing = _unlearn(task, student, workshop, method, goal, before.forget.mean, clock, watch, seed)
        after = workshop.judge.scorecard(workshop.scorer(student))
    assert after.forget is not None
    known = learning_epoch if learning_epoch and learning_epoch.get("device") == workshop.runtime.name else None
    record = Record(
        ranker=ranker.kind,
        base=base,
        method=method.name,
        settings=asdict(method),
        seed=seed,
        collection={"name": collection.name, "fingerprint": collection.fingerprint},
        target=goal,
        target_name=str(target),
        reached=after.forget.mean <= goal + tolerance(len(after.forget.queries)),
        epochs=len(history),
        seconds=clock.total,
        timing=clock.seconds,
        learning_epoch=known or estimate_learning_epoch(ranker, workshop),
        landing=asdict(landing) if landing else None,
        device=workshop.runtime.name,
        before=before.to_json(),
        after=after.to_json(),
        removed=hashed(removal),
        history=history,
    )
    return Forgotten(student, before, after, goal, bool(record.reached), record)


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
    watch: int,
    seed: int,
) -> tuple[list[dict[str, Any]], Landing | None]:
    """Unlearn in place: epochs until the target is crossed, then landing."""
    near = tolerance(len(np.unique(workshop.parts.forget[:, 0])))
    steering = Steering(student, workshop, target, near, clock, watch, weights_of(student), forget_before)
    schedule = Schedule(method.epochs, method.learning_rate, seed)
    fit(student, method.plan(task), schedule, workshop.store, workshop.runtime, steering.reached)
    return steering.history, steering.land()
