"""Folds: each query and each document is in exactly one, and a proxy's training never touches its own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.table import Listed, as_set, collection_of

from unrank.collection.folds import fold_partition, held_part, held_rows
from unrank.collection.partition import reserved_documents, reserved_queries
from unrank.collection.removal import Removal
from unrank.errors import UnrankError
from unrank.methods.task import Negatives
from unrank.record import HeldOut

COLLECTION = collection_of(
    [Listed([row % 23, (row + 5) % 23], [(row + 1) % 23, (row + 9) % 23]) for row in range(150)], 23
)


@given(st.integers(2, 9), st.integers(0, 99))
@settings(max_examples=20)
def test_folds_cover_everything_exactly_once(folds: int, seed: int) -> None:
    held = [HeldOut(folds, fold, seed) for fold in range(1, folds + 1)]
    for texts in (COLLECTION.queries, COLLECTION.documents):
        everything = np.arange(len(texts))
        assert sorted(np.concatenate([held_rows(texts, everything, each) for each in held])) == everything.tolist()
    removal = Removal(["q1", "q2"], ["d3"], [("q4", "d9")])
    parts = [held_part(removal, each) for each in held]
    assert Removal.union(parts) == removal
    assert sum(len(part.queries) + len(part.documents) for part in parts) == 3
    assert not held_part(removal, None)


@pytest.mark.parametrize("fold", [1, 2, 3])
def test_a_proxy_never_sees_its_fold_nor_reserved_or_removed_texts(fold: int) -> None:
    held, removal = HeldOut(3, fold), Removal(["q0"], ["d1"])
    partition = fold_partition(COLLECTION, held, removal)
    queries = {row for row in range(150) if held.holds("query", f"q{row}")}
    documents = {row for row in range(23) if held.holds("document", f"d{row}")} | {1}
    documents |= {*reserved_documents(COLLECTION).tolist()}
    unseen = queries | {0} | {*reserved_queries(COLLECTION).tolist()}
    kept = as_set(partition.retain)
    assert kept == {pair for pair in as_set(COLLECTION.pairs) if pair[0] not in unseen and pair[1] not in documents}
    negatives = Negatives(COLLECTION, partition.no_negatives).pairs(partition.retain[:, 0])
    assert not documents & {*negatives[:, 1].tolist()}


def test_a_collection_can_be_too_small_for_folds() -> None:
    small = collection_of([Listed([0])], 1)
    with pytest.raises(UnrankError, match="too small"):
        for fold in (1, 2):
            fold_partition(small, HeldOut(2, fold), Removal())
