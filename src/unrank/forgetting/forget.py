"""Forgetting: validate the request, run the method until the forget MRR is at the target, assess, and record.

The original is never changed. A method that cannot reach the target within its budget keeps its best model and says so.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.disk import exists
from unrank.engine.checkpoint import Cache
from unrank.engine.resume import ResumableRun
from unrank.engine.runtime import Progress, deterministic
from unrank.engine.teacher import Teacher
from unrank.errors import count
from unrank.evaluation.scorecard import Scorecard
from unrank.forgetting.goals import PairGoals, pair_goals
from unrank.forgetting.mrr_estimator import MrrEstimator
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.outcome import Findings, ForgetState, Judgement, judge, ranks_of
from unrank.forgetting.previous_requests import PreviousRanks, hashed, is_fulfilled, was_trained_on
from unrank.forgetting.progress import listening
from unrank.forgetting.run import RUNNERS, MethodRun, Outcome
from unrank.forgetting.save import save_ranker
from unrank.forgetting.target import OF_REFERENCE, default_mrr, resolve_target, tolerance
from unrank.forgetting.train import estimate_learning_epoch, recovery
from unrank.forgetting.validation import (
    Base,
    check_request,
    encoded_sides,
    find_base,
    keep_frozen,
    layers_of,
    make_student,
    run_fingerprint,
)
from unrank.forgetting.vocabulary import NEVER_SEEN, Clearing, find_clearing
from unrank.forgetting.workspace import Clock, Workspace
from unrank.methods.base import Method
from unrank.methods.task import Task
from unrank.rankers.base import Ranker
from unrank.rankers.layers import release, sharing_frozen_states
from unrank.record import (
    RETRAIN,
    CollectionName,
    LearningEpoch,
    PreviousMrr,
    Record,
    Recovery,
    measured_epoch,
    requests_of,
    shares_kept,
)


@dataclass(frozen=True)
class Forgotten:
    """A ranker that has forgotten, its metrics before and after, and its record."""

    ranker: Ranker
    before: Scorecard
    after: Scorecard
    target: float
    reached: bool
    record: Record
    judgement: Judgement
    fulfilled: bool = False
    """Whether an earlier run had forgotten all of it, so that nothing was done."""
    limited: str = ""
    """Why the run ended before its target, if more would have been lost than allowed."""

    @property
    def kept(self) -> dict[str, float]:
        """The share of its MRR that each kept set still has."""
        return shares_kept(self.before.mrrs, self.after.mrrs)

    @property
    def came_back(self) -> bool:
        """Whether what was forgotten before has risen again."""
        return self.record.earlier is not None and self.record.earlier.came_back

    @property
    def state(self) -> ForgetState:
        """The state of the request."""
        return self.judgement.state

    @property
    def tolerance(self) -> float:
        """The distance above the target that still counts as reached."""
        assert self.after.forget is not None
        return tolerance(len(self.after.forget.queries))

    def save(self, out: str | Path) -> None:
        save_ranker(self.ranker, self.record, Path(out))


@dataclass(frozen=True)
class Request:
    """A valid request: the method, the student it changes, and what the run is compared with."""

    workspace: Workspace
    options: ForgetOptions
    ranker: Ranker
    record: Record | None
    reference: Ranker | None
    method: Method
    base: Base
    student: Ranker
    checkpoints: ResumableRun
    shared: ExitStack
    """Ends what the original and the student share, and what holds rows of the student in place."""
    reference_known: bool = False
    """Whether the reference is known to have never seen what is removed."""


@dataclass(frozen=True)
class Unlearned:
    """The changed student, and what was measured before and during the run."""

    student: Ranker
    outcome: Outcome
    before: Scorecard
    goal: float
    fulfilled: bool
    previous: PreviousRanks
    clearing: Clearing
    clock: Clock
    learning_epoch: LearningEpoch
    teacher: Teacher
    goals: PairGoals | None = None
    """The goals of single pairs; `None` if the target is a mean."""


@dataclass(frozen=True)
class Assessment:
    """The measurements after a run."""

    after: Scorecard
    outcome: Outcome
    earlier: PreviousMrr | None
    recovered: Recovery | None


def forget(
    ranker: Ranker,
    collection: Collection,
    removal: Removal,
    options: ForgetOptions | None = None,
    *,
    reference: Ranker | None = None,
    record: Record | Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    run: ResumableRun | None = None,
    cache: Cache | None = None,
    reference_known: bool = False,
    **changes: Any,
) -> Forgotten:
    """Make a copy of a ranker that has forgotten, to the degree that the target says.

    `changes` are fields of `ForgetOptions`, such as `method="cocol"` or `target=0.45`; `pace` stands for the three
    fields of `Pace`. `reference` is a ranker that never saw what is removed; `reference_known` says that this is known,
    not only claimed. `record` is the ranker's record, if unrank made it: what it forgot before stays forgotten.
    `progress` shows how far the run is; by default it is a bar, if standard error is a terminal (`Silence()` shows
    nothing). `run` writes checkpoints. `cache` holds tokens and scores of earlier jobs, and keeps those of this one.
    `before` is the ranker's scorecard, if it was measured already.
    """
    record = Record.of(changes.pop("known", record))  # its old name
    before = changes.pop("before", None)
    options = (options or ForgetOptions()).changed(**changes)
    with deterministic(options.deterministic), listening(progress) as listener:
        workspace = Workspace.for_removal(
            *(ranker, collection, removal, record),
            device=options.device,
            progress=listener,
            measure=options.measure,
            cache=cache,
        )
        return forget_in(
            *(workspace, ranker, options),
            reference=reference,
            reference_known=reference_known,
            record=record,
            run=run,
            before=before,
        )


def forget_in(
    workspace: Workspace,
    ranker: Ranker,
    options: ForgetOptions,
    *,
    reference: Ranker | None = None,
    record: Record | None = None,
    run: ResumableRun | None = None,
    before: Scorecard | None = None,
    reference_known: bool = False,
) -> Forgotten:
    """Forget the removal of a workspace; `before` is the original's scorecard, if it was measured there before."""
    request = validate(workspace, ranker, options, reference, record, run)
    request = replace(request, reference_known=reference_known and reference is not None)
    with request.shared:
        unlearned = unlearn(request, before)
        assessed = assess(request, unlearned)
    judged = judge_run(request, unlearned, assessed)
    return Forgotten(
        ranker=unlearned.student,
        before=unlearned.before,
        after=assessed.after,
        target=unlearned.goal,
        reached=assessed.outcome.reached is not False,
        record=make_record(request, unlearned, assessed, judged),
        judgement=judged,
        fulfilled=unlearned.fulfilled,
        limited=assessed.outcome.limited,
    )


