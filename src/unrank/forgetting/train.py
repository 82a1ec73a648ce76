"""Training: a ranker from its base, and a forgotten ranker on the kept data to see what comes back."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.partition import make_partition, reserved_queries, whole_partition
from unrank.collection.removal import Removal
from unrank.engine.checkpoint import Cache, Checkpoint
from unrank.engine.loop import batches_of, fit, make_optimizer, step
from unrank.engine.memory import check_room
from unrank.engine.resume import ResumableRun
from unrank.engine.runtime import Device, Progress, Runtime
from unrank.engine.sharding import FLAG, check_shardable, gather, shard, sharded_runtime
from unrank.errors import UnrankError
from unrank.evaluation.scorecard import Scorecard
from unrank.forgetting.followed_lists import find_queries, follow_lists
from unrank.forgetting.kept_states import keep_states, knows_states, restore_states
from unrank.forgetting.options import change
from unrank.forgetting.previous_requests import hashed
from unrank.forgetting.progress import followers, journal_names, listening, recording
from unrank.forgetting.provenance import base_saw
from unrank.forgetting.save import save_ranker
from unrank.forgetting.validation import Base, fingerprint, remember_base
from unrank.forgetting.workspace import Clock, Workspace, check_given
from unrank.methods import make_method
from unrank.methods.base import Method
from unrank.methods.finetune import Finetune
from unrank.methods.ranking import learn
from unrank.methods.retrain import Retrain
from unrank.methods.watched import watched_plan
from unrank.rankers import create_ranker, public_name, ranker_kind
from unrank.rankers.base import Ranker
from unrank.rankers.layers import Layers, drop_frozen_states, keep_frozen_states, read_layers, train_layers_of
from unrank.record import RETRAIN, Check, Entries, LearningEpoch, Record, Recovery

TIMED_STEPS = 3
TIMED_TRIPLES = {"cpu": 8, "cuda": 256}
WARM_UP = {"cpu": 1, "cuda": 4}
"""Steps before the timed ones. On a GPU the first steps are recorded."""
MOST_READ = 100_000
"""The most pairs of the training lists whose texts are read once before training, if layers are frozen."""
RECOVERY = Finetune(learning_rate=3e-5, epochs=1, negatives=1)
"""The epoch on the kept data that shows what was hidden and not forgotten."""


@dataclass(frozen=True)
class Trained:
    """A trained ranker, its metrics and its record."""

    ranker: Ranker
    after: Scorecard
    record: Record

    def save(self, out: str | Path) -> None:
        save_ranker(self.ranker, self.record, Path(out))


@dataclass(frozen=True)
class TrainOptions:
    """How a ranker is trained."""

    method: Retrain | None = None
    """`None` for the recipe of the kind of ranker."""
    seed: int = 0
    device: Device = "auto"
    fast: bool = True
    """`False` leaves all passes to the encoder's own library."""
    reserve: bool = True
    """Leave some queries and documents out, so that there are training pairs that no ranker has seen."""
    train_layers: int | str | None = None
    """The layers that are trained, as `ForgetOptions` has them; `None` for all."""
    follow: Sequence[str] = ()
    """The ids of queries whose lists `unrank watch` shows; by default those of a few."""
    shard_weights: bool = False
    """Let each of several processes hold a part of a decoder's layers (`engine/sharding.py`)."""


def train(
    collection: Collection,
    kind: str,
    base: str | None = None,
    removal: Removal | None = None,
    *,
    options: TrainOptions | None = None,
    progress: Progress | None = None,
    run: ResumableRun | None = None,
    cache: Cache | None = None,
    **changes: Any,
) -> Trained:
    """Train a ranker on a collection; with a removal, on the kept pairs alone.

    `changes` are fields of `TrainOptions`, such as `method`, `seed`, `device`, `reserve` and `train_layers`.
    `progress` shows how far the training is; by default it is a bar, if standard error is a terminal. `run` writes
    checkpoints. `cache` holds the tokens of earlier jobs, and keeps those of this one.
    """
    check_given(collection, removal)
    options = change(options or TrainOptions(), changes, "train")
    check_sharded(options, ranker_kind(kind))
    layers = read_layers(str(options.train_layers)) if options.train_layers is not None else None
    recipe = Recipe(options.method or recipe_of(ranker_kind(kind)), layers)
    partition = whole_partition(collection, options.reserve)
    if removal is not None:
        partition = make_partition(collection, removal, reserve=options.reserve)
    if removal is not None and base_saw(base, collection, removal):
        raise UnrankError(f"{base} was trained on what is removed, as its record says: name another base")
    ranker = create_ranker(kind, base, options.seed, options.fast)
    run = run or ResumableRun()
    reserved = len(reserved_queries(collection)) if options.reserve else 0
    more = {"reserved": reserved, **({} if layers is None else {"train_layers": layers})}
    more |= {"shard_weights": True} if options.shard_weights else {}
    run.claim(lambda: fingerprint("train", ranker, collection, removal, recipe.method, options.seed, more))
    find_queries(collection, options.follow)
    about = {"method": recipe.method.name, "ranker": ranker.kind, **journal_names(collection)}
    with listening(progress) as shown, recording(shown, run, "train", **about) as listener:
        if options.shard_weights:
            shard(ranker, Runtime.on(options.device))
        workspace = Workspace.open(ranker, collection, partition, options.device, listener, cache=cache)
        workspace = replace(workspace, removal=removal)
        if options.shard_weights:
            workspace = replace(workspace, runtime=sharded_runtime(workspace.runtime, ranker))
        named = Base(public_name(kind, base), remember_base(ranker.kind, base))
        trained = _train_in(workspace, ranker, named, recipe, options, run)
    if options.shard_weights:
        trained = replace(trained, ranker=create_ranker(kind, base, options.seed, options.fast))
        gather(ranker, trained.ranker)
    return replace(trained, record=replace(trained.record, reserved=reserved))


