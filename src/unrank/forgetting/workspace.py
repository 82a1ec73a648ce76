"""The workshop: what every job on one collection and one removal needs, made once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition
from unrank.collection.texts import hashed_order
from unrank.engine.checkpoint import Cache
from unrank.engine.runtime import Device, Progress, Runtime
from unrank.engine.scoring import scores_of
from unrank.engine.teacher import Teacher
from unrank.engine.tokens import TokenStore
from unrank.errors import UnrankError
from unrank.evaluation.scorecard import MOST_QUERIES, Evaluator, Scorer
from unrank.methods.task import Negatives, Task, Untrained
from unrank.rankers import create_ranker
from unrank.rankers.base import Ranker

RANDOM_WIDTH = 0.02
"""How widely random weights are drawn, as encoders draw them."""

FIXED_QUERIES = 1_000
"""How many training queries tell whether training is over."""

FEW_QUERIES = 100
"""How many of each kept set are measured where each list takes seconds."""


def usual_measure(ranker: Ranker, device: Device) -> int:
    """How many queries of each kept set are measured where nobody says: few where a processor must read every pair of
    them with an encoder, before and after."""
    slow = Runtime.on(device).device.type == "cpu" and not ranker.separable and not ranker.reads_words
    return FEW_QUERIES if slow else MOST_QUERIES


@dataclass(frozen=True)
class Workspace:
    """A collection, a partition of it, a device, and the tokens and the judge for both."""

    collection: Collection
    partition: Partition
    runtime: Runtime
    store: TokenStore
    evaluator: Evaluator
    cache: Cache | None = None

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
        collection.check_candidates()
        if partition is not None and not Negatives(collection, partition.documents).are_left(partition.retain[:, 0]):
            raise UnrankError(
                "the removal takes every negative of the kept queries, so nothing is left to rank against"
            )
        runtime = Runtime.on(device, progress)
        ranker.to(runtime.device)
        store = TokenStore(ranker, collection, cache)
        evaluator = Evaluator(collection, partition, measure)
        return cls(collection, evaluator.partition, runtime, store, evaluator, cache)

    def scorer(self, ranker: Ranker) -> Scorer:
        """What the judge asks for this ranker's scores."""
        return lambda pairs: scores_of(ranker, self.store, pairs, self.runtime)

    def task(self, original: Ranker, base: str | None = None, seed: int = 0) -> Task:
        """What a method may know; with a base, what the original was before it was trained too."""
        negatives = Negatives(self.collection, self.partition.documents)

        def untrained(which: Untrained) -> Teacher:
            fresh = create_ranker(original.kind, base, seed, original.fast)
            return self._teacher(randomised(fresh, seed) if which == "random" else fresh)

        known = {"untrained": untrained} if base is not None else {}
        return Task(self.partition, negatives, self._teacher(original, self.cache), **known)

    def _teacher(self, ranker: Ranker, cache: Cache | None = None) -> Teacher:
        return Teacher(ranker.to(self.runtime.device), self.collection, self.store, self.runtime, cache)

    def fixed_pairs(self) -> Pairs:
        """The kept pairs of a fixed sample of the training queries."""
        kept = self.partition.retain
        queries = np.unique(kept[:, 0])
        order = hashed_order(self.collection.queries.ids(queries), "fixed")[:FIXED_QUERIES]
        return kept[np.isin(kept[:, 0], queries[order])]


def randomised(ranker: Ranker, seed: int) -> Ranker:
    """The same ranker with random weights throughout; what has one dimension (biases, norms) stays."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in ranker.parameters():
            if weight.dim() > 1:
                weight.copy_(RANDOM_WIDTH * torch.randn(weight.shape, generator=generator))
    return ranker
