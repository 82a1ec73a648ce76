"""The batch: the open requests that a run can fulfil on a collection, and everything that the new ranker must forget.

A request fits a collection that holds all of its items under the same ids with the same texts. Its pairs must be
training pairs there, and its queries no test queries. An older or retrained ranker may not have forgotten earlier
requests: then it forgets them too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from unrank.collection.collection import Collection, Pairs
from unrank.collection.duplicates import WantedTexts, duplicates_of_each
from unrank.collection.partition import Partition, make_partition, named
from unrank.collection.removal import Removal
from unrank.desk.copies import in_collection
from unrank.desk.history_index import COPIES
from unrank.desk.key import Key
from unrank.desk.ledger import Ledger
from unrank.desk.request import HONOURED, KINDS, Item, Request, items_of, removal_of, substitutes_of
from unrank.desk.service import ServiceRanker, runnable_in
from unrank.forgetting.previous_requests import recognised
from unrank.record import Record, forgotten_requests, reserved_in


@dataclass(frozen=True)
class Batch:
    """Open requests that are forgotten together."""

    items: dict[int, list[Item]]
    """The items of each request that are in the collection, with their copies."""
    requests: list[Request]
    elsewhere: list[Request]
    """Open requests that do not fit this collection."""
    again: Removal
    """Items of earlier requests that this ranker has not forgotten."""
    earlier: Removal
    """Items of earlier requests that it has forgotten."""
    member: ServiceRanker | None = None
    """The ranker of the service that must forget them; `None` if the ledger belongs to one ranker."""
    later: tuple[Request, ...] = ()
    """Open requests that came after an unfinished run had begun."""
    copies: dict[int, list[Item]] = field(default_factory=dict)
    """The copies of items in the collection that their requests do not name yet; a run adds them."""
    left: dict[int, list[Item]] = field(default_factory=dict)
    """The copies of items that stay in the collection, as their requests say."""
    reserve: bool = False
    """Whether the training of the ranker left queries out."""
    there: frozenset[Item] = frozenset()
    """The substitutes that the collection holds, under their ids and with their texts."""

    @property
    def all_items(self) -> list[Item]:
        return [item for items in self.items.values() for item in items]

    @cached_property
    def removal(self) -> Removal:
        new = {old: new for these in self.substitutes.values() for old, new in these.items()}
        return replace(removal_of(self.all_items) | self.again, substitutes=new)

    @cached_property
    def substitutes(self) -> dict[int, dict[str, str]]:
        """For each request the documents that take the place of those that it names.

        One that the collection does not hold, or that is itself forgotten, takes no place.
        """
        removals = (removal_of(self.all_items), self.again, self.earlier)
        gone = {id for each in removals for id in (*each.documents, *(document for _, document in each.pairs))}
        usable = {item for item in self.there if item.document not in gone}
        return {id: _among(usable, these) for id, these in self.items.items()}

    def left_out(self, id: int) -> int:
        """Return how many substitutes of a request take no place."""
        return len(substitutes_of(self.items[id])) - len(self.substitutes[id])

    def holds(self, requests: Sequence[int]) -> bool:
        return self.items.keys() >= {*requests}

    def only(self, requests: Sequence[int]) -> Batch:
        """Return the batch with these requests alone; the others are later."""
        items = {id: these for id, these in self.items.items() if id in requests}
        kept = [request for request in self.requests if request.id in items]
        copies, left = ({id: of[id] for id in of if id in items} for of in (self.copies, self.left))
        later = tuple(each for each in self.requests if each.id not in items)
        return replace(self, items=items, requests=kept, later=later, copies=copies, left=left)

    def partition(self, collection: Collection) -> Partition:
        return make_partition(collection, self.removal, "what is open", self.earlier, reserve=self.reserve)

    def partition_of(self, collection: Collection, partition: Partition, id: int) -> Partition:
        """Return the partition of the batch with the pairs and the substitutes of one request alone."""
        pairs, of = collection.pairs, self.substitutes[id]
        own = pairs[named(collection, removal_of(self.items[id]))[0]]
        old, new = (collection.documents.rows([*ids]).tolist() for ids in (of.keys(), of.values()))
        return replace(partition, forget=own, substitutes=dict(zip(old, new, strict=True)))

    def pairs_apart(self, collection: Collection) -> list[Pairs]:
        """Return the training pairs of each request, and those of earlier requests that are forgotten again."""
        removals = [removal_of(these) for these in self.items.values()]
        rows = [named(collection, removal)[0] for removal in [*removals, *([self.again] if self.again else [])]]
        return [collection.pairs[own] for own in rows]

    def overlaps(self, collection: Collection) -> list[tuple[int, int, int]]:
        """Return pairs of requests that name the same training pairs, and the number of these."""
        naming: dict[int, list[int]] = {}
        for id in sorted(self.items):
            for row in np.flatnonzero(named(collection, removal_of(self.items[id]))[0]).tolist():
                naming.setdefault(row, []).append(id)
        both = Counter(two for ids in naming.values() for two in combinations(ids, 2))
        return [(one, other, pairs) for (one, other), pairs in sorted(both.items())]


def open_batch(
    ledger: Ledger, key: Key, collection: Collection, record: Record | None, member: ServiceRanker | None = None
) -> Batch:
    """Gather the requests that a run takes; `record` is the record of the ranker that must forget them."""
    requests = runnable_in(ledger, member)
    all_items = {request.id: ledger.items(request.id) for request in requests}
    asked = [item for these in all_items.values() for item in these]
    held = [item for item, here in zip(asked, in_collection(collection, asked), strict=True) if here]
    fit = set(held) - _no_training(collection, held)
    items = {id: here for id, these in all_items.items() if (here := _fitting(these, fit))}
    new = [item for these in items.values() for item in substitutes_of(these).values()]
    there = {item for item, here in zip(new, in_collection(collection, new), strict=True) if here}
    found = _copies(items, there, collection)
    left = {id: more for id, more in found.items() if ledger.leaves_copies(id)}
    copies = {id: more for id, more in found.items() if id not in left}
    items = {id: [*here, *copies.get(id, ())] for id, here in items.items()}
    there |= {item for more in found.values() for item in substitutes_of(more).values()}
    fitting = [request for request in requests if request.id in items]
    earlier = recognised(collection, forgotten_requests(record))
    asked_before = honoured_in(ledger, key, collection)
    return Batch(
        items,
        fitting,
        [request for request in requests if request.id not in items],
        _less(asked_before, earlier),
        earlier,
        member,
        copies=copies,
        left=left,
        reserve=bool(reserved_in(record, collection.fingerprint)),
        there=frozenset(there),
    )


def count_copies(ledger: Ledger, batch: Batch, id: int) -> dict[str, int]:
    """Return the number of copies in the collection that runs added to a request, and of those that stay."""
    added = [entry.values["names"] for entry in ledger.history(id) if entry.event == COPIES]
    counts = {"removed with it": sum(sum(names.values()) for names in added), "left": len(batch.left.get(id, ()))}
    return {what: number for what, number in counts.items() if number}


def _among(there: Set[Item], items: Sequence[Item]) -> dict[str, str]:
    """Return the ids of documents with those of their substitutes, as far as these are there."""
    return {old: str(new.document) for old, new in substitutes_of(items).items() if new in there}


def _fitting(items: Sequence[Item], fit: set[Item]) -> list[Item]:
    """Return the items that fit a collection; none if another item is not a copy of one of them."""
    here = [item for item in items if item in fit]
    if len(here) == len(items) or not here:
        return here
    sides = [[text for item in here if (text := getattr(item, side))] for side in ("query_text", "document_text")]
    queries, documents = map(WantedTexts, sides)

    def is_copy(item: Item) -> bool:
        same_query = item.query is None or bool(queries.matches(item.query_text or ""))
        return same_query and (item.document is None or bool(documents.matches(item.document_text or "")))

    return here if all(is_copy(item) for item in items if item not in fit) else []


def _copies(items: dict[int, list[Item]], there: Set[Item], collection: Collection) -> dict[int, list[Item]]:
    """Return, of each request that has some, the copies of its items in a collection that it does not name.

    `there` are the substitutes that the collection holds: they are no copies, and copies have them too.
    """
    removals = [replace(removal_of(these), substitutes=_among(there, these)) for these in items.values()]
    found = duplicates_of_each(collection, removals)
    return {id: items_of(each.removal, collection) for id, each in zip(items, found, strict=True) if each.removal}


def _no_training(collection: Collection, items: Sequence[Item]) -> set[Item]:
    """Return the items that no ranker was trained on: test queries, and pairs that are no training pairs."""
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
    """Return the items of fulfilled requests that are still in a collection's training pairs.

    Their ids and texts are recognised by keyed hashes.
    """
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
    """Return what the first removal names and the other does not.

    >>> _less(Removal(["a", "b"]), Removal(["b"])).queries
    ('a',)
    """
    return Removal(
        sorted({*removal.queries} - {*other.queries}),
        sorted({*removal.documents} - {*other.documents}),
        sorted({*removal.pairs} - {*other.pairs}),
    )
