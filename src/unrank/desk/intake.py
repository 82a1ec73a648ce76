"""Taking in a request: texts are found and chosen, what they touch is shown, and the request is added to the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Literal

import numpy as np

from unrank.collection.bm25 import Bm25, Found
from unrank.collection.collection import Collection
from unrank.collection.duplicates import Duplicates, find_duplicates
from unrank.collection.partition import Partition, make_partition
from unrank.collection.removal import Removal
from unrank.collection.texts import Texts
from unrank.desk.closing import scrub
from unrank.desk.key import Key
from unrank.desk.ledger import Ledger
from unrank.desk.request import Basis, Item, Request, items_of, substitutes_of
from unrank.errors import UnrankError

FOUND = 10
"""The most queries, and the most documents, that a search shows."""
Side = Literal["query", "document"]


@dataclass(frozen=True)
class Finder:
    """A search in the texts of a collection. Its index is made by the first search."""

    collection: Collection

    @cached_property
    def _indexes(self) -> dict[Side, tuple[Texts, Bm25]]:
        sides: dict[Side, Texts] = {"query": self.collection.queries, "document": self.collection.documents}
        return {side: (texts, Bm25.over(texts)) for side, texts in sides.items()}

    def find(self, words: str, most: int = FOUND) -> list[tuple[Side, Found]]:
        """Return the queries and the documents that match the words best."""
        if not words.strip():
            raise UnrankError("nothing to look for: give some words of the text")
        return [
            (side, Found(id, text))
            for side, (texts, index) in self._indexes.items()
            for rows, _ in index.best([words], most)
            for id, text in zip(texts.ids(rows), texts.texts(rows), strict=True)
        ]


@dataclass(frozen=True)
class Touched:
    """The items that a request names in a collection, and the training pairs that it touches."""

    removal: Removal
    """What is named, with its copies if they are removed too."""
    partition: Partition
    copies: Duplicates
    """The copies of what is named, and the test queries with a removed text."""
    leave_copies: bool
    untrained: list[str]
    """The ids of items in no training pair: no run changes them, and the filter drops them from new data."""


def touched(collection: Collection, named: Removal, leave_copies: bool, where: str = "the request") -> Touched:
    """Find the copies of what is named and the pairs that it touches; `where` is named in an error about an id."""
    copies = find_duplicates(collection, named, where)
    removal = named if leave_copies else named | copies.removal
    partition = make_partition(collection, removal, "the request")
    return Touched(removal, partition, copies, leave_copies, _untrained(collection, partition))


def add_request(
    ledger: Ledger, key: Key, collection: Collection, found: Touched, dates: tuple[date, date], basis: Basis
) -> Request:
    """Add a request to the ledger; its history must be whole."""
    ledger.verify_if_changed()
    scrub(ledger)
    items = items_of(found.removal, collection)
    with ledger.transaction():
        _check_substitutes(ledger, key, substitutes_of(items))
        return ledger.add(items, *dates, basis.value, key, leave_copies=found.leave_copies)


def _check_substitutes(ledger: Ledger, key: Key, new: Mapping[str, Item]) -> None:
    """Refuse a substitute that another request names, and a second one of a document that has one already."""
    gone = ledger.hashes("document") if new else set()
    for old, item in new.items():
        if gone.intersection(hashed for _, hashed in key.hashes(item)):
            raise UnrankError(f"the substitute {item.document!r} of {old!r} is in another request: name another one")
        others = "SELECT request, substitute FROM substitute WHERE document = ? AND substitute != ?"
        for request, other in ledger.ask(others, [old, item.document]):  # of pending requests: closing erases them
            where = f"request {request} replaces {old!r} by {other!r}"
            raise UnrankError(f"{where}: name the same one, or end that request first")


def _untrained(collection: Collection, partition: Partition) -> list[str]:
    sides = ((collection.queries, partition.queries, 0), (collection.documents, partition.documents, 1))
    return [id for texts, rows, side in sides for id in texts.ids(rows[~np.isin(rows, partition.forget[:, side])])]
