"""The time that forgetting will take, from a few steps and lists timed on this machine.

How many epochs a run needs until its target is not known before it runs. So the result is a range: from few epochs to
many, and from the fastest to the slowest of the timed pieces.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, cast

import numpy as np

from unrank.collection.collection import Pairs
from unrank.engine.loop import make_optimizer, step
from unrank.engine.samples import Phase
from unrank.engine.scoring import scores_of
from unrank.engine.teacher import Scores, Teacher
from unrank.forgetting.mrr_estimator import Effort, to_read
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.pair_stopping import LIMIT_QUERIES
from unrank.forgetting.proxies import MOST_KEPT, Foreseen, usual_epochs
from unrank.forgetting.target import PLACES, beyond_of
from unrank.forgetting.train import estimate_learning_epoch
from unrank.forgetting.validation import check_freeze, encoded_sides, keep_frozen, restrict
from unrank.forgetting.workspace import Clock, Workspace
from unrank.methods.base import Method, OneShot, RunKind
from unrank.methods.watched import watched_plan
from unrank.rankers.base import Ranker
from unrank.rankers.layers import sharing_frozen_states
from unrank.record import LearningEpoch, Record, measured_epoch

TIMED_PAIRS = {"cpu": 64, "cuda": 16_384}
"""Pairs that are timed, sampled from all lists. Fewer would fill no whole chunk, and a text would take longer."""
ENCODED_APART = 4
"""Times as many pairs are timed if their texts are encoded on their own: most texts are in several pairs."""
TIMED_SAMPLES = {"cpu": 64, "cuda": 256}
"""The most samples of a timed step. Part of its time does not depend on them, so it has as many as a real one."""
TIMED_STEPS = {"cpu": 2, "cuda": 3}
WARM_UP = {"cpu": 1, "cuda": 3}
"""Steps before the timed ones, in which a GPU compiles its kernels and records its passes."""
FEW_EPOCHS, MANY_EPOCHS = 1, 8
"""The epochs within which most runs reach their target."""
SURE = 0.8, 1.3
"""The time of an epoch that was measured before, now, as a share of it."""
TYPICAL_LANDING = 2
"""Measurements not far from the first one."""


@dataclass(frozen=True)
class Seconds:
    """A time between two bounds."""

    low: float
    high: float

    def __iter__(self) -> Iterator[float]:
        return iter((self.low, self.high))

    @classmethod
    def of(cls, timed: Iterable[float]) -> Seconds:
        every = list(timed)
        return cls(min(every), max(every))

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(self.low + other.low, self.high + other.high)

    def times(self, low: float, high: float | None = None) -> Seconds:
        """Multiply the bounds by a number, or by one number each."""
        return Seconds(low * self.low, (low if high is None else high) * self.high)


NONE = Seconds(0.0, 0.0)


@dataclass(frozen=True)
class Costs:
    """The times of the parts of a run."""

    epoch: Seconds
    check: Seconds
    landing: Seconds
    scorecard: Seconds
    """A scorecard of the student at the end."""
    teacher: Seconds
    """The original's scorecard, and the scores that the method asks for."""
    setup: Seconds
    """Timing an epoch of training, if no record names it; and training a proxy."""
    epochs: tuple[int, int] | None = None
    """The fewest and the most epochs of a run, if they are known: one to places ends when its rate has fallen."""


def steered_time(method: Method, costs: Costs) -> Seconds:
    few, many = costs.epochs or (min(FEW_EPOCHS, method.epochs), min(MANY_EPOCHS, method.epochs))
    steps = (costs.epoch + costs.check).times(few, many)
    return costs.setup + costs.teacher + steps + costs.landing + costs.scorecard


def training_time(method: Method, costs: Costs) -> Seconds:
    return costs.setup + costs.teacher + costs.epoch.times(1, method.epochs) + costs.scorecard


