"""The context of an audit: its rankers, each with a workspace, and the pairs that they are tested on.

Large sets are reduced to a sample of queries. The sample depends on the seed and is the same for every ranker. A
ranker scores each list once, even if several tests need it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from unrank.audit.comparison import Comparison, PerRanker
from unrank.audit.margins import SaidMargins
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition
from unrank.collection.texts import Rows, hashed_order
from unrank.engine.runtime import Device, Progress
from unrank.engine.teacher import Teacher
from unrank.errors import UnrankError
from unrank.evaluation.bootstrap import BootstrapEstimate
from unrank.evaluation.measure import Floats
from unrank.evaluation.scorecard import Scorer
from unrank.forgetting.train import RECOVERY
from unrank.forgetting.workspace import Workspace
from unrank.methods.finetune import Finetune
from unrank.rankers.base import Ranker

T = TypeVar("T")
Marks = NDArray[np.bool_]


@dataclass(frozen=True)
class Thoroughness:
    """The effort of an audit: how much it looks at, and how hard it tries to bring memory back."""

    queries: int = 1_000
    """The most queries of each set."""
    kept_pairs: int = 100_000
    """The most kept pairs in the epoch of the recovery test."""
    margin: float = 0.02
    """The smallest difference of interest."""
    recovery: Finetune = RECOVERY
    relearning_rate: float | None = None
    """The learning rate; `None` for the rate at which a ranker of this kind is trained."""
    relearning_steps: tuple[int, ...] = (1, 5, 10, 50)
    relearning_share: float = 0.05
    """The share of the forget pairs that is shown again."""
    rounded_bits: tuple[int, ...] = (8, 4)
    """The bits of a weight in the rounded forms of a ranker."""
    full: bool = False
    """Whether relearning chooses the best of many attempts, and further forms of the ranker are tested."""
    relearning_rates: tuple[float, ...] = (0.3, 1.0, 3.0)
    """The learning rates of the attempts of a full audit, as multiples of the usual one."""
    relearning_seeds: int = 2
    related_each: int = 4
    """The kept pairs that are looked for near each forget pair."""
    related_pairs: int = 200
    """The most kept pairs near forget pairs that an attempt shows."""
    probed_queries: int = 50
    """The most queries by which the best attempt is chosen."""
    judged_pairs: int = 200
    """The most pairs of each set by which single pairs are judged."""
    judged_negatives: int = 12
    """The most negatives of each of their queries."""

    def __post_init__(self) -> None:
        if self.queries < 1:
            raise UnrankError(f"an audit cannot use {self.queries} queries: give 1 or more")


@dataclass(frozen=True)
class AuditOptions:
    """How a ranker is audited."""

    thoroughness: Thoroughness | None = None
    """`None` for the usual effort."""
    seed: int = 0
    device: Device = "auto"
    base: str | None = None
    """The model that the rankers were trained from; `None` to find it by the record."""
    proxies: tuple[str, ...] = ()
    """Folders of prepared proxies, which judge single pairs."""
    said: SaidMargins | None = None
    """Margins that were said before the run; `None` to find them by the rankers that never saw the request."""


@dataclass(frozen=True)
class AuditedRanker:
    """A ranker with its workspace. Its scores are kept."""

    ranker: Ranker
    workspace: Workspace
    scores: Scorer

    @classmethod
    def open(
        cls, ranker: Ranker, collection: Collection, partition: Partition, device: Device, progress: Progress | None
    ) -> AuditedRanker:
        workspace = Workspace.open(ranker, collection, partition, device, progress)
        return cls(ranker, workspace, Teacher(ranker, collection, workspace.store, workspace.runtime).scores)

    def reciprocals(self, pairs: Pairs, score: Scorer | None = None) -> Floats:
        """Return the reciprocal rank of each query of some forget pairs."""
        return self.workspace.evaluator.reciprocals(score or self.scores, pairs, forget=True)


@dataclass(frozen=True)
class Judge:
    """A ranker that the audited one is compared with pair by pair: a reference, or a proxy."""

    scores: Scorer
    never_saw: Callable[[Pairs], Marks]
    """Marks the training pairs that it never saw."""
    reserves: bool = True
    """Whether it never saw the reserved pairs either."""


@dataclass(frozen=True)
class AuditContext:
    """Everything that a test may use."""

    rankers: PerRanker[AuditedRanker]
    collection: Collection
    partition: Partition
    whole: dict[str, Pairs]
    """The pairs of each of the four sets."""
    sets: dict[str, Pairs]
    """The pairs that are tested: all of a set, or those of a sample of its queries."""
    thoroughness: Thoroughness
    seed: int
    base: str | None = None
    """The model that the rankers were trained from; `None` if it is not known."""
    base_recorded: bool = False
    """Whether the ranker's record names this model by its hash."""
    proxies: tuple[Judge, ...] = ()
    """Rankers that saw only a part of the training pairs, and that had no share in the run."""
    left_out: int = 0
    """The number of references and proxies that were left out because they had a share in the run."""
    said: SaidMargins | None = None
    """Margins that were said before the run."""

    @property
    def judges(self) -> tuple[Judge, ...]:
        """The references, then the proxies."""
        kept = self.collection.pair_keys(self.partition.retain)

        def never_saw(pairs: Pairs) -> Marks:
            return ~np.isin(self.collection.pair_keys(pairs), kept)

        return (*(Judge(one.scores, never_saw) for one in self.rankers.references), *self.proxies)

    def each(self, measure: Callable[[AuditedRanker], T]) -> PerRanker[T]:
        return self.rankers.map(measure)

    def compare(self, estimates: PerRanker[BootstrapEstimate]) -> Comparison:
        return Comparison.of(estimates, self.thoroughness.margin)

    def compare_means(self, values: PerRanker[Floats]) -> Comparison:
        """Compare the means of one value for each query."""
        return self.compare(values.map(lambda these: BootstrapEstimate.of_mean(these, self.seed)))

    def negatives(self, queries: Rows) -> Pairs:
        """Return the pairs of these queries with candidates that are neither relevant nor removed."""
        pairs = self.collection.negatives.pairs(queries)
        return pairs[~np.isin(pairs[:, 1], self.partition.documents)]

    def with_negatives(self, pairs: Pairs) -> NDArray[np.bool_]:
        """Mark the pairs whose query has such a candidate."""
        return np.isin(pairs[:, 0], self.negatives(np.unique(pairs[:, 0]))[:, 0])


