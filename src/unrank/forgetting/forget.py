"""Forgetting: run a method from the original until the forget MRR is at the target, land on it, and measure all.

The original is never changed. A method that cannot reach the target within its budget keeps its best model and says so.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from unrank.collection.collection import Collection
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal
from unrank.engine.checkpoint import Cache
from unrank.engine.resume import ResumableRun
from unrank.engine.runtime import Device, Progress
from unrank.evaluation.scorecard import MOST_QUERIES, Scorecard
from unrank.forgetting.clock import Clock
from unrank.forgetting.earlier import all_of, earlier_runs, is_fulfilled
from unrank.forgetting.freezing import Freeze, check_freeze, encoded_sides, freeze_side, index_stays_valid, keep_frozen
from unrank.forgetting.hashes import hashed
from unrank.forgetting.identity import identity, removal_hash, weights_hash
from unrank.forgetting.mrr_estimator import MrrEstimator
from unrank.forgetting.recovery import recovery
from unrank.forgetting.run import Outcome, Pace, run_method
from unrank.forgetting.save import save_ranker
from unrank.forgetting.stand import Standing
from unrank.forgetting.start import check_request, find_base, make_student
from unrank.forgetting.target import OF_REFERENCE, resolve_target
from unrank.forgetting.train import estimate_learning_epoch
from unrank.forgetting.workspace import Workspace
from unrank.methods import make_method
from unrank.methods.base import Method
from unrank.rankers import base_hash, public_name
from unrank.rankers.base import Ranker
from unrank.rankers.layers import Layers, release, sharing_frozen_states, train_layers_of
from unrank.record import CollectionName, Record, measured_epoch, requests_of, shares_kept


@dataclass(frozen=True)
class Forgotten:
    """A ranker that has forgotten, and what shows it."""

    ranker: Ranker
    before: Scorecard
    after: Scorecard
    target: float
    reached: bool
    record: Record
    fulfilled: bool = False
    """Whether all of it had been forgotten by an earlier run, so that nothing was done."""

    @property
    def kept(self) -> dict[str, float]:
        """What the entangled, disjoint and test sets have left of their MRR before."""
        return shares_kept(self.before.mrrs, self.after.mrrs)

    @property
    def came_back(self) -> bool:
        """Whether what was forgotten before has risen again."""
        return self.record.earlier is not None and self.record.earlier.came_back

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
    reference: Ranker | None = None,
    record: Record | None = None,
    before: Scorecard | None = None,
    train_layers: Layers | None = None,
    freeze: Freeze | None = None,
    pace: Pace | None = None,
    check_recovery: bool = False,
    measure: int = MOST_QUERIES,
    seed: int = 0,
    device: Device = "auto",
    progress: Progress | None = None,
    run: ResumableRun | None = None,
    cache: Cache | None = None,
) -> Forgotten:
    """Make a copy of a ranker that has forgotten, to the degree that the target says.

    `base` is what the ranker was trained from, for methods that ask for it; `reference` a ranker that never saw what is
    removed; `record` the record of the ranker, if unrank made it: what it forgot before stays forgotten; `before` what
    the ranker measures on this very removal, if that is known; `train_layers` which layers of the encoder may move,
    if not all; `freeze="documents"` lets queries alone move, so that stored document vectors stay valid; `pace` how
    closely the run is watched and how long it may take; `measure` how many queries of each kept set are measured before
    and after, 0 for all; `run` is kept as it goes on; `cache` holds what earlier jobs have read and scored, and will
    hold what this one does.
    """
    method = make_method(method, ranker=ranker.kind) if isinstance(method, str) else method
    check_freeze(freeze, ranker, method)
    pace = pace or Pace()
    runs = earlier_runs(collection, record)
    earlier = all_of(runs)
    partition = make_partition(collection, removal, earlier=earlier)
    check_request(ranker, reference, method, target, pace, collection, partition)
    base = find_base(ranker, method, base, record)
    student = make_student(ranker, method, base, seed)
    run = run or ResumableRun()
    run.claim(
        lambda: identity(
            *("forget", ranker, collection, removal, method, seed),
            base=base_hash(ranker.kind, base) if method.needs_base else None,
            target=str(target),
            reference=weights_hash(reference) if reference is not None else None,
            earlier=removal_hash(earlier),
            train_layers=train_layers,
            freeze=freeze,
            **asdict(pace),
            measure=measure,
        )
    )
    freeze_side(student, freeze)
    if train_layers is not None:
        train_layers_of(student, train_layers)
    workspace = Workspace.open(ranker, collection, partition, device, progress, measure, cache)
    student.to(workspace.runtime.device)
    an_epoch = measured_epoch(record, collection.fingerprint, workspace.runtime.name)
    an_epoch = an_epoch or estimate_learning_epoch(ranker, workspace)
    keep_frozen(workspace.store, ranker, student, freeze)
    clock = Clock(workspace.runtime)
    with clock.on("teacher"):
        task = workspace.task(ranker, base, seed)
        standing = Standing.of(task.teacher.scores, runs, workspace)
        task = replace(task, partition=standing.with_risen(partition, collection))
    with sharing_frozen_states(ranker, student) if method.start == "original" else nullcontext():
        with clock.on("teacher"):
            estimator = (
                MrrEstimator(
                    workspace.evaluator, task.teacher.scores, workspace.scorer(student), encoded_sides(ranker, freeze)
                )
                if method.run_kind == "steered"
                else None
            )
            method.prepare(task)
        before = before or workspace.evaluator.scorecard(task.teacher.scores)
        assert before.forget is not None
        goal = resolve_target(target, before, _scorecard(reference, workspace) if target in OF_REFERENCE else None)
        fulfilled = is_fulfilled(collection, partition, runs, method, str(target), goal, before.forget)
        if method.run_kind == "training":
            clock = Clock(workspace.runtime)  # it asks no teacher
        if fulfilled:
            student, outcome = copy.deepcopy(ranker), Outcome(reached=True)
        else:
            outcome = run_method(
                method, task, estimator, student, workspace, goal, before.forget.mean, pace, seed, clock, run
            )
        after = workspace.evaluator.scorecard(workspace.scorer(student)) if outcome.history else before
        stands = Standing.of(workspace.scorer(student), runs, workspace) if outcome.history else standing
        outcome = outcome.confirmed(goal, after)
    release(student, ranker)
    task.teacher.save()
    workspace.store.save(workspace.runtime.progress.say)
    assert after.forget is not None
    recovered = recovery(student, after.forget.mean, reference, workspace, seed) if check_recovery else None
    chosen = {"train_layers": train_layers, "freeze": freeze}
    settings = asdict(method) | {name: value for name, value in chosen.items() if value is not None}
    made = Record(
        ranker=ranker.kind,
        base=public_name(ranker.kind, base) if base else None,
        method=record.method if fulfilled and record else method.name,
        settings=record.settings if fulfilled and record else settings,
        seed=seed,
        collection=CollectionName(collection.name, collection.fingerprint),
        target=goal,
        target_name=str(target),
        reached=outcome.reached,
        epochs=outcome.epochs,
        seconds=clock.total,
        timing=clock.seconds,
        learning_epoch=an_epoch,
        landing=outcome.landing,
        device=workspace.runtime.name,
        deterministic=workspace.runtime.deterministic,
        index_valid=index_stays_valid(ranker, freeze, moved=bool(outcome.history)),
        before=before.summary,
        after=after.summary,
        set_queries=workspace.evaluator.set_queries,
        removed=hashed(removal),
        removed_before=requests_of(record),
        earlier=standing.then(stands),
        recovery=recovered,
        history=tuple(outcome.history),
    )
    return Forgotten(student, before, after, goal, outcome.reached is not False, made, fulfilled)


def _scorecard(ranker: Ranker | None, workspace: Workspace) -> Scorecard:
    assert ranker is not None
    return workspace.evaluator.scorecard(workspace.scorer(ranker.to(workspace.runtime.device)))
