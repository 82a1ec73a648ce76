"""A request that is valid, and the run that changes its student until the forget MRR is at the target."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from time import perf_counter

from unrank.collection.collection import Pairs
from unrank.engine.kept import KeptState
from unrank.engine.resume import ResumableRun
from unrank.engine.teacher import Teacher
from unrank.errors import count
from unrank.evaluation.scorecard import Scorecard, Scorer
from unrank.forgetting.anchors import Anchors, find_anchors
from unrank.forgetting.goals import PairGoals, pair_goals
from unrank.forgetting.kept_states import restore_states
from unrank.forgetting.mrr_estimator import MrrEstimator
from unrank.forgetting.options import ForgetOptions
from unrank.forgetting.places import Places, estimate_places, find_places
from unrank.forgetting.previous_requests import PreviousRanks, fulfilled_goal
from unrank.forgetting.progress import followers
from unrank.forgetting.provenance import Reference, base_saw, check_other_weights, check_retrain_base
from unrank.forgetting.proxies import Proxy, gather_proxies
from unrank.forgetting.run import RUNNERS, MethodRun, Outcome
from unrank.forgetting.target import OF_REFERENCE, PLACES, TEST_MRR, resolve_target
from unrank.forgetting.train import estimate_learning_epoch
from unrank.forgetting.validation import (
    Base,
    check_request,
    encoded_sides,
    find_base,
    keep_frozen,
    make_student,
    run_fingerprint,
    weights_hash,
)
from unrank.forgetting.vocabulary import ADAPTER, NEVER_SEEN, Clearing, find_clearing
from unrank.forgetting.workspace import Clock, Workspace
from unrank.journal import Before
from unrank.methods.base import Method
from unrank.methods.task import Task
from unrank.rankers.base import Ranker
from unrank.rankers.layers import sharing_frozen_states
from unrank.rankers.lora import Adapter, own_weights, take_adapter
from unrank.record import RETRAIN, LearningEpoch, Record, measured_epoch


@dataclass(frozen=True)
class Request:
    """A valid request: the method, the student it changes, and what the run is compared with."""

    workspace: Workspace
    options: ForgetOptions
    ranker: Ranker
    record: Record | None
    reference: Reference
    method: Method
    base: Base
    student: Ranker
    checkpoints: ResumableRun
    anchors: Anchors | None
    """`None` for a first request, and if the ranker has no anchor file here."""
    shared: ExitStack
    """Ends what the original and the student share, and what holds rows of the student in place."""
    weights_hash: Callable[[], str]
    """Returns the hash of the original's weights, which is computed once."""
    apart: tuple[Pairs, ...] = ()
    """Pairs that are judged by themselves too, such as those of each request of a batch."""
    proxies: tuple[Proxy, ...] = ()
    """Proxies that are loaded already."""

    def steers_by(self, goals: PairGoals | None) -> PairGoals | None:
        """Return the goals that stop the run; `None` if it stops at a mean, because its method pulls no pair up."""
        return None if goals and goals.pulls_up and not self.method.takes_goals else goals


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
    adapter: Adapter | None = None
    """The adapter that was trained, which is merged into the student; `None` if all weights were."""

    @property
    def places(self) -> Places | None:
        """The goals, if they are places."""
        return self.goals if isinstance(self.goals, Places) else None


def validate(
    workspace: Workspace,
    ranker: Ranker,
    options: ForgetOptions,
    reference: Reference,
    record: Record | None,
    run: ResumableRun | None = None,
) -> Request:
    """Refuse what cannot be done, make the student, and claim the checkpoint of this very run."""
    method = options.method_for(ranker.kind)
    if options.target == PLACES and method.run_kind != "steered":
        options = replace(options, target=TEST_MRR)  # it stops by its own measure, so it needs no proxy
    check_request(workspace, ranker, method, options, reference.ranker)
    base = find_base(ranker, method, options.base, record)
    assert workspace.removal is not None
    if method.start != "original":
        check_retrain_base(ranker.kind, base.place, ranker.source, workspace.collection, workspace.removal)
    elif options.target == PLACES and base.place:  # proxies begin from it
        check_other_weights(ranker.kind, base.place, ranker.source)
    student = make_student(ranker, method, base, options)
    run, anchors = run or ResumableRun(), find_anchors(workspace, record)
    known, hashed = anchors.digest if anchors else None, cache(partial(weights_hash, ranker))
    run.claim(lambda: run_fingerprint(workspace, ranker, method, options, base, reference.ranker, known, hashed()))
    shared = ExitStack()
    return Request(workspace, options, ranker, record, reference, method, base, student, run, anchors, shared, hashed)


