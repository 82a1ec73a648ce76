"""What is drawn for a method: negatives that are not removed, and no more disjoint pairs than a request needs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.table import Listed, as_set, collection_of, forgetting, random_lists, random_table, task_of
from unrank.methods import base
from unrank.methods.base import Negatives
from unrank.methods.cocol import LEAST_HELD, Cocol


@pytest.mark.parametrize("at_once", [1, 3, 10_000])
def test_negatives_are_drawn_evenly_from_what_is_left_of_a_list(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "QUERIES_AT_ONCE", at_once)
    lists = random_lists(0)
    collection, removed = collection_of(lists, 14), {1, 5, 7}
    negatives = Negatives(collection, np.array(sorted(removed)))
    queries = np.tile(np.arange(len(lists)), 200)
    drawn, has = negatives.draw(queries, np.random.default_rng(0))
    expected = {(query, document) for query, listed in enumerate(lists) for document in set(listed.negatives) - removed}
    assert as_set(drawn[has]) == expected
    assert set(queries[~has].tolist()) == {
        query for query, listed in enumerate(lists) if not set(listed.negatives) - removed
    }


def test_the_blocks_do_not_change_what_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    collection = collection_of(random_lists(1), 14)
    queries = np.random.default_rng(1).integers(12, size=500)
    negatives = Negatives(collection, np.array([2]))
    whole, _ = negatives.draw(queries, np.random.default_rng(0))
    monkeypatch.setattr(base, "QUERIES_AT_ONCE", 7)
    assert (negatives.draw(queries, np.random.default_rng(0))[0] == whole).all()


def test_whether_a_negative_is_left() -> None:
    collection = collection_of([Listed([0], [1]), Listed([1], [2]), Listed([2], [])], 3)
    negatives = Negatives(collection, np.array([1]))
    assert negatives.are_left(np.array([0, 1]))
    assert not negatives.are_left(np.array([0, 2]))


def test_a_small_request_holds_a_bounded_share_of_the_rest() -> None:
    queries = 2 * LEAST_HELD
    collection = collection_of([Listed([row], [row + 1]) for row in range(queries)], queries + 1)
    parts = forgetting(collection, queries=[3])
    task = task_of(collection, parts, random_table(collection_of([Listed([0])], 1), 0))
    forget, hold = Cocol().plan(task)
    assert (forget.size, hold.size) == (1, LEAST_HELD)
    held = task.holding(50)
    assert len(held.parts.disjoint) == 50
    assert as_set(held.parts.disjoint) <= as_set(parts.disjoint)
    assert (task.holding(50).parts.disjoint == held.parts.disjoint).all()
    assert task.holding(len(parts.disjoint)) is task