def check_sharded(options: TrainOptions, kind: str) -> None:
    """Refuse to shard the weights of a ranker or with options for which that is not possible."""
    if not options.shard_weights:
        return
    if options.train_layers is not None:
        raise UnrankError(f"{FLAG} trains all layers: leave out {FLAG}, or --train-layers")
    check_shardable(kind, options.device)


def _train_in(
    workspace: Workspace, ranker: Ranker, base: Base, recipe: Recipe, options: TrainOptions, run: ResumableRun
) -> Trained:
    runtime, collection, clock = workspace.runtime, workspace.collection, Clock(workspace.runtime)
    check_room(ranker, runtime.device, copies=1, few=recipe.layers is not None)
    with clock.on("frozen layers"):
        recipe.freeze(ranker, workspace)
    checkpoints = ResumableRun() if options.shard_weights else run  # none are written of sharded weights
    history = run_training(ranker, workspace, recipe.method, options.seed, clock, checkpoints, options.follow)
    after = workspace.scorecard(ranker)
    if recipe.layers is not None:
        drop_frozen_states(ranker.requires_grad_(True))
    workspace.store.save(runtime.progress.say)
    record = Record(
        ranker=ranker.kind,
        base=base.name,
        base_digest=base.digest,
        method=recipe.method.name,
        settings=recipe.settings,
        seed=options.seed,
        collection=collection.named,
        epochs=len(history),
        seconds=clock.total,
        timing=clock.seconds,
        learning_epoch=LearningEpoch(sum(check.seconds for check in history) / len(history), "measured", runtime.name),
        device=runtime.name,
        deterministic=runtime.deterministic,
        after=after.summary,
        set_queries=workspace.evaluator.set_queries,
        removed=hashed(workspace.removal) if workspace.removal is not None else None,
        entries=None if (entries := workspace.entries(ranker)) is None else Entries(entries),
        history=tuple(history),
    )
    return Trained(ranker, after, record)


def recipe_of(kind: str, settings: Mapping[str, str] | None = None) -> Retrain:
    """Return the training method that suits a kind of ranker, with these settings changed."""
    return cast("Retrain", make_method(RETRAIN, settings, kind))


@dataclass(frozen=True)
class Recipe:
    """How a ranker is trained: the method, and the layers that move."""

    method: Retrain
    layers: Layers | None = None
    """`None` for all."""

    @classmethod
    def of(cls, kind: str, record: Record | None) -> Recipe:
        """Return how the ranker of a record was trained; the recipe of its kind if the record does not say.

        Steps are no larger than those of that recipe, and there are no more negatives: a record may be a stranger's.
        """
        own = recipe_of(kind)
        if record is None or record.method != RETRAIN or record.ranker != kind:
            return cls(own)
        given = {name: str(value) for name, value in record.settings.items()}
        try:
            layers = given.pop("train_layers", None)
            method = recipe_of(kind, given)
            most = {name: min(getattr(method, name), getattr(own, name)) for name in ("batch", "negatives", "together")}
            return cls(replace(method, **most), None if layers is None else read_layers(layers))
        except UnrankError:  # settings of another version
            return cls(own)

    @property
    def settings(self) -> dict[str, Any]:
        """Its settings, as records have them."""
        return asdict(self.method) | ({} if self.layers is None else {"train_layers": self.layers})

    def freeze(self, ranker: Ranker, workspace: Workspace) -> None:
        """Freeze the layers that do not move, and compute their states once per text.

        A step that lacks the states of one text computes those of others again. So they are computed before it, if the
        texts are few and stand alone.
        """
        if self.layers is None:
            return
        train_layers_of(ranker, self.layers)
        keep_frozen_states(ranker)
        restore_states(workspace, ranker)
        lists = workspace.collection.list_pairs(np.unique(workspace.partition.retain[:, 0]))
        on_cpu = workspace.runtime.device.type == "cpu"
        if not (on_cpu and ranker.keeps_states and ranker.separable and len(lists) <= MOST_READ):
            return
        if not knows_states(workspace, ranker, lists):
            workspace.scorer(ranker)(lists)
            keep_states(workspace, ranker)


