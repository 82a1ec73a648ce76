"""The scorecard against a second writing of its rules, on plain dicts, one query at a time."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.evaluation.test_measure import slow_ndcg, slow_reciprocal
from tests.table import Listed, TableRanker, as_set, collection_of, forgetting, random_lists, random_table

from unrank.cli.option import MEASURED
from unrank.collection.collection import Collection
from unrank.collection.partition import Partition, split_pairs
from unrank.engine.runtime import Runtime
from unrank.engine.scoring import scores_of
from unrank.engine.tokens import TokenStore
from unrank.errors import NotFinite
from unrank.evaluation.scorecard import MOST_QUERIES, Evaluator, Scorecard, Scorer, SetMetrics

Pair = tuple[int, int]


@dataclass(frozen=True)
class Slow:
    """Reciprocal rank and nDCG of each query of a set."""

    reciprocal: dict[int, float]
    ndcg: dict[int, float]


def slow_set(
    lists: Sequence[Listed], scores: list[list[int]], wanted: Set[Pair], gone: Set[int], forget: bool, full: bool
) -> Slow:
    """`wanted` are the pairs of the set, `gone` the removed documents."""
    measured = Slow({}, {})
    for query in sorted({query for query, _ in wanted}):
        targets = {document for other, document in wanted if other == query}
        shown = [*lists[query].relevant, *lists[query].negatives]
        if not full:
            shown = [document for document in shown if document in targets or document not in lists[query].relevant]
        if not forget:
            shown = [document for document in shown if document not in gone]
        entries = [(scores[query][document], document in targets) for document in shown]
        measured.reciprocal[query] = slow_reciprocal(entries, ties_first=forget)
        measured.ndcg[query] = slow_ndcg(entries, ties_first=forget)
    return measured


def slow_scorecard(
    lists: Sequence[Listed], scores: list[list[int]], queries: Set[int], documents: Set[int], single: Set[Pair]
) -> dict[str, Slow]:
    pairs = {(query, document) for query, row in enumerate(lists) if not row.test for document in row.relevant}
    forget = {x for x in pairs if x[0] in queries or x[1] in documents or x in single}
    kept = pairs - forget
    entangled = {x for x in kept if any(x[0] == y[0] or x[1] == y[1] for y in forget)}
    tests = {(query, document) for query, row in enumerate(lists) if row.test for document in row.relevant}
    tests = {x for x in tests if x[1] not in documents}
    return {
        "forget": slow_set(lists, scores, forget, documents, forget=True, full=False),
        "entangled": slow_set(lists, scores, entangled, documents, forget=False, full=False),
        "disjoint": slow_set(lists, scores, kept - entangled, documents, forget=False, full=False),
        "test": slow_set(lists, scores, tests, documents, forget=False, full=False),
        "forget_full": slow_set(lists, scores, forget, documents, forget=True, full=True),
    }


def scorer_of(collection: Collection, ranker: TableRanker) -> Scorer:
    store, runtime = TokenStore(ranker, collection), Runtime.on("cpu")
    return lambda pairs: scores_of(ranker, store, pairs, runtime)


def card_of(collection: Collection, partition: Partition | None, ranker: TableRanker) -> Scorecard:
    return Evaluator(collection, partition).scorecard(scorer_of(collection, ranker))


def check(measured: SetMetrics | None, expected: Slow) -> None:
    if not expected.reciprocal:
        assert measured is None
        return
    assert measured is not None
    assert dict(zip(measured.queries.tolist(), measured.reciprocal.tolist(), strict=True)) == expected.reciprocal
    assert measured.mean == pytest.approx(sum(expected.reciprocal.values()) / len(expected.reciprocal))
    assert measured.ndcg == pytest.approx(sum(expected.ndcg.values()) / len(expected.ndcg))
    assert measured.low - 1e-9 <= measured.mean <= measured.high + 1e-9


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from(["queries", "documents", "pairs", "mix"]), st.integers(2, 6))
def test_as_written_slowly(seed: int, kind: str, values: int) -> None:
    lists = random_lists(seed)
    collection = collection_of(lists, 14)
    generator = random.Random(seed)
    queries = set(generator.sample(range(12), 3)) if kind in ("queries", "mix") else set()
    documents = set(generator.sample(range(14), 2)) if kind in ("documents", "mix") else set()
    single = set(generator.sample(sorted(as_set(collection.pairs)), 3)) if kind in ("pairs", "mix") else set()
    ranker = random_table(collection, seed, values)
    pairs = collection.pairs
    marked = np.isin(pairs[:, 0], list(queries)) | np.isin(pairs[:, 1], list(documents))
    marked |= np.array([tuple(x) in single for x in pairs.tolist()])
    partition = split_pairs(pairs, marked, np.array(sorted(queries), np.int64), np.array(sorted(documents), np.int64))
    scores = ranker.table.detach().long().tolist()
    expected = slow_scorecard(lists, scores, queries, documents, single)
    evaluator, score = Evaluator(collection, partition), scorer_of(collection, ranker)
    card = evaluator.scorecard(score)
    for name, slow in expected.items():
        check(getattr(card, name), slow)
    if card.forget is not None:
        assert evaluator.forget_mrr(score) == card.forget.mean
    for name in ("entangled", "disjoint"):
        if (measured := getattr(card, name)) is not None:
            assert evaluator.mrr(score, getattr(partition, name)) == measured.mean
    watched = evaluator.watch(score, 100)
    assert watched == {name: getattr(card, name).mean for name in watched}
    assert set(watched) == {name for name in ("entangled", "disjoint", "test") if getattr(card, name) is not None}


@pytest.mark.parametrize("gone", ["queries", "documents"])
def test_a_ranker_that_scores_all_alike_gets_the_worst_of_everything(gone: str) -> None:
    lists = random_lists(1)
    collection = collection_of(lists, 14)
    partition = forgetting(collection, **{gone: [1, 2, 3]})
    removed = set(partition.documents.tolist())
    card = card_of(collection, partition, TableRanker(torch.zeros(len(lists), 14)))
    assert card.forget is not None
    assert card.forget_full is not None
    assert card.forget.mean == card.forget_full.mean == card.forget.low == card.forget.high == 1.0
    for measured in (card.entangled, card.disjoint, card.test):
        assert measured is not None
        for query, value in zip(measured.queries.tolist(), measured.reciprocal.tolist(), strict=True):
            assert value == 1 / (len(set(lists[query].negatives) - removed) + 1)


def test_the_papers_example() -> None:
    """The ranking [d1, d3, d4, d2], of which d1 and d2 are relevant, and d2 is removed."""
    collection = collection_of([Listed([1, 2], [3, 4])], 5)
    ranker = TableRanker([[0, 4, 1, 3, 2]])
    card = card_of(collection, forgetting(collection, documents=[2]), ranker)
    assert card.forget is not None
    assert card.forget_full is not None
    assert card.forget.mean == pytest.approx(1 / 3)
    assert card.forget_full.mean == 0.25


def test_other_right_answers_neither_help_nor_stand_in_the_way() -> None:
    collection = collection_of([Listed([0, 1, 2], [3]), Listed([2], [3])], 4)
    ranker = TableRanker([[9, 1, 8, 5], [1, 0, 7, 5]])
    partition = split_pairs(collection.pairs, np.array([False, True, False, False]))  # the pair (q0, d1) alone
    card = card_of(collection, partition, ranker)
    assert card.forget is not None
    assert card.entangled is not None
    assert card.disjoint is not None
    assert card.forget.mean == 1 / 2
    assert card.entangled.mean == 1
    assert card.entangled.queries.tolist() == [0]
    assert card.disjoint.mean == 1


def test_removed_documents_leave_the_lists_of_what_is_kept() -> None:
    """d9 outranks everything and is removed: it stands before nothing that is kept, test queries included."""
    lists = [
        Listed([9], [1, 2]),
        Listed([0, 9], [2, 3]),  # entangled
        Listed([4], [9, 3]),  # disjoint, with d9 among its negatives
        Listed([5], [9, 3], test=True),
        Listed([9, 6], [3], test=True),  # one of its two right answers is gone
        Listed([9], [3], test=True),  # nothing is left to ask for
    ]
    table = np.full((6, 10), 1)
    table[:, 9] = 100
    table[[1, 2, 3, 4], [0, 4, 5, 6]] = 50
    collection = collection_of(lists, 10)
    card = card_of(collection, forgetting(collection, documents=[9]), TableRanker(table))
    for measured, queries in ((card.entangled, [1]), (card.disjoint, [2]), (card.test, [3, 4])):
        assert measured is not None
        assert measured.queries.tolist() == queries
        assert measured.mean == measured.ndcg == 1.0
    assert card.forget is not None
    assert card.forget.queries.tolist() == [0, 1]
    assert card.forget.mean == 1.0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_score_that_is_no_number_is_an_error(value: float) -> None:
    collection = collection_of([Listed([0], [1]), Listed([1], [2]), Listed([2], [3], test=True)], 4)
    partition = forgetting(collection, queries=[0])
    table = np.zeros((3, 4))
    table[2, 3] = value
    ranker = TableRanker(table)
    with pytest.raises(NotFinite, match="1 of 6 scores"):
        card_of(collection, partition, ranker)
    assert (
        Evaluator(collection, partition).forget_mrr(scorer_of(collection, ranker)) == 1.0
    )  # does not look at the test query
    table[0, 1] = value
    with pytest.raises(NotFinite):
        Evaluator(collection, partition).forget_mrr(scorer_of(collection, TableRanker(table)))


def test_a_set_without_a_query_is_none() -> None:
    collection = collection_of([Listed([0], [1, 2]), Listed([1], [2])], 3)
    ranker = TableRanker([[3, 2, 1], [3, 2, 1]])
    card = card_of(collection, forgetting(collection, queries=[0]), ranker)
    assert card.entangled is None
    assert card.test is None
    written = json.loads(json.dumps(card.to_json()))
    assert written["entangled"] is None
    assert written["test"] is None
    assert written["forget"] == {"mrr": 1.0, "low": 1.0, "high": 1.0, "ndcg@10": 1.0, "queries": 1}
    assert list(written) == ["forget", "entangled", "disjoint", "test", "forget_full"]


def test_with_nothing_removed_all_is_disjoint() -> None:
    lists = random_lists(3)
    collection = collection_of(lists, 14)
    card = card_of(collection, None, random_table(collection, 0))
    assert card.forget is None
    assert card.forget_full is None
    assert card.entangled is None
    assert card.disjoint is not None
    assert card.disjoint.queries.tolist() == collection.training_queries.tolist()


def test_a_change_is_measured_query_by_query() -> None:
    collection = collection_of(random_lists(2), 14)
    partition = forgetting(collection, queries=[0, 1, 2, 3])
    ranker = random_table(collection, 0)
    before = card_of(collection, partition, ranker)
    after = card_of(collection, partition, TableRanker(ranker.table.detach() * 2 + 1))  # the same order everywhere
    assert before.disjoint is not None
    assert after.disjoint is not None
    assert after.disjoint.change_since(before.disjoint) == (0.0, 0.0)
    other = card_of(collection, partition, random_table(collection, 1)).disjoint
    assert other is not None
    low, high = other.change_since(before.disjoint)
    assert low <= other.mean - before.disjoint.mean <= high


def test_the_same_ranker_gets_the_same_card() -> None:
    collection = collection_of(random_lists(2), 14)
    partition, ranker = forgetting(collection, documents=[1, 5]), random_table(collection, 0, values=4)
    assert card_of(collection, partition, ranker).to_json() == card_of(collection, partition, ranker).to_json()


def test_to_steer_no_other_right_answer_and_no_other_query_is_scored() -> None:
    collection = collection_of([Listed([0, 1], [2]), Listed([1], [3]), Listed([4], [2])], 5)
    ranker = random_table(collection, 0)
    Evaluator(collection, forgetting(collection, documents=[1])).forget_mrr(scorer_of(collection, ranker))
    assert sorted(ranker.asked) == [(0, 1), (0, 2), (1, 1), (1, 3)]


def test_several_sets_are_measured_each_by_itself_and_no_pair_is_scored_twice() -> None:
    """Two sets of one query: neither's documents stand in the other's list."""
    collection = collection_of([Listed([0, 1], [2, 3]), Listed([1], [3]), Listed([4], [2])], 5)
    ranker = random_table(collection, 0)
    evaluator, score = Evaluator(collection, None), scorer_of(collection, ranker)
    sets = [np.array(some, np.int64) for some in ([[0, 0], [2, 4]], [[0, 1], [1, 1]], [[0, 1]])]
    alone = [evaluator.reciprocals(score, some, forget=True).tolist() for some in sets]
    ranker.asked.clear()
    assert [ranks.tolist() for ranks in evaluator.reciprocals_of_each(score, sets, forget=True)] == alone
    assert len(set(ranker.asked)) == len(ranker.asked) == 8


def test_a_large_set_is_measured_on_a_sample_and_the_forget_set_whole() -> None:
    lists = [Listed([row % 7], [7 + row % 5]) for row in range(60)]
    lists += [Listed([3], [8], test=True) for _ in range(20)]
    collection = collection_of(lists, 14)
    partition = forgetting(collection, queries=list(range(9)))
    ranker = random_table(collection, 0)
    evaluator, whole = Evaluator(collection, partition, 5), card_of(collection, partition, ranker)
    card = evaluator.scorecard(scorer_of(collection, ranker))
    assert card.forget is not None
    assert card.forget.queries.tolist() == list(range(9))
    for name in ("entangled", "disjoint", "test"):
        sampled, full = getattr(card, name), getattr(whole, name)
        if full is None:
            continue
        assert len(sampled.queries) == min(5, len(full.queries))
        assert evaluator.set_queries[name] == len(full.queries)
        place = np.searchsorted(full.queries, sampled.queries)
        assert (full.queries[place] == sampled.queries).all()
        assert (full.reciprocal[place] == sampled.reciprocal).all()
    again = Evaluator(collection, forgetting(collection, queries=[9]), 5).scorecard(scorer_of(collection, ranker))
    assert card.test is not None
    assert again.test is not None
    assert card.test.queries.tolist() == again.test.queries.tolist()  # whatever is removed


def test_zero_stands_for_all_and_the_door_says_the_same_number() -> None:
    collection = collection_of([Listed([0], [1]), Listed([1], [2]), Listed([2], [0])], 3)
    ranker = random_table(collection, 0)
    card = Evaluator(collection, forgetting(collection, queries=[0]), 0).scorecard(scorer_of(collection, ranker))
    assert card.disjoint is not None
    assert len(card.disjoint.queries) == 2
    assert MEASURED == MOST_QUERIES