def validate(
    workspace: Workspace,
    ranker: Ranker,
    options: ForgetOptions,
    reference: Ranker | None,
    record: Record | None,
    run: ResumableRun | None = None,
) -> Request:
    """Refuse what cannot be done, make the student, and claim the checkpoint of this very run."""
    method = options.method_for(ranker.kind)
    check_request(workspace, ranker, method, options, reference)
    base = find_base(ranker, method, options.base, record)
    student = make_student(ranker, method, base, options)
    run = run or ResumableRun()
    run.claim(lambda: run_fingerprint(workspace, ranker, method, options, base, reference))
    return Request(workspace, options, ranker, record, reference, method, base, student, run, ExitStack())


def unlearn(request: Request, before: Scorecard | None = None) -> Unlearned:
    """Run the method on the student; do nothing if earlier runs have forgotten everything."""
    workspace, ranker, student, options = request.workspace, request.ranker, request.student, request.options
    method, runtime, collection = request.method, workspace.runtime, workspace.collection
    student.to(runtime.device)
    clearing = clear(request)
    epoch = measured_epoch(request.record, collection.fingerprint, runtime.name)
    epoch = epoch or estimate_learning_epoch(ranker, workspace)
    keep_frozen(workspace.store, ranker, student, options.freeze, bool(clearing.moved))
    clock = Clock(runtime)
    with clock.on("teacher"):
        task = workspace.task(ranker, request.base.place, options.seed)
        previous = PreviousRanks.measure(task.teacher.scores, workspace.previous, collection, workspace.evaluator)
        task = replace(task, partition=previous.with_risen(workspace.partition, collection))
    if method.start == "original":
        request.shared.enter_context(sharing_frozen_states(ranker, student, clearing.tokens))
    with clock.on("teacher"):
        estimator = _estimator(request, task)
        method.prepare(task)
    before = before or workspace.evaluator.scorecard(task.teacher.scores)
    _tell_of_rows_left(request, clearing)
    assert before.forget is not None
    compared = workspace.scorecard(request.reference) if request.reference and options.target in OF_REFERENCE else None
    with clock.on("teacher"):
        goals = pair_goals(options.target, collection, workspace.partition.forget, task.teacher.scores, before)
    goal = goals.mrr if goals else resolve_target(options.target, before, compared)
    task = replace(task, wanted=goals.wanted if goals else None)
    if method.run_kind == "training":
        clock = Clock(runtime)  # it asks no teacher
    assert before.pair_ranks is not None
    missed = None if goals is None else goals.missed(before.pair_ranks)
    if is_fulfilled(workspace, method, str(options.target), goal, before.forget, missed):
        student, outcome, fulfilled = copy.deepcopy(ranker), Outcome(reached=True), True
        clearing.put(student)
    else:
        start, ranks = before.forget.mean, before.pair_ranks
        if estimator is not None:
            estimator.begin(start)
            if clearing.moved:
                with clock.on("checks"):
                    start, ranks = estimator.measure(), estimator.pair_ranks()
        inputs = (clock, goal, start, estimator, request.checkpoints, ranks, goals)
        outcome = RUNNERS[method.run_kind](MethodRun(method, options, task, student, workspace, *inputs))
        clearing.put(student)  # a recorded pass on a GPU may know nothing of the hooks that hold the rows
        fulfilled = False
    return Unlearned(student, outcome, before, goal, fulfilled, previous, clearing, clock, epoch, task.teacher, goals)