def unlearn(request: Request, before: Scorecard | None = None) -> Unlearned:
    """Run the method on the student; do nothing if earlier runs have brought everything to the target."""
    workspace, ranker, student, options = request.workspace, request.ranker, request.student, request.options
    method, runtime, collection = request.method, workspace.runtime, workspace.collection
    student.to(runtime.device)
    clearing = clear(request)
    epoch = measured_epoch(request.record, collection.fingerprint, runtime.name)
    epoch = epoch or estimate_learning_epoch(ranker, workspace)
    cleared = workspace.partition.documents if clearing.moved else None
    keep_frozen(workspace.store, ranker, student, options.freeze, cleared)
    clock = Clock(runtime)
    with clock.on("teacher"):
        task = workspace.task(ranker, request.base.place, options.seed)
        previous = PreviousRanks.measure(task.teacher.scores, workspace.previous, collection, workspace.evaluator)
        if request.anchors is not None:
            task = request.anchors.hold(task, previous, collection)
        else:
            task = replace(task, partition=previous.with_risen(workspace.partition, collection))
    if method.start == "original":
        states = request.shared.enter_context(sharing_frozen_states(ranker, student, clearing.tokens))
        restore_states(workspace, ranker, student, states)
    with clock.on("teacher"):
        estimator = _estimator(request, task)
        method.prepare(task)
    before = before or workspace.evaluator.scorecard(task.teacher.scores)
    _tell_of_rows_left(request, clearing)
    assert before.forget is not None and before.pair_ranks is not None
    goal, goals = _find_goal(request, task.teacher.scores, before, clock)
    task = replace(task, wanted=goals.wanted if goals else None, pulls_up=bool(goals and goals.pulls_up))
    _tell_before(request, before, goal, goals)
    if method.run_kind == "training":
        clock = Clock(runtime)  # it asks no teacher
    left = None if goals is None else goals.left(before.pair_ranks)
    known = fulfilled_goal(workspace, method, str(options.target), goal, before.forget, left, bool(request.apart))
    if known is not None:
        goal = known
        student, outcome = copy.deepcopy(ranker), Outcome(reached=True)
    else:
        start, ranks = before.forget.mean, before.pair_ranks
        if estimator is not None:
            estimator.begin(start)
            if clearing.moved:
                with clock.on("checks"):
                    start, ranks = estimator.measure(), estimator.pair_ranks()
        run = MethodRun(
            method=method,
            options=options,
            task=task,
            student=student,
            workspace=workspace,
            clock=clock,
            target=goal,
            forget_before=start,
            estimator=estimator,
            checkpoints=request.checkpoints,
            ranks_before=ranks,
            goals=request.steers_by(goals),
        )
        outcome = RUNNERS[method.run_kind](run)
    adapter = take_adapter(request.student)
    clearing.put(student)  # a recorded pass on a GPU may know nothing of the hooks that hold the rows
    return Unlearned(
        student=student,
        outcome=outcome,
        before=before,
        goal=goal,
        fulfilled=known is not None,
        previous=previous,
        clearing=clearing,
        clock=clock,
        learning_epoch=epoch,
        teacher=task.teacher,
        goals=goals,
        adapter=adapter,
    )


def _find_goal(request: Request, score: Scorer, before: Scorecard, clock: Clock) -> tuple[float, PairGoals | None]:
    """Return the forget MRR that the target means, and the goals of single pairs if it is not a mean."""
    workspace, target, reference = request.workspace, request.options.target, request.reference.ranker
    compared = workspace.scorecard(reference) if reference and target in OF_REFERENCE else None
    goals: PairGoals | None
    if target == PLACES and request.method.run_kind == "steered":
        found, rows = _find_places(request, score, clock), workspace.collection.find_pairs
        goals = replace(found, apart=tuple(rows(own, found.pairs) for own in request.apart))
    else:
        with clock.on("teacher"):
            goals = pair_goals(target, workspace.collection, workspace.partition.forget, score, before)
    return (goals.mrr if goals else resolve_target(target, before, compared)), goals


