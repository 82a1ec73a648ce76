"""Rankers of which it is known what they remember: tables of noise, and of what each has learned on top of it."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from tests.table import Listed, TableRanker, collection_of
from unrank.audit.comparison import PerRanker
from unrank.audit.context import AuditContext, AuditOptions, Thoroughness, open_context
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition, make_partition
from unrank.collection.removal import Removal
from unrank.methods.finetune import Finetune
from unrank.rankers.base import Ranker

QUERIES, TESTS, DOCUMENTS, NEGATIVES = 60, 40, 50, 12
LEARNED = 4.0
THOROUGHNESS = Thoroughness(
    recovery=Finetune(learning_rate=0.3, epochs=1, negatives=1, batch=16),
    relearning_rate=0.3,
    relearning_steps=(1, 5),
    rounded_bits=(8,),  # a table is its own scores, and 4 bits of these are mostly ties
)

Open = Callable[..., AuditContext]
SHOWS_NOTHING = ("three_sample", "paraphrases", "probe")
"""The tests that may show a difference, and otherwise show nothing."""


@pytest.fixture(scope="session")
def world() -> Collection:
    generator = random.Random(8)
    lists = []
    for row in range(QUERIES + TESTS):
        relevant = generator.randint(1, 2)
        drawn = generator.sample(range(DOCUMENTS), relevant + NEGATIVES)
        lists.append(Listed(drawn[:relevant], drawn[relevant:], test=row >= QUERIES))
    return collection_of(lists, DOCUMENTS)


@pytest.fixture(scope="session")
def removal() -> Removal:
    return Removal(documents=[f"d{row}" for row in range(0, DOCUMENTS, 3)])


@pytest.fixture(scope="session")
def partition(world: Collection, removal: Removal) -> Partition:
    return make_partition(world, removal)


def learned(world: Collection, pairs: Pairs, seed: int, height: float = LEARNED) -> TableRanker:
    """Noise that follows from the seed, and these pairs well above it."""
    table = np.random.default_rng(seed).normal(size=(len(world.queries), len(world.documents)))
    table[pairs[:, 0], pairs[:, 1]] += height
    return TableRanker(table)


@pytest.fixture(scope="session")
def original(world: Collection) -> TableRanker:
    return learned(world, world.pairs, seed=0)


@pytest.fixture(scope="session")
def references(world: Collection, partition: Partition) -> list[TableRanker]:
    return [learned(world, partition.retain, seed) for seed in (1, 2)]


@pytest.fixture(scope="session")
def retrained(world: Collection, partition: Partition) -> TableRanker:
    """A third one, that takes the stand."""
    return learned(world, partition.retain, seed=3)


@pytest.fixture(scope="session")
def blocked(world: Collection, partition: Partition, original: TableRanker) -> TableRanker:
    """The original with forgotten documents at the end of every list, and nothing else done."""
    table = original.table.detach().clone()
    table[:, partition.documents] -= 1_000
    return TableRanker(table)


@pytest.fixture(scope="session")
def open_world(world: Collection, partition: Partition, original: TableRanker, references: list[TableRanker]) -> Open:
    def opened(ranker: Ranker, thoroughness: Thoroughness = THOROUGHNESS, with_references: int = 2) -> AuditContext:
        rankers: PerRanker[Ranker] = PerRanker(ranker, original, tuple(references[:with_references]))
        return open_context(rankers, world, partition, AuditOptions(thoroughness, device="cpu"))

    return opened