def _estimator(request: Request, task: Task) -> MrrEstimator | None:
    """Return what estimates the forget MRR during a steered run; `None` for other runs."""
    if request.method.run_kind != "steered":
        return None
    workspace, sides = request.workspace, encoded_sides(request.ranker, request.options.freeze)
    return MrrEstimator(workspace.evaluator, task.teacher.scores, workspace.scorer(request.student), sides)


def clear(request: Request) -> Clearing:
    """Set the rows of the vocabulary that only removed texts touch, and hold them. Retraining never reads them."""
    workspace, record = request.workspace, request.record
    seed = record.seed if record and record.method == RETRAIN else request.options.seed
    clearing = find_clearing(request.ranker, workspace, _untrained(request), seed)
    if request.method.start != "original":
        return replace(clearing, how=NEVER_SEEN, values=(), moved=0) if clearing.record.rows else clearing
    request.shared.enter_context(clearing.held(request.student))
    return clearing


def _tell_of_rows_left(request: Request, clearing: Clearing) -> None:
    """Say before the run that some rows stay as they are."""
    if clearing.record.left and request.method.start == "original":
        why = request.base.warning or "name the model that it was trained from with --base"
        request.workspace.runtime.progress.say(
            f"{count(clearing.record.left, 'row')} of the vocabulary that only removed texts touch "
            f"could not be cleared ({clearing.how.partition(': ')[2]}): {why}"
        )


def _untrained(request: Request) -> str | None:
    """Return the place of the base; `None` if its own record says that it was trained on what is removed."""
    place, workspace = request.base.place, request.workspace
    assert workspace.removal is not None
    known = Record.read(place) if place and exists(Path(place)) else None
    return None if was_trained_on(workspace.collection, known, workspace.removal) else place