def edit_time(method: Method, costs: Costs) -> Seconds:
    rounds = cast("OneShot", method).rounds
    return costs.setup + costs.teacher + costs.epoch.times(rounds) + costs.check + costs.scorecard


ESTIMATES: dict[RunKind, Callable[[Method, Costs], Seconds]] = {
    "steered": steered_time,
    "training": training_time,
    "edit": edit_time,
}
"""For each kind of method, the time of a run from the times of its parts."""


def estimate(
    workspace: Workspace,
    ranker: Ranker,
    options: ForgetOptions,
    *,
    base: str | None = None,
    record: Record | None = None,
    proxies: Foreseen | None = None,
) -> Seconds:
    """Return the time of a run with these options: proxies, scorecards, teacher scores, epochs, checks and landing.

    Without `proxies`, one is trained if the base is known.
    """
    method = options.method_for(ranker.kind)
    check_freeze(options.freeze, ranker, method)
    proxies = proxies or Foreseen(made=base is not None)
    return ESTIMATES[method.run_kind](method, time_parts(workspace, ranker, method, options, base, record, proxies))


def time_parts(
    workspace: Workspace,
    ranker: Ranker,
    method: Method,
    options: ForgetOptions,
    base: str | None,
    record: Record | None,
    proxies: Foreseen,
) -> Costs:
    """Time a few lists and steps, and scale them to what the run has to read and to train on."""
    setup = NONE
    learning = measured_epoch(record, workspace.collection.fingerprint, workspace.runtime.name)
    if learning is None:
        started = perf_counter()
        learning = estimate_learning_epoch(ranker, workspace)
        setup = Seconds.of([perf_counter() - started])
    student = copy.deepcopy(ranker)
    restrict(student, options)
    text = seconds_per_text(ranker, workspace)
    keep_frozen(workspace.store, ranker, student, options.freeze)
    lists = workspace.collection.list_pairs(workspace.evaluator.queries)
    whole, sides = encoded_sides(ranker, None), encoded_sides(ranker, options.freeze)
    asked = lists
    if method.run_kind == "steered":
        asked = np.unique(np.concatenate([lists, asked_of_teacher(ranker, workspace, method, base)]), axis=0)
    effort = Effort.of(workspace.evaluator.forget_lists(), workspace.partition.forget, sides)
    to_places = options.target == PLACES and method.takes_goals
    with sharing_frozen_states(ranker, student) if method.start == "original" else nullcontext():
        epoch = seconds_per_epoch(ranker, student, workspace, method, base, to_places)
    if options.target == PLACES and method.run_kind == "steered":
        setup += text.times(proxies.number * effort.whole)
        epochs = options.proxy_epochs or usual_epochs(workspace.partition)
        setup += proxy_time(workspace, learning, epochs) if proxies.made else NONE
    by_pair = beyond_of(options.target) is not None  # near its goals every list is measured, and nothing is landed
    watched = workspace.evaluator.watched_pairs(LIMIT_QUERIES) if by_pair and options.keep_at_least else lists[:0]
    return Costs(
        epoch=epoch,
        check=text.times(effort.whole + to_read(watched, sides) if by_pair else effort.estimate),
        landing=NONE if by_pair or to_places else text.times(effort.whole + TYPICAL_LANDING * effort.again),
        scorecard=text.times(to_read(lists, sides)),
        teacher=text.times(to_read(asked, whole)),
        setup=setup,
        epochs=place_epochs(method) if to_places else None,
    )


def place_epochs(method: Method) -> tuple[int, int]:
    """Return the epochs of a run to places: those of a round, and those of all rounds."""
    schedule = method.place_schedule(method.schedule(0), ())
    return schedule.epochs, schedule.epochs * schedule.rounds


def proxy_time(workspace: Workspace, learning: LearningEpoch, epochs: int) -> Seconds:
    """Return the time to train a proxy, from that of an epoch on all training pairs."""
    kept = min(MOST_KEPT, len(workspace.partition.retain)) / len(workspace.collection.pairs)
    return Seconds(*SURE).times(epochs * kept * learning.seconds)