@dataclass
class Lessons:
    """The history of a training, one line for each epoch."""

    history: list[Check] = field(default_factory=list)

    def state(self) -> Checkpoint:
        return Checkpoint({"history": [check.to_json() for check in self.history]})

    def restore(self, state: Checkpoint) -> None:
        self.history = Check.of_json(state.facts["history"])


def run_training(
    ranker: Ranker,
    workspace: Workspace,
    method: Method,
    seed: int,
    clock: Clock,
    run: ResumableRun | None = None,
    follow: Sequence[str] = (),
) -> list[Check]:
    """Train a ranker in place until enough is learned, and return the history.

    `follow` are the ids of queries whose lists the journal holds; without any it holds those of a few.
    """
    fixed = workspace.fixed_pairs()
    lessons = Lessons()
    schedule = method.schedule(seed)
    plan = watched_plan(method, workspace.task(ranker))
    lists = follow_lists(workspace, ranker, np.unique(fixed[:, 0]), follow)
    for follower in followers(workspace.runtime.progress):
        follower.plan(method.epochs, exact=False)
    for interval in fit(ranker, plan, schedule, workspace.store, workspace.runtime, run, lessons=lessons, clock=clock):
        clock.add("steps", interval.seconds)
        with clock.on("checks"):
            score = workspace.scorer(ranker)
            learned = workspace.evaluator.mrr(lists.listening(score) if lists else score, fixed)
        epoch = round(interval.epochs)
        lessons.history.append(Check(epoch, interval.seconds, learned, losses=interval.losses, steps=interval.steps))
        for follower in followers(workspace.runtime.progress):
            follower.check(lessons.history[-1])
        if lists is not None:
            lists.check()
        workspace.runtime.progress.say(f"epoch {epoch}: MRR {learned:.3f} on training queries")
        workspace.runtime.progress.done(epoch / method.epochs)
        if method.has_learned(learned):
            break
    return lessons.history


def estimate_learning_epoch(ranker: Ranker, workspace: Workspace) -> LearningEpoch:
    """Return the time of one epoch of training, from a few steps of a copy; for a ranker trained elsewhere."""
    method = recipe_of(ranker.kind)
    student = copy.deepcopy(ranker)
    optimizer = make_optimizer(student, 0.0, workspace.runtime)
    generator, device = np.random.default_rng(0), workspace.runtime.device.type
    size, warm_up = TIMED_TRIPLES[device], WARM_UP[device]
    wanted = -(-(TIMED_STEPS + warm_up) * size // method.negatives)
    kept = workspace.partition.retain[generator.integers(len(workspace.partition.retain), size=wanted)]
    phase = learn(workspace.task(ranker), kept, method.negatives, size, method.together)
    drawn = phase.draw(generator, 1)
    clock = Clock(workspace.runtime)
    timed = 0
    with student.repeated_steps():
        for number, batch in enumerate(batches_of(phase, len(drawn), generator)):
            with clock.on("steps" if number >= warm_up else "warm-up"):
                step(student, phase, drawn.take(batch), optimizer, workspace.store, workspace.runtime)
            timed += len(batch) if number >= warm_up else 0
    triples = method.negatives * len(workspace.collection.pairs)
    seconds = clock.seconds["steps"] * triples / timed
    return LearningEpoch(seconds, f"timed on {TIMED_STEPS} steps", workspace.runtime.name)


def recovery(ranker: Ranker, before: float, reference: Ranker | None, workspace: Workspace, seed: int) -> Recovery:
    """Train copies of a ranker and its reference for one epoch on the kept data; `before` is the forget MRR now."""
    after = recover(ranker, workspace, seed)
    if reference is None:
        return Recovery(before, after)
    reference_before = workspace.evaluator.forget_mrr(workspace.scorer(reference.to(workspace.runtime.device)))
    return Recovery(before, after, reference_before, recover(reference, workspace, seed))


def recover(ranker: Ranker, workspace: Workspace, seed: int) -> float:
    """Return the forget MRR after the epoch."""
    student = trainable_copy(ranker, workspace)
    train_on_kept(student, workspace, seed)
    return workspace.evaluator.forget_mrr(workspace.scorer(student))


def trainable_copy(ranker: Ranker, workspace: Workspace) -> Ranker:
    """Return a copy of a ranker whose weights are all trainable."""
    student = copy.deepcopy(ranker).to(workspace.runtime.device)
    for weight in student.parameters():
        weight.requires_grad_(True)
    return student


def train_on_kept(student: Ranker, workspace: Workspace, seed: int, recipe: Finetune = RECOVERY) -> None:
    """Train a ranker in place on the kept data."""
    schedule = recipe.schedule(seed)
    for _ in fit(student, recipe.plan(workspace.task(student)), schedule, workspace.store, workspace.runtime):
        pass