def assess(request: Request, unlearned: Unlearned) -> Assessment:
    """Measure the student in full: all sets, what was forgotten before and, if asked, what comes back."""
    workspace, student, outcome = request.workspace, unlearned.student, unlearned.outcome
    after, now = unlearned.before, unlearned.previous
    if outcome.history or unlearned.clearing.moved:
        score = workspace.scorer(student)
        after = workspace.evaluator.scorecard(score)
        now = PreviousRanks.measure(score, workspace.previous, workspace.collection, workspace.evaluator)
    outcome = outcome.confirmed(unlearned.goal, after, unlearned.goals)
    request.shared.close()
    release(student, request.ranker)
    unlearned.teacher.save()
    workspace.store.save(workspace.runtime.progress.say)
    assert after.forget is not None
    recovered = (
        recovery(student, after.forget.mean, request.reference, workspace, request.options.seed)
        if request.options.recovery
        else None
    )
    return Assessment(after, outcome, unlearned.previous.change_to(now), recovered)


def judge_run(request: Request, unlearned: Unlearned, assessed: Assessment) -> Judgement:
    """Judge the request by the ranks of its pairs before and after, which the scorecards have."""
    workspace, target, goal = request.workspace, request.options.target, unlearned.goal
    then, now = unlearned.before.pair_ranks, assessed.after.pair_ranks
    assert then is not None and now is not None and workspace.removal is not None
    default = default_mrr(target, goal, unlearned.before, request.reference_known)
    ranks = ranks_of(
        workspace.collection,
        workspace.partition.forget,
        np.stack([then, now]),
        goal if default is None else min(goal, default),
        unlearned.goals.least if unlearned.goals else None,
    )
    moved = bool(assessed.outcome.history)
    before = unlearned.fulfilled
    never_seen = before and was_trained_on(workspace.collection, request.record, workspace.removal) is False
    found = Findings(
        weights_changed=moved or bool(unlearned.clearing.moved),
        rows_left=unlearned.clearing.record.left,
        retrained=never_seen or (moved and request.method.name == RETRAIN),
        forgotten_before=before,
        has_reference=request.reference_known,
        default_known=default is not None,
    )
    return judge(ranks, found)


def make_record(request: Request, unlearned: Unlearned, assessed: Assessment, judged: Judgement) -> Record:
    """Return the record of a run. If nothing was done, it keeps the method and the settings of the earlier one."""
    workspace, ranker, options, method = request.workspace, request.ranker, request.options, request.method
    chosen = {"train_layers": layers_of(options), "freeze": options.freeze}
    settings = asdict(method) | {name: value for name, value in chosen.items() if value is not None}
    earlier = request.record if unlearned.fulfilled else None
    outcome, clock, moved = assessed.outcome, unlearned.clock, bool(assessed.outcome.history)
    assert workspace.removal is not None
    return Record(
        ranker=ranker.kind,
        base=request.base.name,
        base_digest=request.base.digest,
        cleared=unlearned.clearing.record,
        method=earlier.method if earlier else method.name,
        settings=earlier.settings if earlier else settings,
        seed=options.seed,
        collection=CollectionName(workspace.collection.name, workspace.collection.fingerprint),
        target=unlearned.goal,
        target_name=str(options.target),
        reached=outcome.reached,
        epochs=outcome.epochs,
        seconds=clock.total,
        timing=clock.seconds,
        learning_epoch=unlearned.learning_epoch,
        landing=outcome.landing,
        state=str(judged.state),
        pairs=judged.ranks,
        device=workspace.runtime.name,
        deterministic=workspace.runtime.deterministic,
        index_valid=(options.freeze is not None or not moved) if ranker.separable else None,
        before=unlearned.before.summary,
        after=assessed.after.summary,
        set_queries=workspace.evaluator.set_queries,
        removed=hashed(workspace.removal),
        removed_before=requests_of(request.record),
        earlier=assessed.earlier,
        recovery=assessed.recovered,
        history=tuple(outcome.history),
    )
