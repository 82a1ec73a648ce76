"""The batch: which open requests a run can fulfil on a collection, and all that the new ranker must forget.

A request fits a collection that holds all it names, each under the same id with the same text, its pairs as training
pairs and its queries not as test queries. A ranker that has not
forgotten what was asked for before, because it is an older one or was trained anew, is made to forget that as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.partition import Partition, make_partition, named
from unrank.collection.removal import Removal
from unrank.desk.holders import holds
from unrank.desk.item import KINDS, Item, items_of, removal_of
from unrank.desk.key import Key
from unrank.desk.ledger import Ledger
from unrank.desk.request import HONOURED, Request, State
from unrank.forgetting.hashes import recognised
from unrank.record import Record, forgotten_requests


@dataclass(frozen=True)
class Batch:
    """Requests that go together."""

    items: dict[int, list[Item]]
    """What each of them names."""
    requests: list[Request]
    elsewhere: list[Request]
    """Open requests that this collection cannot fulfil."""
    again: Removal
    """What was asked for before and this ranker has not forgotten."""
    earlier: Removal
    """What it has."""

    @property
    def all_items(self) -> list[Item]:
        return [item for items in self.items.values() for item in items]

    @property
    def removal(self) -> Removal:
        return removal_of(self.all_items) | self.again

    def partition(self, collection: Collection) -> Partition:
        return make_partition(collection, self.removal, "what is open", self.earlier)

    def overlaps(self, collection: Collection) -> list[tuple[int, int, int]]:
        """Pairs of requests that name the same training pairs, and how many of them."""
        naming: dict[int, list[int]] = {}
        for id in sorted(self.items):
            for row in np.flatnonzero(named(collection, removal_of(self.items[id]))[0]).tolist():
                naming.setdefault(row, []).append(id)
        both = Counter(two for ids in naming.values() for two in combinations(ids, 2))
        return [(one, other, pairs) for (one, other), pairs in sorted(both.items())]


def open_batch(ledger: Ledger, key: Key, collection: Collection, record: Record | None) -> Batch:
    """All that is open; `record` is the record of the ranker that is to forget it."""
    requests = ledger.requests([State.OPEN])
    all_items = {request.id: ledger.items(request.id) for request in requests}
    asked = [item for these in all_items.values() for item in these]
    held = [item for item, here in zip(asked, holds(collection, asked), strict=True) if here]
    fit = set(held) - _no_training(collection, held)
    items = {id: these for id, these in all_items.items() if fit.issuperset(these)}
    fitting = [request for request in requests if request.id in items]
    earlier = recognised(collection, forgotten_requests(record))
    asked_before = honoured_in(ledger, key, collection)
    return Batch(
        items,
        fitting,
        [request for request in requests if request.id not in items],
        _less(asked_before, earlier),
        earlier,
    )


def _no_training(collection: Collection, items: Sequence[Item]) -> set[Item]:
    """Those of a collection's items that no ranker can have been trained on as they are named: test queries, and pairs
    that are none for training."""
    removal = removal_of(items)
    queries = collection.queries.rows(removal.queries)
    tests = {*collection.queries.ids(queries[collection.is_test[queries]])}
    trained = {*collection.pair_ids(collection.pairs)} if removal.pairs else set()
    return {
        item
        for item in items
        if (item.kind == "query" and item.query in tests)
        or (item.kind == "pair" and (item.query, item.document) not in trained)
    }


def honoured_in(ledger: Ledger, key: Key, collection: Collection) -> Removal:
    """What fulfilled requests named and a collection's training pairs still hold, under the same ids with the same
    texts, known by keyed hashes."""
    gone = {kind: ledger.hashes(kind, HONOURED) for kind in KINDS}
    pairs = collection.pairs
    queries = collection.queries.ids(np.unique(pairs[:, 0])) if gone["query"] else []
    documents = collection.documents.ids(np.unique(pairs[:, 1])) if gone["document"] else []
    same_ids = Removal(
        [id for id in queries if key.query_id(id) in gone["query"]],
        [id for id in documents if key.document_id(id) in gone["document"]],
        [
            (query, document)
            for query, document in (collection.pair_ids(pairs) if gone["pair"] else [])
            if key.pair(key.query_id(query), key.document_id(document)) in gone["pair"]
        ],
    )

    def same_texts(item: Item) -> bool:
        return all(hashed in gone[item.kind] for kind, hashed in key.hashes(item) if kind == item.kind)

    return removal_of([item for item in items_of(same_ids, collection) if same_texts(item)])


def _less(removal: Removal, other: Removal) -> Removal:
    """
    >>> _less(Removal(["a", "b"]), Removal(["b"])).queries
    ('a',)
    """
    return Removal(
        sorted({*removal.queries} - {*other.queries}),
        sorted({*removal.documents} - {*other.documents}),
        sorted({*removal.pairs} - {*other.pairs}),
    )
