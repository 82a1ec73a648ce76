"""A method: what is done to a ranker so that it forgets.

A method is a frozen dataclass of its settings. It says which model to start from and, phase by phase, which samples
and which loss; the engine does the rest. To add one: a file here, a line in `METHODS`, a test of what is its own.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from unrank.collection.collection import Collection, Pairs, Ragged
from unrank.collection.partition import Partition
from unrank.collection.texts import Rows
from unrank.engine.loop import Schedule
from unrank.engine.samples import Phase
from unrank.engine.teacher import Teacher
from unrank.errors import UnrankError

QUERIES_AT_ONCE = 16_384

RunKind = Literal["steered", "training", "edit"]

Drawn = tuple[Pairs, NDArray[np.bool_]]
"""A pair for each sample, and whether the sample has one."""


class Negatives:
    """The negatives of each query. A removed document is no one's negative any more."""

    def __init__(self, collection: Collection, removed: Rows) -> None:
        self._lists = collection.negatives
        self._removed = np.zeros(len(collection.documents), bool)
        self._removed[removed] = True
        self._most: int | None = None

    def thinned(self, most: int) -> Negatives:
        """At most so many of each query, spread evenly over its list, always the same ones."""
        fewer = copy.copy(self)
        fewer._most = most
        return fewer

    def pairs(self, queries: Rows) -> Pairs:
        """All of these queries."""
        lists = [(queries[here], self._kept(queries[here])) for here in blocks(len(queries))]
        blocks_of_pairs = [np.stack([np.repeat(rows, kept.counts), kept.values], axis=1) for rows, kept in lists]
        return np.concatenate([np.empty((0, 2), np.int64), *blocks_of_pairs])

    def draw(self, queries: Rows, generator: np.random.Generator) -> Drawn:
        """One random negative for each query."""
        where, documents, has = generator.random(len(queries)), np.zeros_like(queries), np.zeros(len(queries), bool)
        for here in blocks(len(queries)):
            documents[here], has[here] = self._pick(queries[here], where[here])
        return np.stack([queries, documents], axis=1), has

    def are_left(self, queries: Rows) -> bool:
        """Whether any of these queries has a negative."""
        return any(len(self._kept(queries[here]).values) for here in blocks(len(queries)))

    def _pick(self, queries: Rows, where: NDArray[np.float64]) -> tuple[Rows, NDArray[np.bool_]]:
        """For each query the negative that stands so far down its list."""
        unique, place = np.unique(queries, return_inverse=True)
        lists = self._kept(unique)
        counts = lists.counts[place]
        pick = lists.offsets[place] + np.floor(where * counts).astype(np.int64)
        has = counts > 0
        documents = lists.values[np.where(has, pick, 0)] if len(lists.values) else np.zeros_like(queries)
        return documents.astype(np.int64), has

    def _kept(self, queries: Rows) -> Ragged:
        """The lists of these queries, without what is removed."""
        documents = self._lists.pairs(queries)[:, 1].astype(np.int32)
        offsets = np.concatenate([[0], np.cumsum(self._lists.counts[queries])])
        kept = _only(Ragged(offsets, documents), ~self._removed[documents])
        if self._most is None:
            return kept
        counts = np.repeat(kept.counts, kept.counts)
        place = np.arange(len(kept.values)) - np.repeat(kept.offsets[:-1], kept.counts)
        return _only(kept, (counts <= self._most) | ((place + 1) * self._most // counts > place * self._most // counts))


def _only(lists: Ragged, chosen: NDArray[np.bool_]) -> Ragged:
    """The same lists with the chosen values alone."""
    return Ragged(np.concatenate([[0], np.cumsum(chosen)])[lists.offsets], lists.values[chosen])


def blocks(size: int) -> Iterator[slice]:
    """Slices of so many queries that their lists fit well into memory, however many there are in all."""
    return (slice(start, start + QUERIES_AT_ONCE) for start in range(0, size, QUERIES_AT_ONCE))


def unknown_start(random: bool) -> Teacher:
    raise UnrankError("what the ranker was before it was trained is not known: name its base with --base")


@dataclass(frozen=True)
class Task:
    """All that a method may know. No test query is in reach."""

    partition: Partition
    negatives: Negatives
    teacher: Teacher
    untrained: Callable[[bool], Teacher] = unknown_start
    """What the ranker was before it was trained, as a teacher; or, if so asked, one with random weights throughout."""

    def holding(self, most: int) -> Task:
        """The same task with at most so many disjoint pairs, always the same ones: what a small request costs must not
        grow with the collection."""
        disjoint = self.partition.disjoint
        if len(disjoint) <= most:
            return self
        chosen = np.random.default_rng(0).choice(len(disjoint), most, replace=False)
        return replace(self, partition=replace(self.partition, disjoint=disjoint[np.sort(chosen)]))

    def glancing(self, most: int) -> Task:
        """The same task with so many negatives of each query: a teacher that looks at no others is asked for less."""
        negatives = self.negatives.thinned(most)
        relevant = np.concatenate(
            [self.partition.forget, self.partition.retain, self.partition.earlier, self.partition.risen]
        )

        def lists(queries: Rows) -> Pairs:
            return np.concatenate([relevant[np.isin(relevant[:, 0], queries)], negatives.pairs(queries)])

        return replace(self, negatives=negatives, teacher=self.teacher.looking_at(lists))


@dataclass(frozen=True)
class Method(ABC):
    """The settings that every method has, and what it has to say."""

    name: ClassVar[str]
    start: ClassVar[Literal["original", "initial"]] = "original"
    run_kind: ClassVar[RunKind] = "steered"
    """How it is run: "steered" takes steps until the target, "training" goes by its own measure, "edit" changes the
    weights once."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings by name, for `--preset`."""

    learning_rate: float = 5e-5
    epochs: int = 30
    """The most epochs that it may take."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and not isinstance(value, bool) and not 0 < value < math.inf:
                raise UnrankError(f"{field.name} must be more than 0 and finite, not {value}")

    @property
    def needs_base(self) -> bool:
        """Whether it asks for what the ranker was before it was trained."""
        return self.start == "initial"

    def schedule(self, seed: int, check_every: int | None = None) -> Schedule:
        """How long and how fast its epochs go."""
        return Schedule(self.epochs, self.learning_rate, seed, check_every)

    def prepare(self, task: Task) -> None:
        """Ask the teacher for all that the plan will want of it; before anyone else does, so that it can be timed."""
        return

    def has_learned(self, mrr: float) -> bool:
        """Return whether training may stop at this MRR on training queries. Asked of a "training" method alone."""
        return False

    @abstractmethod
    def plan(self, task: Task) -> Sequence[Phase]:
        """What one epoch consists of."""


@dataclass(frozen=True)
class OneShot(Method):
    """A method that edits weights once, by how much each matters to the samples of its phases."""

    run_kind = "edit"

    @abstractmethod
    def edit(self, weight: Tensor, importance: Sequence[Tensor]) -> Tensor:
        """What a weight becomes; its importance is the mean squared gradient, one for each phase of the plan."""


def all_present(pairs: Pairs) -> Drawn:
    return pairs, np.ones(len(pairs), bool)