def _find_places(request: Request, score: Scorer, clock: Clock) -> Places:
    """Return the places of the forget pairs: those of an unfinished run, or by proxies, or estimated."""
    workspace = request.workspace
    if stored := request.checkpoints.stored(PLACES):
        return Places.of(workspace.partition.forget, stored)
    options, started = request.options, perf_counter()

    def out_of_time(_: float) -> bool:
        spent = clock.total + perf_counter() - started
        return workspace.runtime.processes.agree(spent >= 60 * (options.minutes or math.inf))

    with clock.on("proxies"):
        proxies = [*request.proxies] or gather_proxies(
            workspace,
            request.ranker,
            replace(request.base, place=_untrained(request)),
            options.seed,
            reference=request.reference,
            given=Path(options.proxies) if options.proxies else None,
            epochs=options.proxy_epochs,
            out_of_time=out_of_time if options.minutes is not None else None,
            record=request.record,
        )
    if not proxies:
        workspace.runtime.progress.say(
            "places are estimated, because the model that the ranker was trained from is not known or saw what is "
            f"removed: {request.base.warning or 'name it with --base'}"
        )
    with clock.on("teacher"):
        if not proxies:
            return estimate_places(workspace, score)
        asked = _with_kept(workspace, proxies)
        places = find_places(asked, request.ranker, score, proxies)
    for teacher in asked.teachers:
        teacher.save()
    return places


def _with_kept(workspace: Workspace, proxies: Sequence[Proxy]) -> Workspace:
    """Return the workspace with what the owner's kept state holds of prepared proxies, if it is used."""
    if not isinstance(workspace.cache, KeptState):
        return workspace
    for proxy in proxies:
        if proxy.source != "made":
            workspace.keep_vectors(proxy.ranker)
            workspace = workspace.with_teacher(proxy.ranker)
    return workspace


def _estimator(request: Request, task: Task) -> MrrEstimator | None:
    """Return the estimator of the forget MRR for a steered run; `None` for other runs."""
    if request.method.run_kind != "steered":
        return None
    workspace, sides = request.workspace, encoded_sides(request.ranker, request.options.freeze)
    return MrrEstimator(workspace.evaluator, task.teacher.scores, workspace.scorer(request.student), sides)


def clear(request: Request) -> Clearing:
    """Set the rows of the vocabulary that only removed texts touch, and hold them. Retraining never reads them."""
    workspace, record = request.workspace, request.record
    seed = record.seed if record and record.method == RETRAIN else request.options.seed
    recorded = request.base.is_named_by(record)
    clearing = find_clearing(request.ranker, workspace, _untrained(request), seed, recorded)
    never = request.method.start != "original"
    if never or request.options.saved_as == "adapter":
        how = NEVER_SEEN if never else ADAPTER
        return replace(clearing, how=how, values=(), moved=0) if clearing.record.rows else clearing
    if request.options.adapt is not None and clearing.moved:  # the tables are the original's until now
        own_weights(*(table for vocabulary in request.student.vocabularies for table in vocabulary.tables))
    request.shared.enter_context(clearing.held(request.student))
    return clearing


def _tell_of_rows_left(request: Request, clearing: Clearing) -> None:
    """Say before the run that some rows stay as they are."""
    if clearing.record.left and request.method.start == "original" and clearing.how != ADAPTER:
        why = request.base.warning or "name the model that it was trained from with --base"
        request.workspace.runtime.progress.say(
            f"{count(clearing.record.left, 'row')} of the vocabulary that only removed texts touch "
            f"could not be cleared ({clearing.how.partition(': ')[2]}): {why}"
        )


def _tell_before(request: Request, before: Scorecard, goal: float, goals: PairGoals | None) -> None:
    """Give the figures before the run to those who follow it."""
    for follower in followers(request.workspace.runtime.progress):
        placed = goals is not None and goals.pulls_up
        distance = goals.distance(before.pair_ranks) if goals and placed and before.pair_ranks is not None else None
        follower.before(Before(before.mrrs, goal, placed, distance))


def _untrained(request: Request) -> str | None:
    """Return the place of the base; `None` if its own record says that it was trained on what is removed."""
    place, workspace = request.base.place, request.workspace
    assert workspace.removal is not None
    return None if base_saw(place, workspace.collection, workspace.removal) else place
