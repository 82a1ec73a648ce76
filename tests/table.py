"""Rankers and collections small enough to compute by hand: a ranker is a table of scores, a text is its own row."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from unrank.collection.collection import Collection, Description, Pairs
from unrank.collection.partition import Partition, split_pairs
from unrank.engine.runtime import Runtime
from unrank.engine.teacher import Teacher
from unrank.engine.tokens import TokenStore
from unrank.methods.task import Negatives, Task
from unrank.rankers.base import Ranker, Role
from unrank.rankers.tokens import Tokens
from unrank.rankers.vocabulary import Vocabulary


@dataclass(frozen=True)
class Listed:
    """The list of one query: document rows."""

    relevant: Sequence[int]
    negatives: Sequence[int] = ()
    test: bool = False
    grades: Sequence[int] = ()
    """Of the relevant documents; 1 each if there are none."""


def collection_of(lists: Sequence[Listed], documents: int) -> Collection:
    """A collection in memory. Query row 3 is `q3` and its text is `3`; documents likewise."""
    judged = [(row, document) for row, listed in enumerate(lists) for document in listed.relevant]
    tables = {
        "queries": _texts("q", len(lists)).append_column("test", pa.array([listed.test for listed in lists])),
        "documents": _texts("d", documents),
        "judgements": pa.table(
            {
                "query": pa.array([query for query, _ in judged], pa.int32()),
                "document": pa.array([document for _, document in judged], pa.int32()),
                "grade": pa.array(
                    [grade for each in lists for grade in each.grades or [1] * len(each.relevant)], pa.int16()
                ),
            }
        ),
        "candidates": pa.table(
            {
                "relevant": pa.array([list(listed.relevant) for listed in lists], pa.large_list(pa.int32())),
                "negatives": pa.array([list(listed.negatives) for listed in lists], pa.large_list(pa.int32())),
            }
        ),
    }
    return Collection(Path("nowhere"), Description("in memory", "none", 1, 1, {}), tables)


def random_lists(seed: int, queries: int = 12, documents: int = 14, tests: int = 4) -> list[Listed]:
    """Queries with one to three relevant documents, which they share, and two to six negatives."""
    generator = random.Random(seed)
    lists = []
    for row in range(queries + tests):
        drawn = generator.sample(range(documents), 9)
        relevant, negatives = generator.randint(1, 3), generator.randint(2, 6)
        lists.append(Listed(drawn[:relevant], drawn[relevant : relevant + negatives], test=row >= queries))
    return lists


def forgetting(collection: Collection, *, queries: Sequence[int] = (), documents: Sequence[int] = ()) -> Partition:
    """The partition in which these rows are removed."""
    pairs = collection.pairs
    forget = np.isin(pairs[:, 0], queries) | np.isin(pairs[:, 1], documents)
    return split_pairs(pairs, forget, np.array(queries, np.int64), np.array(documents, np.int64))


class Asked(list[tuple[int, int]]):
    """The pairs that a ranker was asked for. A copy of a ranker copies the list, but not its thousands of tuples."""

    def __deepcopy__(self, memo: object) -> Asked:
        return Asked(self)


class TableRanker(Ranker):
    """Looks every score up, and remembers which pairs it was asked for."""

    kind = "table"

    def __init__(self, table: Any) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.as_tensor(table, dtype=torch.float32).clone())
        self.asked = Asked()

    @classmethod
    def create(cls, base: str | None) -> Self:
        raise NotImplementedError

    @classmethod
    def load(cls, folder: Path) -> Self:
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        raise NotImplementedError

    def tokenize(self, texts: Sequence[str], role: Role) -> Tokens:
        return Tokens.of([[int(text)] for text in texts])

    @property
    def vocabularies(self) -> Sequence[Vocabulary]:
        return []

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        query, document = (side.padded(0, 1, self.device)[:, 0] for side in (queries, documents))
        self.asked += zip(query.tolist(), document.tolist(), strict=True)
        return self.table[query, document]


def random_table(collection: Collection, seed: int, values: int = 1_000) -> TableRanker:
    """Whole numbers below `values`: with few of them there are many ties."""
    generator = np.random.default_rng(seed)
    return TableRanker(generator.integers(values, size=(len(collection.queries), len(collection.documents))))


def task_of(collection: Collection, partition: Partition, ranker: Ranker) -> Task:
    """What a method may know, with this ranker as the teacher."""
    teacher = Teacher(ranker, collection, TokenStore(ranker, collection), Runtime.on("cpu"))
    return Task(partition, Negatives(collection, partition.documents), teacher)


def as_set(pairs: Pairs) -> set[tuple[int, int]]:
    return {(int(query), int(document)) for query, document in pairs.reshape(-1, 2)}


def _texts(prefix: str, size: int) -> pa.Table:
    ids = pa.array([f"{prefix}{row}" for row in range(size)], pa.string())
    return pa.table({"id": ids, "text": pa.array([str(row) for row in range(size)], pa.string())})
