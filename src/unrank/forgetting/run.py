"""The three ways to run a method: steps until the target ("steered"), a training, and one edit of the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import torch

from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
from unrank.engine.checkpoint import Stateful
from unrank.engine.loop import fit, mean_gradients, squared_gradients
from unrank.engine.resume import ResumableRun
from unrank.evaluation.scorecard import Scorecard
from unrank.forgetting.followed_lists import follow_lists
from unrank.forgetting.goals import PairGoals
from unrank.forgetting.landing import weights_of
from unrank.forgetting.mrr_estimator import MrrEstimator
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.pair_stopping import LIMIT_QUERIES, PairStoppingRule
from unrank.forgetting.places import Places
from unrank.forgetting.progress import followers
from unrank.forgetting.stopping import StoppingRule
from unrank.forgetting.target import PLACES, tolerance
from unrank.forgetting.train import run_training
from unrank.forgetting.workspace import Clock, Workspace
from unrank.methods.base import Method, OneShot, RunKind
from unrank.methods.task import EarlierPlaces, Task
from unrank.methods.watched import watched_plan
from unrank.rankers.base import Ranker
from unrank.record import Check, Landing

WATCHED = 100
"""Queries of each kept set that are measured at every check on a GPU."""


@dataclass(frozen=True)
class Outcome:
    """The history of a run, its landing, and whether it reached the target."""

    history: list[Check] = field(default_factory=list)
    landing: Landing | None = None
    reached: bool | None = None
    """`None` if the method has no target."""
    limited: str = ""
    """Why the run ended early, if more would have been lost than allowed."""

    @property
    def epochs(self) -> float:
        return float(self.history[-1].epoch) if self.history else 0

    def confirmed(self, target: float, after: Scorecard, goals: PairGoals | None = None) -> Outcome:
        """Return the outcome with `reached` decided by the full measurement at the end."""
        assert after.forget is not None and after.pair_ranks is not None
        if not self.history or self.reached is None:
            return self
        if goals is not None:
            return replace(self, reached=not goals.missed(after.pair_ranks))
        return replace(self, reached=after.forget.mean <= target + tolerance(len(after.forget.queries)))


@dataclass(frozen=True)
class MethodRun:
    """The student that a method changes in place, and what the run needs for it."""

    method: Method
    options: ForgetOptions
    task: Task
    student: Ranker
    workspace: Workspace
    clock: Clock
    target: float
    forget_before: float
    """The forget MRR of the student as it begins."""
    estimator: MrrEstimator | None
    """Needed by a "steered" method."""
    checkpoints: ResumableRun
    ranks_before: Rows
    goals: PairGoals | None = None
    """The goals of single pairs; `None` if the target is a mean."""

    @property
    def met(self) -> bool:
        """Whether the original is at the target."""
        if self.goals is not None:
            return not self.goals.left(self.ranks_before)
        return self.forget_before <= self.target


def run_steered(run: MethodRun) -> Outcome:
    """Take steps until the forget MRR is at the target, and land on it; or until every pair has met its goal."""
    if run.met:
        return Outcome(reached=True)
    workspace, options, clock, estimator = run.workspace, run.options, run.clock, run.estimator
    assert estimator is not None
    rule = make_rule(run, estimator)
    schedule = run.method.schedule(options.seed, options.check_every)
    schedule = replace(schedule, over=rule.out_of_time if options.minutes is not None else None)
    store, runtime = workspace.store, workspace.runtime
    with clock.on("teacher"):  # a plan may make a teacher of its own, and masks may need gradients
        plan = watched_plan(run.method, run.task)
        masks = run.method.masks(
            run.task, lambda phase: mean_gradients(run.student, phase, options.seed, store, runtime)
        )
    if run.goals is not None and run.goals.pulls_up:
        schedule = run.method.place_schedule(schedule, plan)
        if isinstance(rule, PairStoppingRule) and schedule.rounds > 1:
            rule.round = schedule.epochs
    for follower in followers(runtime.progress):
        follower.plan(schedule.epochs, exact=run.goals is not None and run.goals.pulls_up)
    rule.lists = follow_lists(workspace, run.student, estimator.queries, options.follow)
    if rule.lists is not None:
        rule.lists.begin(run.task.teacher)
    parts: dict[str, Stateful] = {"steering": rule, "clock": clock}  # their names in checkpoints
    if isinstance(run.goals, Places):
        parts[PLACES] = run.goals
    steps = fit(run.student, plan, schedule, store, runtime, run.checkpoints, masks=masks, **parts)
    landing = rule.follow(run.method.walk(run.student, steps))
    limited = rule.limited if isinstance(rule, PairStoppingRule) else ""
    return Outcome(rule.history, landing, rule.on_target, limited)


def make_rule(run: MethodRun, estimator: MrrEstimator) -> StoppingRule:
    """Return the rule that stops a run: by the mean, or by the worst pair if there are goals."""
    workspace, options = run.workspace, run.options
    watched, limit, kept = options.watch, options.keep_at_least, dict[str, float]()
    if run.goals is not None and run.goals.pulls_up:
        limit = None  # what is kept recovers as the rate falls: only the end counts
    queries = len(np.unique(workspace.partition.forget[:, 0]))
    if watched is None:
        watched = usual_watch(workspace.runtime.device.type, queries)
    if run.goals is not None and limit is not None:
        watched = max(watched, LIMIT_QUERIES)
        with run.clock.on("checks"):
            kept = workspace.evaluator.watch(run.task.teacher.scores, watched)
    near = tolerance(queries)
    begin = (run.forget_before, weights_of(run.student))
    watching = (run.student, workspace, estimator, run.target, near, run.clock, watched, options.minutes, begin)
    if run.goals is None:
        return StoppingRule(*watching, run.forget_before)
    return PairStoppingRule(
        *watching,
        run.forget_before,
        goals=run.goals,
        keep_at_least=limit,
        kept_before=kept,
        earlier=earlier_places(run.task) if run.goals.pulls_up and run.goals.few else None,
    )


def earlier_places(task: Task) -> tuple[Pairs, EarlierPlaces] | None:
    """Return the pairs that were forgotten before and have places, and the places; `None` if there are none."""
    places = task.earlier_places
    return None if places is None else (task.partition.previous[places.ranks > 0], places)


def usual_watch(device: str, queries: int) -> int:
    """Return the default number of queries of each kept set that are measured at every check.

    For a small request they would take as long as its steps.

    >>> usual_watch("cuda", 100), usual_watch("cuda", 99), usual_watch("cpu", 100)
    (100, 0, 0)
    """
    return WATCHED if device == "cuda" and queries >= WATCHED else 0


def run_as_training(run: MethodRun) -> Outcome:
    """Train the student until it has learned enough of the kept data."""
    options = run.options
    how = (run.method, options.seed, run.clock, run.checkpoints, options.follow)
    return Outcome(run_training(run.student, run.workspace, *how))


def run_edit(run: MethodRun) -> Outcome:
    """Edit every trainable weight in each round, by how much it matters to each phase."""
    method, workspace, clock = cast("OneShot", run.method), run.workspace, run.clock
    with clock.on("steps"):
        plan = watched_plan(method, run.task)
        for number in range(method.rounds):
            seed = run.options.seed + number
            measured = [
                squared_gradients(run.student, phase, seed, workspace.store, workspace.runtime) for phase in plan
            ]
            with torch.no_grad():
                for name, weight in run.student.named_parameters():
                    if weight.requires_grad:
                        weight.copy_(method.edit(weight, [importance[name] for importance in measured]))
    with clock.on("checks"):
        forget = workspace.evaluator.forget_mrr(workspace.scorer(run.student))
    return Outcome([Check(epoch=1, seconds=clock.seconds["steps"], forget=forget)])


RUNNERS: dict[RunKind, Callable[[MethodRun], Outcome]] = {
    "steered": run_steered,
    "training": run_as_training,
    "edit": run_edit,
}
"""For each kind of method, how it is run. `estimate.py` says how long each kind takes."""
