"""The teacher: the right scores, each query asked once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.table import Listed, TableRanker, collection_of, random_lists, random_table
from unrank.collection.collection import Collection
from unrank.engine.runtime import Runtime
from unrank.engine.teacher import MIN_RANGE, Teacher
from unrank.engine.tokens import TokenStore
from unrank.errors import NotFinite
from unrank.rankers import create_ranker


def teacher_of(collection: Collection, ranker: TableRanker) -> Teacher:
    return Teacher(ranker, collection, TokenStore(ranker, collection), Runtime.on("cpu"))


def test_scores_and_ranges_are_those_of_the_whole_lists() -> None:
    lists = random_lists(0)
    collection = collection_of(lists, 14)
    ranker = random_table(collection, 0)
    scores = ranker.table.detach().numpy()
    pairs = collection.list_pairs(np.arange(len(lists)))
    pairs = pairs[np.random.default_rng(0).permutation(len(pairs))]
    view = teacher_of(collection, ranker).ask(pairs)
    for (query, document), score, low, span in zip(pairs.tolist(), *view, strict=True):
        listed = [scores[query, row] for row in (*lists[query].relevant, *lists[query].negatives)]
        assert score == scores[query, document]
        assert low == min(listed)
        assert span == max(listed) - min(listed)


def test_each_list_is_scored_once_however_often_it_is_asked_for() -> None:
    lists = random_lists(1)
    collection = collection_of(lists, 14)
    ranker = random_table(collection, 0)
    teacher = teacher_of(collection, ranker)
    assert ranker.asked == []
    pairs = collection.pairs
    first, second = pairs[pairs[:, 0] % 2 == 0], pairs[pairs[:, 0] % 3 == 0]
    for asked in (second, first, pairs, pairs[::-1], np.repeat(first, 3, axis=0)):
        view = teacher.ask(asked)
        assert view.score.tolist() == [ranker.table[query, document].item() for query, document in asked.tolist()]
    expected = [(int(query), int(document)) for query, document in collection.list_pairs(collection.training_queries)]
    assert sorted(ranker.asked) == sorted(expected)


def test_what_was_said_once_stays_though_the_ranker_moves() -> None:
    collection = collection_of(random_lists(2), 14)
    ranker = random_table(collection, 0)
    teacher = teacher_of(collection, ranker)
    before = teacher.ask(collection.pairs)
    ranker.table.data.zero_()
    for old, new in zip(before, teacher.ask(collection.pairs), strict=True):
        assert old.tolist() == new.tolist()


def test_a_query_whose_candidates_score_alike_still_has_a_range() -> None:
    collection = collection_of([Listed([0], [1, 2]), Listed([1], [2]), Listed([2], [0])], 3)
    ranker = TableRanker([[5, 5, 5], [0, 1, 1 + 1e-6], [3, 0, 7]])
    view = teacher_of(collection, ranker).ask(np.array([[0, 0], [1, 1], [2, 2]]))
    assert view.list_range.tolist() == pytest.approx([MIN_RANGE, MIN_RANGE, 4.0])
    assert view.list_min.tolist() == [5, 1, 3]
    assert all(values.dtype == np.float32 for values in view)


def test_given_scores_are_moved_to_its_own_level() -> None:
    """Of a query its own scores are 1 and 3, the given ones 10 and 14: they are 4 apart, around 2."""
    collection = collection_of([Listed([0], [1, 2]), Listed([1], [2])], 3)
    teacher = teacher_of(collection, TableRanker([[1, 3, 7], [5, 6, 8]]))
    held = teacher.holding(np.array([[0, 1], [0, 0]]), np.array([14, 10], np.float32))
    asked = np.array([[0, 0], [0, 1], [0, 2], [1, 1]])
    assert held.ask(asked).score.tolist() == held.answers(asked).tolist() == [0, 4, 7, 6]
    assert held.ask(asked[:1], list_ranges=False).score.tolist() == [0]
    assert held.with_lists(collection.list_pairs).ask(asked).score.tolist() == [0, 4, 7, 6]
    assert held.scores(asked).tolist() == teacher.ask(asked).score.tolist() == [1, 3, 7, 6]


def test_no_pairs_no_questions() -> None:
    collection = collection_of([Listed([0], [1])], 2)
    ranker = random_table(collection, 0)
    view = teacher_of(collection, ranker).ask(np.empty((0, 2), np.int64))
    assert [len(values) for values in view] == [0, 0, 0]
    assert ranker.asked == []


def test_a_broken_teacher_is_an_error() -> None:
    collection = collection_of([Listed([0], [1])], 2)
    with pytest.raises(NotFinite):
        teacher_of(collection, TableRanker([[0.0, float("nan")]])).ask(collection.pairs)


def test_a_real_ranker_says_what_it_scores(encoder: Path, dense: Collection) -> None:
    ranker = create_ranker("cross-encoder", str(encoder), 0)
    runtime = Runtime.on("cpu")
    teacher = Teacher(ranker, dense, TokenStore(ranker, dense), runtime)
    query = int(dense.pairs[0, 0])
    listed = dense.list_pairs(np.array([query]))
    texts = dense.documents.texts(listed[:, 1])
    direct = ranker.score_texts([dense.queries.text(query)] * len(texts), texts)
    view = teacher.ask(listed)
    assert view.score.tolist() == pytest.approx(direct, abs=1e-5)
    assert view.list_min[0] == pytest.approx(min(direct), abs=1e-5)
    assert view.list_range[0] == pytest.approx(max(max(direct) - min(direct), MIN_RANGE), abs=1e-5)