def seconds_per_text(ranker: Ranker, workspace: Workspace) -> Seconds:
    """Time a sample of the pairs that are measured, per pair, or per text if the sides are encoded on their own.

    On a CPU the first pass counts too: it tokenises, as a run does. On a GPU it compiles kernels, and does not count.
    """
    device = workspace.runtime.device.type
    lists, sides = workspace.collection.list_pairs(workspace.evaluator.queries), encoded_sides(ranker, None)
    most = TIMED_PAIRS[device] * (ENCODED_APART if sides else 1)
    pairs = lists[np.sort(np.random.default_rng(0).permutation(len(lists))[:most])]
    texts = to_read(pairs, sides)
    timed = [_seconds(workspace, lambda: scores_of(ranker, workspace.store, pairs, workspace.runtime)) for _ in "123"]
    return Seconds.of(timed if device == "cpu" else timed[1:]).times(1 / texts)


def seconds_per_epoch(
    ranker: Ranker, student: Ranker, workspace: Workspace, method: Method, base: str | None, to_places: bool = False
) -> Seconds:
    """Time some steps of each phase, and scale them to an epoch. A step takes no time to ask a teacher."""
    silent = ListeningTeacher(ranker, workspace.collection, workspace.store, workspace.runtime)
    task = replace(workspace.task(ranker, base), teacher=silent, untrained=lambda which: silent)
    if to_places:
        task = replace(task, wanted=np.zeros(len(workspace.partition.forget), np.float32), pulls_up=True)
    total = NONE
    for phase in watched_plan(method, task):
        total += seconds_per_step(student, phase, workspace).times(phase.size / phase.batch)
    return total


def seconds_per_step(student: Ranker, phase: Phase, workspace: Workspace) -> Seconds:
    """Time steps of a whole mini-batch that leave the weights as they are, after some to warm up."""
    device, drawn = workspace.runtime.device.type, phase.draw(np.random.default_rng(0), 1)
    size = min(len(drawn), phase.batch, TIMED_SAMPLES[device])
    if not size:
        return NONE
    optimizer, timed = make_optimizer(student, 0.0, workspace.runtime), []
    guard = phase.guard and phase.guard.draw(np.random.default_rng(0), 1)
    with student.repeated_steps():
        for number in range(WARM_UP[device] + TIMED_STEPS[device]):
            first = number * size % (len(drawn) - size + 1)
            batch = drawn.take(np.arange(first, first + size))
            guarded = guard.take(np.arange(min(size, len(guard)))) if guard else None
            for samples in filter(None, (batch, guarded)):
                workspace.store.read(samples.pairs[samples.present])
            arguments = (student, phase, batch, optimizer, workspace.store, workspace.runtime, guarded)
            timed.append(_seconds(workspace, lambda arguments=arguments: step(*arguments)))  # type: ignore[misc]
    return Seconds.of(timed[WARM_UP[device] :]).times(phase.batch / size)


def _seconds(workspace: Workspace, work: Callable[[], Any]) -> float:
    clock = Clock(workspace.runtime)
    with clock.on("work"):
        work()
    return clock.total


class ListeningTeacher(Teacher):
    """A teacher that computes nothing, and notes the pairs it is asked for."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.asked: list[Pairs] = [np.empty((0, 2), np.int64)]

    def scores(self, pairs: Pairs) -> Scores:
        self.asked.append(pairs)
        return np.zeros(len(pairs), np.float32)


def asked_of_teacher(ranker: Ranker, workspace: Workspace, method: Method, base: str | None) -> Pairs:
    """Return the pairs whose scores a method asks for before it begins."""
    teacher = ListeningTeacher(ranker, workspace.collection, workspace.store, workspace.runtime)
    method.prepare(replace(workspace.task(ranker, base), teacher=teacher))
    return np.concatenate(teacher.asked)
