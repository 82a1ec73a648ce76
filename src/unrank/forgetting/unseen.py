"""Unseen pairs: what neither a ranker nor its proxy was trained on, so that the two can be compared.

They are the pairs of the reserved queries and documents. A ranker from elsewhere may have seen all of them. Then
queries are made of documents that no training query names. The first words of such a document are the query, and the
rest of it is the relevant document. The negatives are those of a list that holds the document as a negative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unrank.collection.arrow import list_column
from unrank.collection.collection import Collection, Pairs
from unrank.collection.partition import Partition
from unrank.engine.scoring import scores_of
from unrank.engine.teacher import Teacher
from unrank.engine.tokens import TokenStore
from unrank.evaluation.scorecard import Scorer
from unrank.forgetting.workspace import Workspace
from unrank.rankers.base import Ranker

Source = Literal["reserved", "openings"]
Listed = NDArray[np.int32]
LEAST_RESERVED, LEAST_OPENINGS = 20, 50
"""The least number of pairs of each source that are compared."""
MOST_OPENINGS = 300
MOST_NEGATIVES = 100
MOST_LISTS = 2_000
"""The most lists that are searched for documents to make queries of."""


@dataclass(frozen=True)
class Unseen:
    """Pairs that no ranker was trained on, and how they are scored."""

    collection: Collection
    """The one that the pairs are of, or a small one that was made of it."""
    pairs: Pairs
    source: Source
    original: Scorer
    scorer: Callable[[Ranker], Scorer]
    """Returns the scorer of another ranker."""
    trained: NDArray[np.bool_]
    """For each pair, whether its query was trained on with other documents."""


def find_unseen(workspace: Workspace, ranker: Ranker, original: Scorer, reserved: bool = True) -> Unseen | None:
    """Return unseen pairs; `None` if there are too few. `original` is the scorer of `ranker`.

    `reserved` is `False` if a proxy saw the reserved queries.
    """
    pairs = workspace.partition.reserved
    if reserved and len(pairs) >= LEAST_RESERVED:
        trained = np.isin(pairs[:, 0], np.unique(workspace.partition.retain[:, 0]))
        return Unseen(workspace.collection, pairs, "reserved", original, workspace.scorer, trained)
    made = make_openings(workspace.collection, workspace.partition)
    if len(made.pairs) < LEAST_OPENINGS:
        return None
    store = TokenStore(ranker, made)

    def scorer(any_ranker: Ranker) -> Scorer:
        return lambda some: scores_of(any_ranker, store, some, workspace.runtime)

    known = Teacher(ranker, made, store, workspace.runtime)  # the original is asked for the same lists again and again
    return Unseen(made, made.pairs, "openings", known.scores, scorer, np.zeros(len(made.pairs), bool))


def make_openings(collection: Collection, partition: Partition) -> Collection:
    """Return a collection in memory, of queries that are as long as the training queries are on average."""
    generator = np.random.default_rng(0)
    asked = generator.permutation(np.unique(partition.retain[:, 0]))[:MOST_LISTS]
    lists, removed = collection.negatives.pairs(asked), partition.documents
    named = collection.judged[~collection.is_test[collection.judged[:, 0]], 1]
    free = lists[~np.isin(lists[:, 1], np.concatenate([named, removed]))]
    documents, first = np.unique(free[:, 1], return_index=True)
    words = max(1, round(float(np.mean([len(text.split()) for text in collection.queries.texts(asked)]))))
    openings, rests, negatives = list[str](), list[str](), [np.empty(0, np.int32)]
    for place in generator.permutation(len(documents)):
        text = collection.documents.text(documents[place]).split()
        others = collection.negatives[free[first[place], 0]]
        others = others[(others != documents[place]) & ~np.isin(others, removed)][:MOST_NEGATIVES]
        if len(text) < 2 * words or len(others) < 2 or len(openings) == MOST_OPENINGS:
            continue
        openings.append(" ".join(text[:words]))
        rests.append(" ".join(text[words:]))
        negatives.append(others)
    return _in_memory(collection, openings, rests, negatives[1:])


def _in_memory(collection: Collection, queries: list[str], documents: list[str], negatives: list[Listed]) -> Collection:
    """Return a collection in which query i has document i, and negatives that are rows of another collection."""
    number, rows = len(queries), np.arange(len(queries), dtype=np.int32)
    listed = np.concatenate([np.empty(0, np.int32), *negatives])
    others = np.unique(listed)
    texts = [*documents, *collection.documents.texts(others)]
    ends = np.cumsum([0, *map(len, negatives)])
    tables = {
        "queries": {"id": _ids("q", number), "text": pa.array(queries, pa.string()), "test": np.zeros(number, bool)},
        "documents": {"id": _ids("d", len(texts)), "text": pa.array(texts, pa.string())},
        "judgements": {"query": rows, "document": rows, "grade": np.ones(number, np.int16)},
        "candidates": {
            "relevant": list_column(np.arange(number + 1), rows),
            "negatives": list_column(ends, (number + np.searchsorted(others, listed)).astype(np.int32)),
        },
    }
    return Collection(
        collection.folder, collection.description, {name: pa.table(each) for name, each in tables.items()}
    )


def _ids(prefix: str, number: int) -> pa.Array:
    return pa.array([f"{prefix}{row}" for row in range(number)], pa.string())
