"""The partition: a removal divides the relevant training pairs into forget, entangled and disjoint.

- forget: the pairs that the removal names, or whose query or document it names;
- entangled: the kept pairs that share a query or a document with a forget pair;
- disjoint: all other kept pairs.

Training may leave queries and documents out, so that there are some that no ranker has seen. Their pairs are reserved:
they are in none of the three sets, unless the removal names them.

>>> pairs = np.array([[1, 1], [1, 2], [2, 3], [3, 2], [4, 3], [4, 4], [5, 5]])
>>> partition = split_pairs(pairs, np.isin(pairs[:, 0], [1, 2]))  # remove queries 1 and 2
>>> partition.entangled.tolist(), partition.disjoint.tolist()
([[3, 2], [4, 3]], [[4, 4], [5, 5]])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unrank.collection.collection import Collection, Pairs
from unrank.collection.removal import Removal
from unrank.collection.texts import Rows, hashed_order
from unrank.errors import UnrankError, count, listed

NOTHING: Rows = np.empty(0, np.int64)
NO_PAIRS: Pairs = np.empty((0, 2), np.int64)
RESERVED_SHARE = 0.1
LEAST_RESERVED, MOST_RESERVED = 30, 300
RESERVED_DOCUMENTS = 0.05
LEAST_QUERIES = 150
"""A collection with fewer training queries reserves nothing."""


@dataclass(frozen=True)
class Partition:
    """Forget, entangled and disjoint pairs, and the removed queries and documents, all as rows."""

    forget: Pairs
    entangled: Pairs
    disjoint: Pairs
    queries: Rows = field(default_factory=lambda: NOTHING)
    documents: Rows = field(default_factory=lambda: NOTHING)
    previous: Pairs = field(default_factory=lambda: np.empty((0, 2), np.int64))
    """Pairs that a previous request removed and that stay forgotten: they are neither kept nor requested now."""
    risen: Pairs = field(default_factory=lambda: np.empty((0, 2), np.int64))
    """Pairs of a previous request that came back: they must be forgotten again for that request to be met."""
    reserved: Pairs = field(default_factory=lambda: np.empty((0, 2), np.int64))
    """Pairs of queries and documents that training left out, and that no request names."""
    reserved_documents: Rows = field(default_factory=lambda: NOTHING)
    """The documents that training left out. They are no negatives either."""
    substitutes: Mapping[int, int] = field(default_factory=dict)
    """For removed documents the document that takes their place."""

    @cached_property
    def retain(self) -> Pairs:
        return np.concatenate([self.entangled, self.disjoint])

    @property
    def no_negatives(self) -> Rows:
        """The documents that are no negatives: those that were removed or left out."""
        return np.union1d(self.documents, self.reserved_documents)

    @property
    def substitute_pairs(self) -> tuple[Pairs, NDArray[np.bool_]]:
        """For each forget pair its query with the substitute of its document. Also which forget pairs have one."""
        found = np.array([self.substitutes.get(document, -1) for document in self.forget[:, 1].tolist()], np.int64)
        return np.stack([self.forget[:, 0], np.maximum(found, 0)], axis=1), found >= 0

    def draw_partners(self, forget: Pairs, generator: np.random.Generator) -> tuple[Pairs, NDArray[np.bool_]]:
        """Sample one partner of each forget pair, an entangled pair that shares its query or its document. Also return
        which forget pairs have a partner."""
        starts, counts = zip(*(self._range(side, forget[:, side]) for side in (0, 1)), strict=True)
        total = counts[0] + counts[1]
        pick = np.floor(generator.random(len(forget)) * total).astype(np.int64)
        by_query = pick < counts[0]
        place = np.where(by_query, starts[0] + pick, starts[1] + pick - counts[0])
        has = total > 0
        chosen = np.zeros((len(forget), 2), np.int64)
        for side, here in ((0, has & by_query), (1, has & ~by_query)):
            chosen[here] = self._sorted[side][place[here]]
        return chosen, has

    def all_partners(self, forget: Pairs) -> tuple[Rows, Pairs]:
        """Return all partners of all forget pairs, and for each partner the place of its forget pair."""
        found = []
        for side in (0, 1):
            starts, counts = self._range(side, forget[:, side])
            of = np.repeat(np.arange(len(forget)), counts)
            within = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
            found.append((of, self._sorted[side][starts[of] + within]))
        places, partners = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return places, partners

    @cached_property
    def _sorted(self) -> tuple[Pairs, Pairs]:
        return tuple(self.entangled[np.argsort(self.entangled[:, side], kind="stable")] for side in (0, 1))  # type: ignore[return-value]

    def _range(self, side: int, rows: Rows) -> tuple[Rows, Rows]:
        keys = self._sorted[side][:, side]
        start = np.searchsorted(keys, rows, side="left")
        return start, np.searchsorted(keys, rows, side="right") - start


def split_pairs(
    pairs: Pairs, forget: NDArray[np.bool_], queries: Rows = NOTHING, documents: Rows = NOTHING
) -> Partition:
    """Return the partition of `pairs` in which those marked are forgotten."""
    gone = pairs[forget]
    shares = np.isin(pairs[:, 0], gone[:, 0]) | np.isin(pairs[:, 1], gone[:, 1])
    return Partition(gone, pairs[shares & ~forget], pairs[~shares & ~forget], queries, documents)


def reserved_queries(collection: Collection) -> Rows:
    """Return the queries that training leaves out: always the same ones, a tenth, at least 30 and at most 300."""
    queries = np.unique(collection.pairs[:, 0])
    number = reserved_number(len(queries))
    return np.sort(queries[hashed_order(collection.queries.ids(queries), "reserved")[:number]]) if number else NOTHING


def reserved_number(queries: int) -> int:
    """Return how many of the training queries that have a relevant document are reserved.

    >>> [reserved_number(queries) for queries in (149, 150, 400, 5_000)]
    [0, 30, 40, 300]
    """
    if queries < LEAST_QUERIES:
        return 0
    return min(max(round(RESERVED_SHARE * queries), LEAST_RESERVED), MOST_RESERVED)


def reserved_documents(collection: Collection) -> Rows:
    """Return the documents that training leaves out: always the same ones, a twentieth, at most 300."""
    documents = np.unique(collection.pairs[:, 1])
    some = reserved_number(len(np.unique(collection.pairs[:, 0]))) > 0
    number = min(round(RESERVED_DOCUMENTS * len(documents)), MOST_RESERVED) if some else 0
    order = hashed_order(collection.documents.ids(documents), "reserved")[:number] if number else NOTHING
    return np.sort(documents[order])


def whole_partition(collection: Collection, reserve: bool = False) -> Partition:
    """Return the partition of a collection from which nothing is removed."""
    pairs = collection.pairs
    left_out, documents = of_reserved(collection, reserve)
    return Partition(pairs[:0], pairs[:0], pairs[~left_out], reserved=pairs[left_out], reserved_documents=documents)


def make_partition(
    collection: Collection,
    removal: Removal,
    where: str = "the removal",
    previous: Removal | None = None,
    *,
    earlier: Removal | None = None,
    reserve: bool = False,
) -> Partition:
    """Return the partition that a removal makes; `previous`, once called `earlier`, was removed before.

    With `reserve`, the queries and documents that training leaves out are set apart.
    """
    if not removal:
        raise UnrankError(f"{where}: an empty removal: it names no query, no document and no pair")
    pairs = collection.pairs
    forget, queries, documents = named(collection, removal, where)
    gone, gone_queries, gone_documents = named(collection, previous or earlier or Removal(), where)
    if tests := collection.queries.ids(queries[collection.is_test[queries]]):
        raise UnrankError(
            f"{where}: names test queries, which no ranker was trained on: {listed(tests)}; take them out"
        )
    if not forget.any():
        raise UnrankError(f"{where}: nothing that it names is a relevant training pair, so there is nothing to forget")
    left_out, documents_left_out = of_reserved(collection, reserve)
    left_out &= ~forget & ~gone
    if (forget | gone | left_out).all():
        raise UnrankError(
            f"{where}: leaves nothing: all {np.count_nonzero(~left_out):,} training pairs would be forgotten; keep some"
        )
    there = forget | ~(gone | left_out)
    queries, documents = np.union1d(queries, gone_queries), np.union1d(documents, gone_documents)
    made = split_pairs(pairs[there], forget[there], queries, documents)
    of = removal.substitutes
    old, new = (collection.documents.rows([*ids], where).tolist() for ids in (of.keys(), of.values()))
    return replace(
        made,
        previous=pairs[gone & ~forget],
        reserved=pairs[left_out],
        reserved_documents=documents_left_out,
        substitutes=dict(zip(old, new, strict=True)),
    )


def of_reserved(collection: Collection, reserve: bool = True) -> tuple[NDArray[np.bool_], Rows]:
    """Mark the pairs of reserved queries and documents. Also return the documents."""
    if not reserve:
        return np.zeros(len(collection.pairs), bool), NOTHING
    documents = reserved_documents(collection)
    of_query = np.isin(collection.pairs[:, 0], reserved_queries(collection))
    return of_query | np.isin(collection.pairs[:, 1], documents), documents


def named(collection: Collection, removal: Removal, where: str = "the removal") -> tuple[NDArray[np.bool_], Rows, Rows]:
    """Return which pairs a removal names, and the rows of its queries and documents."""
    queries = collection.queries.rows(removal.queries, where)
    documents = collection.documents.rows(removal.documents, where)
    pairs = collection.pairs
    named = np.isin(pairs[:, 0], queries) | np.isin(pairs[:, 1], documents)
    if removal.pairs:
        named |= np.isin(collection.pair_keys(pairs), collection.pair_keys(_pair_rows(collection, removal, where)))
    return named, queries, documents


def _pair_rows(collection: Collection, removal: Removal, where: str) -> Pairs:
    queries = collection.queries.rows([query for query, _ in removal.pairs], where)
    documents = collection.documents.rows([document for _, document in removal.pairs], where)
    rows = np.stack([queries, documents], axis=1)
    unknown = ~np.isin(collection.pair_keys(rows), collection.pair_keys(collection.pairs))
    if unknown.any():
        names = [removal.pairs[i] for i in np.flatnonzero(unknown).tolist()]
        raise UnrankError(
            f"{where}: {count(len(names), 'pair')} not among the relevant training pairs: {listed(names)}"
        )
    return rows
