"""The workspace: everything that a job on one collection and one removal needs, made once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import torch

from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition, make_partition
from unrank.collection.removal import Removal
from unrank.collection.texts import hashed_order
from unrank.engine.checkpoint import Cache, Checkpoint
from unrank.engine.kept import KeptState
from unrank.engine.runtime import Device, Progress, Runtime
from unrank.engine.scoring import scores_of
from unrank.engine.teacher import Teacher
from unrank.engine.tokens import TokenStore
from unrank.errors import UnrankError
from unrank.evaluation.scorecard import MOST_QUERIES, Evaluator, Scorecard, Scorer
from unrank.forgetting.previous_requests import PreviousRemoval, not_recognised, previous_removals, union
from unrank.methods.task import Negatives, Task, Untrained, no_base
from unrank.rankers import create_ranker
from unrank.rankers.base import DualEncoder, Ranker
from unrank.record import Record, reserved_in

COUNTED = 64
"""Documents in whose vectors the entries are counted, if they are sparse."""
RANDOM_WIDTH = 0.02
"""The standard deviation of random weights, as encoders are initialised."""

FIXED_QUERIES = 1_000
"""The number of training queries that show whether training is over."""

FEW_QUERIES = 100
"""The number of queries of each kept set that are measured if each list takes seconds."""
READ_QUERIES = 1_000
"""The number of them if a GPU must read every pair with an encoder, which else takes much of a small request's time."""


def usual_measure(ranker: Ranker, device: Device) -> int:
    """Return the default number of measured queries: fewer if every pair must be read with an encoder."""
    if ranker.separable or ranker.reads_words:
        return MOST_QUERIES
    return FEW_QUERIES if Runtime.on(device).device.type == "cpu" else READ_QUERIES


