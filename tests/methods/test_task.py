"""What is drawn for a method: negatives that are not removed, and no more disjoint pairs than a request needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.table import Listed, as_set, collection_of, forgetting, random_lists, random_table, task_of
from unrank.methods import task as task_module
from unrank.methods.bad_teacher import NEGATIVES_SEEN, BadTeacher
from unrank.methods.base import Method
from unrank.methods.cocol import MIN_DISJOINT, Cocol
from unrank.methods.task import HardNegatives, Negatives


@pytest.mark.parametrize("at_once", [1, 3, 10_000])
def test_negatives_are_drawn_evenly_from_what_is_left_of_a_list(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_module, "QUERIES_AT_ONCE", at_once)
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
    monkeypatch.setattr(task_module, "QUERIES_AT_ONCE", 7)
    assert (negatives.draw(queries, np.random.default_rng(0))[0] == whole).all()


def test_whether_a_negative_is_left() -> None:
    collection = collection_of([Listed([0], [1]), Listed([1], [2]), Listed([2], [])], 3)
    negatives = Negatives(collection, np.array([1]))
    assert negatives.are_left(np.array([0, 1]))
    assert not negatives.are_left(np.array([0, 2]))


def test_half_of_the_disjoint_pairs_that_are_held_are_anchors() -> None:
    collection = collection_of([Listed([row], [40]) for row in range(40)], 41)
    task = task_of(collection, forgetting(collection, queries=[3]), random_table(collection, 0))
    anchors = task.partition.disjoint[:20]
    for some, most, expected in ((anchors, 16, 8), (anchors[:5], 16, 5), (anchors, 36, 18), (anchors, 38, 19)):
        held = replace(task, anchors=some).limit_disjoint(most).partition.disjoint
        assert len(as_set(held)) == most
        assert len(as_set(held) & as_set(some)) == expected
    assert as_set(task.limit_disjoint(16).partition.disjoint) <= as_set(task.partition.disjoint)


def test_hard_negatives_that_are_given_are_the_only_ones_of_their_query() -> None:
    collection = collection_of([Listed([row], [4, 5, 6, 7]) for row in range(4)], 8)
    task = task_of(collection, forgetting(collection, queries=[3]), random_table(collection, 0))
    given, others = np.array([[1, 4], [1, 6]]), collection.negatives.pairs(np.array([0, 2]))
    hard = HardNegatives(others, task.teacher, 2, given)
    drawn, has = hard.draw(np.repeat(np.arange(3), 50), np.random.default_rng(0))
    assert has.all() and as_set(drawn[drawn[:, 0] == 1]) == {(1, 4), (1, 6)}
    for query in (0, 2):
        best = np.argsort(-task.teacher.scores(collection.negatives.pairs(np.array([query]))))[:2] + 4
        assert as_set(drawn[drawn[:, 0] == query]) == {(query, int(document)) for document in best}


def test_a_small_request_holds_a_bounded_share_of_the_rest() -> None:
    queries = 2 * MIN_DISJOINT
    collection = collection_of([Listed([row], [row + 1]) for row in range(queries)], queries + 1)
    partition = forgetting(collection, queries=[3])
    ranker = random_table(collection, 0)
    task = task_of(collection, partition, ranker)
    forget, hold = Cocol().plan(task)
    assert forget.size == hold.size == Cocol().min_steps ** 2 < MIN_DISJOINT
    assert not ranker.asked  # a plan is for free
    Cocol().prepare(task)
    assert len({query for query, _ in ranker.asked}) == 1 + MIN_DISJOINT
    before = len(ranker.asked)
    for phase in (forget, hold):
        phase.draw(np.random.default_rng(0), 1)
    assert len(ranker.asked) == before
    held = task.limit_disjoint(50)
    assert len(held.partition.disjoint) == 50
    assert as_set(held.partition.disjoint) <= as_set(partition.disjoint)
    assert (task.limit_disjoint(50).partition.disjoint == held.partition.disjoint).all()
    assert task.limit_disjoint(len(partition.disjoint)) is task


def test_thinned_negatives_are_spread_over_the_list_and_none_of_them_is_removed() -> None:
    collection = collection_of([Listed([0], range(1, 101)), Listed([1], range(90, 100)), Listed([2], [])], 101)
    negatives = Negatives(collection, np.array([95])).thinned(24)
    rows = np.arange(3)
    pairs = negatives.pairs(rows)
    first, second = (pairs[pairs[:, 0] == row, 1] for row in (0, 1))
    assert len(first) == 24 and np.diff(first).max() <= 6 and first.max() >= 97
    assert second.tolist() == [row for row in range(90, 100) if row != 95]
    assert not (pairs[:, 0] == 2).any()
    drawn, has = negatives.draw(np.repeat(rows, 300), np.random.default_rng(0))
    assert has.tolist() == [True] * 600 + [False] * 300
    assert as_set(drawn[has]) == as_set(pairs)


def test_a_glance_asks_the_teacher_for_no_more_than_may_be_drawn() -> None:
    collection = collection_of([Listed([row], range(10, 110)) for row in range(6)], 110)
    partition = forgetting(collection, queries=[0])
    ranker = random_table(collection, 0)
    task = task_of(collection, partition, ranker).limit_negatives(5)
    view = task.teacher.ask(partition.retain)
    assert len(ranker.asked) == len(partition.retain) * (1 + 5)
    for (query, _), low, span in zip(partition.retain.tolist(), view.list_min, view.list_range, strict=True):
        mine = [ranker.table[pair].item() for pair in ranker.asked if pair[0] == query]
        assert (low, span) == (min(mine), pytest.approx(max(mine) - min(mine)))
    drawn, _ = task.negatives.draw(partition.retain[:, 0], np.random.default_rng(0))
    task.teacher.ask(drawn)
    assert len(ranker.asked) == len(partition.retain) * (1 + 5)


@pytest.mark.parametrize("method", [BadTeacher(teacher="disobey"), Cocol(without_disjoint=True)])
def test_what_was_prepared_needs_no_more_questions(method: Method) -> None:
    collection = collection_of([Listed([row], range(10, 110)) for row in range(6)], 110)
    partition = forgetting(collection, queries=[0])
    ranker = random_table(collection, 0)
    task = task_of(collection, partition, ranker)
    method.prepare(task)
    asked = {query for query, _ in ranker.asked}
    assert asked == ({0} if isinstance(method, Cocol) else set(range(6)))
    negatives_seen = method.negatives_seen if isinstance(method, Cocol) else NEGATIVES_SEEN
    assert len(ranker.asked) == len(asked) * (1 + negatives_seen)
    for phase in method.plan(task):
        phase.draw(np.random.default_rng(0), 1)
    assert len(ranker.asked) == len(asked) * (1 + negatives_seen)
