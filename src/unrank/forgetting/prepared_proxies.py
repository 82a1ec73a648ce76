"""Prepared proxies: several that are trained once, each without one fold of the queries and of the documents.

A later request finds some that never saw it. A proxy that did see it remembers it, until it is deleted or trained again
without it. A folder of proxies must never ship with a ranker.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.folds import fold_partition
from unrank.collection.partition import reserved_queries, whole_partition
from unrank.collection.removal import Removal
from unrank.disk import follows
from unrank.engine.checkpoint import Cache
from unrank.engine.kept import KeptState
from unrank.engine.runtime import Device, Progress
from unrank.errors import UnrankError, count
from unrank.evaluation.scorecard import Evaluator
from unrank.forgetting.kept_states import keep_states
from unrank.forgetting.previous_requests import hashed, not_recognised, previous_removals, union, was_trained_on
from unrank.forgetting.progress import listening
from unrank.forgetting.provenance import base_record
from unrank.forgetting.proxies import (
    LONGER,
    check_sealed,
    proxies_key,
    proxy_recipe,
    read_proxy,
    remember_proxies,
    train_proxy,
    untrained,
)
from unrank.forgetting.train import MOST_READ, Recipe, Trained
from unrank.forgetting.validation import Base, remember_base
from unrank.forgetting.workspace import FEW_QUERIES, Clock, Workspace, usual_measure
from unrank.methods.task import Negatives
from unrank.rankers import load_ranker
from unrank.rankers.base import Ranker
from unrank.rankers.layers import drop_frozen_states
from unrank.record import RETRAIN, HeldOut, LearningEpoch, Record, reserved_in

FOLDS = 8
REPLACED = "replaced"
"""The purpose, in the times of a record, of the training of earlier proxies that this one replaces."""


@dataclass(frozen=True)
class ProxyOptions:
    """How proxies are prepared."""

    count: int = FOLDS
    epochs: int = LONGER
    seed: int = 0
    device: Device = "auto"
    rebuild: bool = False
    """Train proxies again that saw what the ranker has forgotten since, without it."""

    @property
    def folds(self) -> range:
        return range(1, self.count + 1)

    def __post_init__(self) -> None:
        if self.count < 2 or self.epochs < 1:
            raise UnrankError(f"{self.count} proxies of {self.epochs} epochs: give 2 or more, of 1 epoch or more")


@dataclass(frozen=True)
class Prepared:
    """The proxies that one command made, trained again and left as they are, by their folds, and the time it took."""

    made: list[int]
    rebuilt: list[int]
    kept: list[int]
    seconds: float


def prepare_proxies(
    ranker: Ranker,
    collection: Collection,
    out: Path,
    base: Base,
    *,
    record: Record | None = None,
    options: ProxyOptions | None = None,
    progress: Progress | None = None,
    cache: Cache | None = None,
) -> Prepared:
    """Train the proxies of a ranker that are not in a folder yet, each without what the ranker's record has forgotten.

    `base` is the model that the ranker was trained from. Proxies that saw what the ranker has forgotten since are
    trained again if the options say so, and refused otherwise.
    """
    options = options or ProxyOptions()
    check_count(options.count, collection)
    check_base_unseen(base, collection)
    base = replace(base, digest=base.digest or remember_base(ranker.kind, base.place))
    removal = union(previous_removals(collection, record))
    there = {fold: place for fold in options.folds if (place := out / f"proxy-{fold}").exists()}
    stale = [
        fold
        for fold, place in there.items()
        if is_stale(place, ranker, base, collection, removal, HeldOut(options.count, fold, options.seed))
    ]
    if stale and not options.rebuild:
        raise UnrankError(
            f"{out}: {len(stale)} of {count(options.count, 'proxy')} of another collection, or trained on what the "
            "ranker has forgotten since: give --rebuild to train again"
        )
    made = [fold for fold in options.folds if fold not in there]
    with listening(progress) as listener:
        if isinstance(cache, KeptState):
            cache = cache.leaving_out(collection, removal)
        workspace = Workspace.open(ranker, collection, None, options.device, listener, FEW_QUERIES, cache)
        workspace = replace(workspace, removal=removal or None)
        if warning := not_recognised(record):
            workspace.runtime.progress.say(warning)
        recipe = proxy_recipe(ranker.kind, record, options.epochs)
        keep_for_requests(workspace, ranker, recipe, record)
        folds = [(HeldOut(options.count, fold, options.seed), out / f"proxy-{fold}") for fold in (*made, *stale)]
        seconds = sum(_make(workspace, ranker, base, recipe, *fold) for fold in folds)
        if isinstance(cache, KeptState):
            for fold in there.keys() - {*stale}:
                proxy = load_ranker(there[fold], ranker.fast).to(workspace.runtime.device)
                keep_for_requests(workspace, proxy, recipe)
        workspace.store.save(workspace.runtime.progress.say)
    remember_proxies(proxies_key(ranker.kind, base.digest, collection.fingerprint), out)
    return Prepared(made, stale, [fold for fold in there if fold not in stale], seconds)


def keep_for_requests(workspace: Workspace, ranker: Ranker, recipe: Recipe, record: Record | None = None) -> None:
    """Compute what later requests need of a ranker, if the owner's kept state is used.

    Of the original, whose `record` is given, that are its scores of the lists that a scorecard measures. Of a proxy,
    those of the reserved queries' lists; or of all lists, if their texts are few and have vectors of their own. The
    layers that `recipe` freezes are those of the base in all of them: their states are computed once.
    """
    if not isinstance(workspace.cache, KeptState):
        return
    collection, device = workspace.collection, workspace.runtime.device.type
    reserved = reserved_queries(collection)
    workspace.keep_vectors(ranker)
    if not ranker.keeps_states:
        recipe.freeze(ranker, workspace)
    if record is not None:
        whole = whole_partition(collection, bool(reserved_in(record, collection.fingerprint)))
        most = usual_measure(ranker, "cuda" if device == "cuda" else "cpu")
        queries = np.union1d(reserved, Evaluator(collection, whole, most).queries)
    else:
        queries = np.arange(len(collection.queries))
        many = len(collection.list_pairs(queries)) > MOST_READ
        queries = reserved if many or not workspace.store.would_keep_vectors(ranker) else queries
    teacher = workspace.teacher(ranker, workspace.cache)
    teacher.scores(collection.list_pairs(queries))
    teacher.save()
    keep_states(workspace, ranker)
    workspace.store.save(workspace.runtime.progress.say)
    if recipe.layers is not None:
        drop_frozen_states(ranker.requires_grad_(True))


def check_count(folds: int, collection: Collection) -> None:
    """Refuse more folds than there are queries and documents to divide: some would hold out nothing."""
    most = len(collection.training_queries) + len(collection.documents)
    if folds > most:
        here = f"{collection.folder} has {most:,} training queries and documents in all"
        raise UnrankError(f"{count(folds, 'proxy')}: {here}, so some would hold out nothing: choose fewer")


def check_base_unseen(base: Base, collection: Collection) -> None:
    """Refuse a base that was itself trained on the collection: nothing that starts from it has never seen a part."""
    known = base_record(base.place) if base.place else None
    if known is not None and known.collection.fingerprint == collection.fingerprint:
        raise UnrankError(f"{base.place} was trained on this collection, as its record says: name another --base")


def is_stale(place: Path, ranker: Ranker, base: Base, collection: Collection, removal: Removal, held: HeldOut) -> bool:
    """Return whether a proxy must be trained again; refuse a folder that holds another one, or a changed one."""
    record = read_proxy(place, ranker.kind, base.digest, None)
    check_sealed(place)
    if record.held_out != held:
        raise UnrankError(
            f"{place}: holds out {record.held_out}, not {held}: give its --count and --seed, or another --out"
        )
    if record.collection.fingerprint != collection.fingerprint:
        return True
    return bool(removal) and was_trained_on(collection, record, removal) is not False


def _make(workspace: Workspace, ranker: Ranker, base: Base, recipe: Recipe, held: HeldOut, place: Path) -> float:
    """Train the proxy of one fold, and write it in place of an earlier one; return the seconds that it took."""
    earlier = Record.read(place)
    proxy = train_without(workspace, ranker, base, recipe, held)
    seconds = proxy.record.seconds
    if earlier is not None:
        timing = {**proxy.record.timing, REPLACED: earlier.seconds}
        proxy = replace(proxy, record=replace(proxy.record, timing=timing, seconds=seconds + earlier.seconds))
        if not follows():
            rmtree(place)
    proxy.save(place)
    keep_for_requests(workspace, proxy.ranker, recipe)
    workspace.runtime.progress.say(f"proxy {held.fold} of {held.folds}: {seconds:.1f} s")
    return seconds


def train_without(workspace: Workspace, ranker: Ranker, base: Base, recipe: Recipe, held: HeldOut) -> Trained:
    """Train a proxy on everything but a fold, the reserved queries, and what the ranker has forgotten before."""
    runtime, collection, seed = workspace.runtime, workspace.collection, held.seed + held.fold
    partition = fold_partition(collection, held, workspace.removal or Removal())
    if not Negatives(collection, partition.no_negatives).are_left(partition.retain[:, 0]):
        raise UnrankError(f"no negative is left without fold {held.fold} of {held.folds}: the collection is too small")
    proxy, clock = untrained(ranker, base.place, seed), Clock(runtime)
    with clock.on("steps"):
        history = train_proxy(proxy, workspace, partition, seed, recipe)
    with clock.on("checks"):
        evaluator = Evaluator(collection, partition, FEW_QUERIES)
        after = evaluator.scorecard(workspace.scorer(proxy))
    record = Record(
        ranker=ranker.kind,
        base=base.name,
        base_digest=base.digest,
        method=RETRAIN,
        settings=recipe.settings,
        seed=seed,
        collection=collection.named,
        epochs=len(history),
        seconds=clock.total,
        timing=clock.seconds,
        learning_epoch=LearningEpoch(clock.seconds["steps"] / len(history), "measured", runtime.name),
        device=runtime.name,
        deterministic=runtime.deterministic,
        after=after.summary,
        set_queries=evaluator.set_queries,
        removed=hashed(workspace.removal) if workspace.removal else None,
        reserved=len(reserved_queries(collection)),
        held_out=held,
        history=tuple(history),
    )
    return Trained(proxy, after, record)