def open_context(
    rankers: PerRanker[Ranker],
    collection: Collection,
    partition: Partition,
    options: AuditOptions,
    progress: Progress | None = None,
) -> AuditContext:
    thoroughness = options.thoroughness or Thoroughness()
    opened = rankers.map(lambda ranker: AuditedRanker.open(ranker, collection, partition, options.device, progress))
    whole = whole_sets(opened.ranker.workspace)
    sets = sampled_sets(collection, whole, thoroughness.queries, options.seed)
    return AuditContext(
        opened, collection, partition, whole, sets, thoroughness, options.seed, options.base, said=options.said
    )


def whole_sets(workspace: Workspace) -> dict[str, Pairs]:
    """Return the pairs of each of the four sets."""
    partition, tests = workspace.partition, workspace.evaluator.kept["test"]
    return {
        "forget": partition.forget,
        "entangled": partition.entangled,
        "disjoint": partition.disjoint,
        "test": tests,
    }


def sampled_sets(collection: Collection, whole: dict[str, Pairs], most: int, seed: int) -> dict[str, Pairs]:
    """Return the pairs of at most this many queries of each set."""
    return {name: _sample_queries(collection, pairs, most, f"{seed}:audit:{name}") for name, pairs in whole.items()}


def _sample_queries(collection: Collection, pairs: Pairs, most: int, salt: str) -> Pairs:
    """Keep the pairs of at most this many queries."""
    queries = np.unique(pairs[:, 0])
    if len(queries) <= most:
        return pairs
    taken = hashed_order(collection.queries.ids(queries), salt)[:most]
    return pairs[np.isin(pairs[:, 0], queries[taken])]
