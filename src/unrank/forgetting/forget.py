"""Forgetting: run a method from the original until the forget MRR is at the target, land on it, and measure all.

The original is never changed. A method that cannot reach the target within its budget keeps its best model and says so.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.partition import Partition, named, partition
from unrank.collection.removal import Removal
from unrank.engine.runtime import Device, Progress
from unrank.errors import BadFile, UnrankError
from unrank.evaluation.scorecard import Measured, Scorecard
from unrank.forgetting.clock import Clock
from unrank.forgetting.freezing import Freeze, check_freeze, freeze_side, index_stays_valid, keep_frozen
from unrank.forgetting.record import Record, hashed, recognised, removed_before, save_ranker
from unrank.forgetting.recovery import recovery
from unrank.forgetting.run import Outcome, Pace, run_method
from unrank.forgetting.target import OF_REFERENCE, check_target, resolve_target, tolerance
from unrank.forgetting.train import estimate_learning_epoch
from unrank.forgetting.workshop import Workshop
from unrank.methods import make_method
from unrank.methods.base import Method
from unrank.methods.retrain import Retrain
from unrank.rankers import create_ranker, public_name
from unrank.rankers.base import Ranker
from unrank.rankers.layers import Layers, release, sharing_frozen_start, train_layers_of

KEPT = ("entangled", "disjoint", "test")


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
    reference: Ranker | None = None,
    known: Mapping[str, Any] | None = None,
    train_layers: Layers | None = None,
    freeze: Freeze | None = None,
    pace: Pace | None = None,
    check_recovery: bool = False,
    seed: int = 0,
    device: Device = "auto",
    progress: Progress | None = None,
) -> Forgotten:
    """Make a copy of a ranker that has forgotten, to the degree that the target says.

    `base` is what the ranker was trained from, for methods that ask for it; `reference` a ranker that never saw what is
    removed; `known` the record of the ranker, if unrank made it: what it forgot before stays forgotten; `train_layers`
    which layers of the encoder may move, if not all; `freeze="documents"` lets queries alone move, so that stored
    document vectors stay valid; `pace` how closely the run is watched and how long it may take.
    """
    method = make_method(method, ranker=ranker.kind) if isinstance(method, str) else method
    check_freeze(freeze, ranker, method)
    known, pace = known or {}, pace or Pace()
    before_now = removed_before(known)
    earlier = recognised(collection, before_now)
    parts = partition(collection, removal, earlier=earlier)
    _check(ranker, reference, method, target, pace, collection, parts)
    base = _base(ranker, method, base, known)
    student = _start(ranker, method, base, seed)
    freeze_side(student, freeze)
    if train_layers is not None:
        train_layers_of(student, train_layers)
    workshop = Workshop.open(ranker, collection, parts, device, progress)
    student.to(workshop.runtime.device)
    an_epoch = _learning_epoch(known, ranker, workshop)
    keep_frozen(workshop.store, ranker, student, freeze)
    task, clock = workshop.task(ranker, base, seed), Clock(workshop.runtime)
    with sharing_frozen_start(ranker, student) if method.start == "original" else nullcontext():
        with clock.on("teacher"):
            before = workshop.judge.scorecard(task.teacher.scores)
        assert before.forget is not None
        goal = resolve_target(target, before, _scorecard(reference, workshop) if target in OF_REFERENCE else None)
        fulfilled = _is_fulfilled(collection, parts, earlier, known, str(target), goal, before.forget)
        if isinstance(method, Retrain):
            clock = Clock(workshop.runtime)  # it asks no teacher
        if fulfilled:
            student, outcome = copy.deepcopy(ranker), Outcome(reached=True)
        else:
            outcome = run_method(method, student, task, workshop, goal, before.forget.mean, pace, seed, clock)
        after = workshop.judge.scorecard(workshop.scorer(student)) if outcome.history else before
    release(student, ranker)
    recovered = recovery(student, reference, workshop, seed) if check_recovery else None
    chosen = {"train_layers": train_layers, "freeze": freeze}
    settings = asdict(method) | {name: value for name, value in chosen.items() if value is not None}
    record = Record(
        ranker=ranker.kind,
        base=public_name(ranker.kind, base) if base else None,
        method=method.name,
        settings=settings,
        seed=seed,
        collection={"name": collection.name, "fingerprint": collection.fingerprint},
        target=goal,
        target_name=str(target),
        reached=outcome.reached,
        epochs=outcome.epochs,
        seconds=clock.total,
        timing=clock.seconds,
        learning_epoch=an_epoch,
        landing=asdict(outcome.landing) if outcome.landing else None,
        device=workshop.runtime.name,
        index_valid=index_stays_valid(ranker, freeze, moved=bool(outcome.history)),
        before=before.to_json(),
        after=after.to_json(),
        removed=hashed(removal),
        removed_before=before_now,
        earlier=_earlier(ranker, student, workshop),
        recovery=asdict(recovered) if recovered else None,
        history=outcome.history,
    )
    return Forgotten(student, before, after, goal, outcome.reached is not False, record, fulfilled)


def _check(
    ranker: Ranker,
    reference: Ranker | None,
    method: Method,
    target: float | str,
    pace: Pace,
    collection: Collection,
    parts: Partition,
) -> None:
    """Refuse what cannot be, before any work is done for it."""
    check_target(target, collection, parts, reference is not None)
    if reference is not None and reference.kind != ranker.kind:
        raise UnrankError(f"the reference is a {reference.kind}, the ranker a {ranker.kind}: they cannot be compared")
    if not method.steered and (pace.check_every or pace.minutes):
        raise UnrankError(f"{method.name} has no target to be steered to: it takes no --check-every and no --minutes")


def _base(ranker: Ranker, method: Method, given: str | None, known: Mapping[str, Any]) -> str | None:
    """What the ranker was trained from: as it was given, or else as its record names it."""
    if given or not method.needs_base:
        return given or known.get("base")
    needed = f"{method.name} needs the model that the ranker was trained from"
    if not (recorded := known.get("base")):
        raise UnrankError(f"{needed}: name it with --base")
    try:
        create_ranker(ranker.kind, recorded, 0)
    except BadFile as error:
        raise UnrankError(
            f"{needed}; {recorded!r}, as its record calls it, is not here: say where with --base"
        ) from error
    return str(recorded)


def _start(ranker: Ranker, method: Method, base: str | None, seed: int) -> Ranker:
    """The model that a method begins with."""
    return copy.deepcopy(ranker) if method.start == "original" else create_ranker(ranker.kind, base, seed)


def _learning_epoch(known: Mapping[str, Any], ranker: Ranker, workshop: Workshop) -> dict[str, Any]:
    """What an epoch of training takes: as it was measured on this collection and device, or timed anew."""
    measured: dict[str, Any] = known.get("learning_epoch") or {}
    same = known.get("collection", {}).get("fingerprint") == workshop.collection.fingerprint
    if same and measured.get("device") == workshop.runtime.name:
        return measured
    return estimate_learning_epoch(ranker, workshop)


def _scorecard(ranker: Ranker | None, workshop: Workshop) -> Scorecard:
    assert ranker is not None
    return workshop.judge.scorecard(workshop.scorer(ranker.to(workshop.runtime.device)))


def _is_fulfilled(
    collection: Collection,
    parts: Partition,
    earlier: Removal,
    known: Mapping[str, Any],
    target: str,
    goal: float,
    now: Measured,
) -> bool:
    """Whether every pair to forget was forgotten before, to the degree that is asked for now: a target that goes by the
    ranker's own MRR is the one that it was brought to."""
    gone = collection.pairs[named(collection, earlier)[0]]
    if not np.isin(collection.pair_keys(parts.forget), collection.pair_keys(gone)).all():
        return False
    if known.get("target_name") == target:
        goal = max(goal, known["target"])
    return known.get("method") == "retrain" or now.mean <= goal + tolerance(len(now.queries))


def _earlier(original: Ranker, student: Ranker, workshop: Workshop) -> dict[str, float | None] | None:
    """What was forgotten before must have stayed so."""
    if not len(workshop.parts.earlier):
        return None
    rankers = {"before": original, "after": student}
    return {when: workshop.judge.earlier_mrr(workshop.scorer(ranker)) for when, ranker in rankers.items()}