class Clock:
    """Seconds by purpose. Only time inside `on` counts."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.seconds: dict[str, float] = {}

    @contextmanager
    def on(self, purpose: str) -> Iterator[None]:
        """Add the time of a block to a purpose."""
        self._runtime.wait()
        started = perf_counter()
        try:
            yield
        finally:
            self._runtime.wait()
            self.add(purpose, perf_counter() - started)

    def add(self, purpose: str, seconds: float) -> None:
        self.seconds[purpose] = self.seconds.get(purpose, 0.0) + seconds

    def state(self) -> Checkpoint:
        return Checkpoint(dict(self.seconds))

    def restore(self, state: Checkpoint) -> None:
        """Count the time before a run was stopped, but not the time to load it again."""
        self.seconds = dict(state.facts)

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


@dataclass(frozen=True)
class Workspace:
    """A collection, its partition, a device, the tokens, the evaluator, and what was removed before."""

    collection: Collection
    partition: Partition
    runtime: Runtime
    store: TokenStore
    evaluator: Evaluator
    cache: Cache | None = None
    removal: Removal | None = None
    """What is to be forgotten; `None` for a training."""
    previous: Sequence[PreviousRemoval] = ()
    """The removals that the ranker's record names."""
    teachers: tuple[Teacher, ...] = ()
    """Rankers that never change and that several jobs in this process ask: each scores a pair once for all of them."""

    @classmethod
    def open(
        cls,
        ranker: Ranker,
        collection: Collection,
        partition: Partition | None,
        device: Device = "auto",
        progress: Progress | None = None,
        measure: int = MOST_QUERIES,
        cache: Cache | None = None,
    ) -> Workspace:
        """Check that something can be ranked, and move the ranker to the device."""
        collection.check_candidates()
        if partition is not None and len(partition.forget):
            _check_negatives(collection, partition)
        runtime = Runtime.on(device, progress)
        ranker.to(runtime.device)
        store = TokenStore(ranker, collection, cache)
        evaluator = Evaluator(collection, partition, measure)
        return cls(collection, evaluator.partition, runtime, store, evaluator, cache)

    @classmethod
    def for_removal(
        cls,
        ranker: Ranker,
        collection: Collection,
        removal: Removal,
        record: Record | None = None,
        *,
        device: Device = "auto",
        progress: Progress | None = None,
        measure: int | None = None,
        cache: Cache | None = None,
    ) -> Workspace:
        """Open a workspace for a removal.

        What the ranker's record names as removed before is not kept data. If the record says that training left queries
        out, their pairs are reserved.
        """
        previous = previous_removals(collection, record)
        partition = partition_of(collection, removal, record, previous)
        most = MOST_QUERIES if measure is None else measure
        if isinstance(cache, KeptState):
            cache = cache.leaving_out(collection, removal | union(previous))
        opened = cls.open(ranker, collection, partition, device, progress, most, cache)
        opened.keep_vectors(ranker)
        if warning := not_recognised(record):
            opened.runtime.progress.say(warning)
        return replace(opened, removal=removal, previous=previous)

    def with_teacher(self, ranker: Ranker) -> Workspace:
        """Return this workspace with one teacher for all jobs that ask a ranker. The ranker must not change."""
        return replace(self, teachers=(*self.teachers, self.teacher(ranker, self.cache)))

    def for_another(self, removal: Removal, record: Record | None = None, measure: int | None = None) -> Workspace:
        """Return a workspace for another removal from the same ranker, with the tokens and teachers of this one."""
        partition = partition_of(self.collection, removal, record, self.previous)
        _check_negatives(self.collection, partition)
        evaluator = Evaluator(self.collection, partition, MOST_QUERIES if measure is None else measure)
        return replace(self, partition=partition, evaluator=evaluator, removal=removal)

    def keep_vectors(self, ranker: Ranker) -> None:
        """Keep what a ranker gives that does not change from now on, if the owner's kept state is used."""
        self.store.keep_vectors(ranker, f"{self.runtime.name} {self.runtime.deterministic}")

    def scorer(self, ranker: Ranker) -> Scorer:
        """Return a function that gives this ranker's scores of pairs."""
        if (teacher := self._known(ranker)) is not None:
            return teacher.scores
        return lambda pairs: scores_of(ranker, self.store, pairs, self.runtime)

    def scorecard(self, ranker: Ranker) -> Scorecard:
        """Measure a ranker on all sets."""
        return self.evaluator.scorecard(self.scorer(ranker.to(self.runtime.device)))

    def task(self, original: Ranker, base: str | None = None, seed: int = 0) -> Task:
        """Return what a method may use. With a base, it may ask the untrained model too."""
        negatives = Negatives(self.collection, self.partition.no_negatives)

        def untrained(which: Untrained) -> Teacher:
            fresh = create_ranker(original.kind, base, seed, original.fast)
            return self.teacher(randomised(fresh, seed) if which == "random" else fresh)

        known = untrained if base is not None else no_base
        teacher = self._known(original) or self.teacher(original, self.cache)
        return Task(self.partition, negatives, teacher, known)

    def _known(self, ranker: Ranker) -> Teacher | None:
        """Return the shared teacher of a ranker; `None` if it has none."""
        return next((teacher for teacher in self.teachers if teacher.ranker is ranker), None)

    def teacher(self, ranker: Ranker, cache: Cache | None = None) -> Teacher:
        """Return a teacher that has scored nothing yet."""
        return Teacher(ranker.to(self.runtime.device), self.collection, self.store, self.runtime, cache)

    def entries(self, ranker: Ranker) -> float | None:
        """Return the mean number of entries of a document's vector, on a fixed sample; `None` if it is not sparse."""
        if not isinstance(ranker, DualEncoder):
            return None
        rows = np.random.default_rng(0).permutation(len(self.collection.documents))[:COUNTED]
        return ranker.entries(self.store.get(np.sort(rows), "document"))

    def fixed_pairs(self) -> Pairs:
        """Return the kept pairs of a fixed sample of the training queries."""
        kept = self.partition.retain
        queries = np.unique(kept[:, 0])
        order = hashed_order(self.collection.queries.ids(queries), "fixed")[:FIXED_QUERIES]
        return kept[np.isin(kept[:, 0], queries[order])]


def check_given(collection: object, removal: object, *rankers: object) -> None:
    """Refuse what is no collection, no removal or no ranker, such as the name of its folder."""
    for ranker in rankers:
        if not isinstance(ranker, Ranker):
            raise UnrankError(f"a ranker is needed, as load_ranker returns it, not {ranker!r}")
    if not isinstance(collection, Collection):
        raise UnrankError(f"a collection is needed, as open_collection returns it, not {collection!r}")
    if removal is not None and not isinstance(removal, Removal):
        raise UnrankError(f"a removal is needed, such as Removal(documents=[...]), not {removal!r}")


def partition_of(
    collection: Collection, removal: Removal, record: Record | None, previous: Sequence[PreviousRemoval]
) -> Partition:
    """Return the partition that a removal makes for a ranker with this record."""
    reserve = bool(reserved_in(record, collection.fingerprint))
    return make_partition(collection, removal, previous=union(previous), reserve=reserve)


def _check_negatives(collection: Collection, partition: Partition) -> None:
    """Refuse a removal after which no kept query has a negative."""
    if not Negatives(collection, partition.no_negatives).are_left(partition.retain[:, 0]):
        raise UnrankError("the removal takes every negative of the kept queries, so nothing is left to rank against")


def randomised(ranker: Ranker, seed: int) -> Ranker:
    """Give a ranker random weights throughout. Weights of one dimension (biases, norms) stay."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in ranker.parameters():
            if weight.dim() > 1:
                weight.copy_(RANDOM_WIDTH * torch.randn(weight.shape, generator=generator))
    return ranker
