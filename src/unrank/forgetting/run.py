"""Running a method: by steps to the target, through training where it is that, at once where it is an edit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch

from unrank.engine.loop import fit, squared_gradients
from unrank.engine.resume import ResumableRun
from unrank.errors import UnrankError
from unrank.evaluation.scorecard import Scorecard
from unrank.forgetting.clock import Clock
from unrank.forgetting.landing import weights_of
from unrank.forgetting.mrr_estimator import MrrEstimator
from unrank.forgetting.steering import Steering
from unrank.forgetting.target import tolerance
from unrank.forgetting.train import run_training
from unrank.forgetting.workspace import Workspace
from unrank.methods.base import Method, OneShot
from unrank.methods.task import Task
from unrank.rankers.base import Ranker
from unrank.record import Check, Landing

WATCHED = 100
"""Queries of each kept set that are measured at every check, where that costs little."""


@dataclass(frozen=True)
class Pace:
    """How closely a run is watched, and how long it may take."""

    check_every: int | None = None
    """Steps between checks; without it one an epoch."""
    minutes: float | None = None
    watch: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("check_every", self.check_every), ("minutes", self.minutes)):
            if value is not None and not value > 0:
                raise UnrankError(f"{name.replace('_', '-')} must be more than 0, not {value:g}")

    def watched(self, workspace: Workspace) -> int:
        if self.watch is not None:
            return self.watch
        return WATCHED if workspace.runtime.device.type == "cuda" else 0


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    history: list[Check] = field(default_factory=list)
    landing: Landing | None = None
    reached: bool | None = None
    """None where the method knows no target."""

    @property
    def epochs(self) -> float:
        return float(self.history[-1].epoch) if self.history else 0

    def confirmed(self, target: float, after: Scorecard) -> Outcome:
        """The same, but whether it reached its target is what was measured in full when it was over."""
        assert after.forget is not None
        most = target + tolerance(len(after.forget.queries))
        return replace(self, reached=after.forget.mean <= most) if self.history and self.reached is not None else self


def run_method(
    method: Method,
    task: Task,
    estimator: MrrEstimator | None,
    student: Ranker,
    workspace: Workspace,
    target: float,
    forget_before: float,
    pace: Pace,
    seed: int,
    clock: Clock,
    run: ResumableRun | None = None,
) -> Outcome:
    """Change the student in place; a method that stops at the target needs a gauge for it."""
    if method.run_kind == "training":
        return Outcome(run_training(student, workspace, method, seed, clock, run))
    if isinstance(method, OneShot):
        return _edit(method, task, student, workspace, seed, clock)
    if forget_before <= target:
        return Outcome(reached=True)
    assert estimator is not None
    estimator.begin(forget_before)
    near = tolerance(len(np.unique(workspace.partition.forget[:, 0])))
    begin = forget_before, weights_of(student)
    steering = Steering(
        student, workspace, estimator, target, near, clock, pace.watched(workspace), pace.minutes, begin, forget_before
    )
    schedule = replace(
        method.schedule(seed, pace.check_every), over=steering.out_of_time if pace.minutes is not None else None
    )
    with clock.on("teacher"):  # a plan may make a teacher of its own
        plan = method.plan(task)
    steps = fit(student, plan, schedule, workspace.store, workspace.runtime, run, steering=steering, clock=clock)
    landing = steering.steer(steps)
    return Outcome(steering.history, landing, steering.on_target)


def _edit(method: OneShot, task: Task, student: Ranker, workspace: Workspace, seed: int, clock: Clock) -> Outcome:
    """One edit of every weight that moves, by how much it matters to each phase."""
    with clock.on("steps"):
        measured = [
            squared_gradients(student, phase, seed, workspace.store, workspace.runtime) for phase in method.plan(task)
        ]
        with torch.no_grad():
            for name, weight in student.named_parameters():
                if weight.requires_grad:
                    weight.copy_(method.edit(weight, [importance[name] for importance in measured]))
    with clock.on("checks"):
        forget = workspace.evaluator.forget_mrr(workspace.scorer(student))
    return Outcome([Check(epoch=1, seconds=clock.seconds["steps"], forget=forget)])
