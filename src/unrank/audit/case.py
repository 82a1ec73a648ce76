"""The case: the rankers of an audit, each with a workshop of its own, and the pairs that they are heard on.

Sets of many queries are cut to a sample that follows from the seed, the same for every ranker. What a ranker says of a
query's list is asked once, whichever tests want to know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from unrank.audit.readings import Each, Readings
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition
from unrank.collection.texts import Rows, hashed_order
from unrank.engine.runtime import Device, Progress
from unrank.engine.teacher import Teacher
from unrank.errors import UnrankError
from unrank.evaluation.bootstrap import BootstrapEstimate
from unrank.evaluation.measure import Floats
from unrank.evaluation.scorecard import Scorer
from unrank.forgetting.recovery import RECIPE
from unrank.forgetting.workspace import Workspace
from unrank.methods.finetune import Finetune
from unrank.rankers.base import Ranker

T = TypeVar("T")


@dataclass(frozen=True)
class Thoroughness:
    """How much an audit looks at, and how hard it tries to bring memory back."""

    queries: int = 1_000
    """Queries of each set, at most."""
    kept_pairs: int = 100_000
    """Kept pairs in the epoch that recovery takes, at most."""
    margin: float = 0.02
    """The least difference that is worth telling."""
    recovery: Finetune = RECIPE
    relearning_rate: float | None = None
    """By default the rate at which a ranker of this kind is trained."""
    relearning_steps: tuple[int, ...] = (1, 5, 10, 50)
    relearning_share: float = 0.05
    """How much of what is forgotten is shown again."""

    def __post_init__(self) -> None:
        if self.queries < 1:
            raise UnrankError(f"an audit cannot look at {self.queries} queries: give 1 or more")


@dataclass(frozen=True)
class Subject:
    """A ranker, where it is worked on, and what it says of lists, asked once."""

    ranker: Ranker
    workspace: Workspace
    scores: Scorer

    @classmethod
    def of(
        cls, ranker: Ranker, collection: Collection, partition: Partition, device: Device, progress: Progress | None
    ) -> Subject:
        workspace = Workspace.open(ranker, collection, partition, device, progress)
        return cls(ranker, workspace, Teacher(ranker, collection, workspace.store, workspace.runtime).scores)

    def reciprocals(self, pairs: Pairs, score: Scorer | None = None) -> Floats:
        return self.workspace.evaluator.reciprocals(score or self.scores, pairs, forget=True)


@dataclass(frozen=True)
class Case:
    """All that a test may ask."""

    subjects: Each[Subject]
    collection: Collection
    partition: Partition
    whole: dict[str, Pairs]
    """The pairs of each of the four sets."""
    sets: dict[str, Pairs]
    """The same, or those of a sample of their queries."""
    thoroughness: Thoroughness
    seed: int

    def each(self, measure: Callable[[Subject], T]) -> Each[T]:
        return self.subjects.map(measure)

    def readings(self, values: Each[Floats]) -> Readings:
        """The mean of one value a query, of each ranker."""
        return self.compare(values.map(lambda these: BootstrapEstimate.of_mean(these, self.seed)))

    def negatives(self, queries: Rows) -> Pairs:
        """What stands in the lists of these queries beside relevant and removed documents."""
        pairs = self.collection.negatives.pairs(queries)
        return pairs[~np.isin(pairs[:, 1], self.partition.documents)]

    def with_negatives(self, pairs: Pairs) -> NDArray[np.bool_]:
        """Whether the query of each pair has any."""
        return np.isin(pairs[:, 0], self.negatives(np.unique(pairs[:, 0]))[:, 0])

    def compare(self, readings: Each[BootstrapEstimate]) -> Readings:
        return Readings.of(readings, self.thoroughness.margin)


def open_case(
    rankers: Each[Ranker],
    collection: Collection,
    partition: Partition,
    thoroughness: Thoroughness,
    seed: int,
    device: Device,
    progress: Progress | None,
) -> Case:
    subjects = rankers.map(lambda ranker: Subject.of(ranker, collection, partition, device, progress))
    tests = subjects.ranker.workspace.evaluator.kept["test"]
    whole = {
        "forget": partition.forget,
        "entangled": partition.entangled,
        "disjoint": partition.disjoint,
        "test": tests,
    }
    sets = {
        name: _of_some_queries(collection, pairs, thoroughness.queries, f"{seed}:audit:{name}")
        for name, pairs in whole.items()
    }
    return Case(subjects, collection, partition, whole, sets, thoroughness, seed)


def _of_some_queries(collection: Collection, pairs: Pairs, most: int, salt: str) -> Pairs:
    queries = np.unique(pairs[:, 0])
    if len(queries) <= most:
        return pairs
    taken = hashed_order(collection.queries.ids(queries), salt)[:most]
    return pairs[np.isin(pairs[:, 0], queries[taken])]
