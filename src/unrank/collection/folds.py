"""Folds: the queries and the documents of a collection in several parts, by a hash of their ids.

A proxy that holds out a fold never sees its queries, nor its documents, neither as relevant ones nor as negatives.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.partition import Partition, named, of_reserved
from unrank.collection.removal import Removal
from unrank.collection.texts import Rows, Texts
from unrank.errors import UnrankError
from unrank.record import HeldOut

AT_ONCE = 65_536
"""The number of ids that are read at a time."""


def held_rows(texts: Texts, rows: Rows, held: HeldOut) -> Rows:
    """Return those of some queries, or of some documents, that are in the fold."""
    kind: Literal["query", "document"] = "query" if texts.what == "query" else "document"
    found = [rows[:0]]
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        found.append(some[np.array([held.holds(kind, id) for id in texts.ids(some)], bool)])
    return np.concatenate(found)


def held_part(removal: Removal, held: HeldOut | None) -> Removal:
    """Return what a proxy that holds out a fold never saw of a removal. A pair was not seen if one of its two was not.

    >>> held_part(Removal(queries=["q1"], pairs=[("q1", "d1")]), HeldOut(3, 2))
    Removal(queries=('q1',), documents=(), pairs=(('q1', 'd1'),), substitutes={})
    """
    if held is None:
        return Removal()
    return Removal(
        [id for id in removal.queries if held.holds("query", id)],
        [id for id in removal.documents if held.holds("document", id)],
        [pair for pair in removal.pairs if held.holds("query", pair[0]) or held.holds("document", pair[1])],
    )


def fold_partition(collection: Collection, held: HeldOut, removal: Removal) -> Partition:
    """Return the partition of a proxy's training: kept are the pairs outside the fold, the removal and the reserve."""
    pairs = collection.pairs
    gone, queries, documents = named(collection, removal)
    queries = np.union1d(queries, held_rows(collection.queries, collection.training_queries, held))
    documents = np.union1d(documents, held_rows(collection.documents, np.arange(len(collection.documents)), held))
    left_out, documents_left_out = of_reserved(collection)
    gone |= np.isin(pairs[:, 0], queries) | np.isin(pairs[:, 1], documents)
    kept = pairs[~gone & ~left_out]
    if not len(kept):
        raise UnrankError(
            f"no training pair is left without fold {held.fold} of {held.folds}: the collection is too small"
        )
    made = Partition(pairs[:0], pairs[:0], kept, queries, documents)
    return replace(made, reserved=pairs[left_out & ~gone], reserved_documents=documents_left_out)
