"""The batch: which open requests a run can fulfil on a collection, and all that the new ranker must forget.

A request fits a collection that holds all it names, each under the same id with the same text. A ranker that has not
forgotten what was asked for before, because it is an older one or was trained anew, is made to forget that as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.partition import Partition, named, partition
from unrank.collection.removal import Removal
from unrank.desk.holders import holds
from unrank.desk.item import Item, removal_of
from unrank.desk.key import Key
from unrank.desk.ledger import Ledger
from unrank.desk.request import HONOURED, Request, State
from unrank.forgetting.record import forgotten_before, recognised


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

    def parts(self, collection: Collection) -> Partition:
        return partition(collection, self.removal, "what is open", self.earlier)

    def overlaps(self, collection: Collection) -> list[tuple[int, int, int]]:
        """Pairs of requests that name the same training pairs, and how many of them."""
        rows = {id: np.flatnonzero(named(collection, removal_of(items))[0]) for id, items in self.items.items()}
        both = [
            (one, other, len(np.intersect1d(rows[one], rows[other]))) for one in rows for other in rows if one < other
        ]
        return [found for found in both if found[2]]


def open_batch(ledger: Ledger, key: Key, collection: Collection, known: Mapping[str, Any]) -> Batch:
    """All that is open; `known` is the record of the ranker that is to forget it."""
    requests, items = ledger.requests([State.OPEN]), {}
    for request in requests:
        these = ledger.items(request.id)
        if all(holds(collection, these)):
            items[request.id] = these
    fitting = [request for request in requests if request.id in items]
    earlier = recognised(collection, forgotten_before(known))
    asked_before = honoured_in(ledger, key, collection)
    return Batch(
        items,
        fitting,
        [request for request in requests if request.id not in items],
        _less(asked_before, earlier),
        earlier,
    )


def honoured_in(ledger: Ledger, key: Key, collection: Collection) -> Removal:
    """What fulfilled requests named and a collection's training pairs still hold, known by its keyed hashes."""
    pairs = collection.pairs

    def known(ids: Sequence[str], kind: Any, hashed: Any) -> list[str]:
        among = ledger.hashes(kind, HONOURED)
        return [id for id in ids if hashed(id) in among] if among else []

    gone = ledger.hashes("pair", HONOURED)
    queries, documents = (
        collection.queries.ids(np.unique(pairs[:, 0])),
        collection.documents.ids(np.unique(pairs[:, 1])),
    )
    return Removal(
        known(queries, "query", key.query_id),
        known(documents, "document", key.document_id),
        [
            (query, document)
            for query, document in (collection.pair_ids(pairs) if gone else [])
            if key.pair(key.query_id(query), key.document_id(document)) in gone
        ],
    )


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
