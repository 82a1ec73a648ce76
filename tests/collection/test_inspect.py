"""Plain figures of a collection and of a removal."""

from __future__ import annotations

from tests.table import Listed, collection_of

from unrank.collection.collection import Collection
from unrank.collection.inspect import dataset_table, describe, describe_removal, pair_ids
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal


def test_the_golden_collection(golden: Collection) -> None:
    assert describe(golden) == {
        "name": "tiny",
        "queries": 5,
        "documents": 5,
        "pairs": 7,
        "training_queries": 5,
        "test_queries": 0,
        "test_pairs": 0,
        "candidates_per_query": 5.0,
        "relevant_per_query": 1.4,
        "queries_per_document": 1.4,
        "queries_with_several_documents": 2,
        "documents_with_several_queries": 2,
        "relevant_in_no_list": 0,
    }


def test_test_queries_are_counted_apart() -> None:
    lists = [Listed([0, 1], [2, 3]), Listed([1], [0]), Listed([0, 1, 2], [], test=True)]
    described = describe(collection_of(lists, 5))
    assert described["queries"] == 3
    assert described["training_queries"] == 2
    assert described["test_queries"] == 1
    assert (described["pairs"], described["test_pairs"]) == (3, 3)
    assert described["candidates_per_query"] == 3.0
    assert described["relevant_per_query"] == 1.5
    assert described["documents_with_several_queries"] == 1


def test_a_collection_without_training_pairs_has_no_means_to_divide() -> None:
    described = describe(collection_of([Listed([0], [1], test=True)], 2))
    assert described["pairs"] == 0
    assert described["relevant_per_query"] == described["queries_per_document"] == 0.0


def test_the_rows_of_the_papers_table() -> None:
    lists = [
        Listed([0, 1, 2], [3, 4]),
        Listed([1, 5], [3]),
        Listed([1], [0, 2, 3, 4]),
        Listed([6], [0, 1]),
        Listed([0], [1, 2, 3], test=True),
    ]
    assert dataset_table(collection_of(lists, 7)) == {
        "document_removal": {
            "queries_with_several_documents": 2,
            "documents_per_query": 2.5,
            "ranked_per_query": 4.0,
            "training_samples": 3,
            "test_samples": 3,
        },
        "query_removal": {
            "documents_with_several_queries": 1,
            "queries_per_document": 3.0,
            "ranked_per_query": 4.33,
            "training_samples": 7,
            "test_samples": 3,
        },
    }


def test_a_removal_as_ids(golden: Collection) -> None:
    partition = make_partition(golden, Removal(documents=["d2", "d3"]))
    described = describe_removal(golden, partition)
    assert sorted(described["forget"]) == [["q1", "d2"], ["q2", "d3"], ["q3", "d2"], ["q4", "d3"]]
    assert sorted(described["entangled"]) == [["q1", "d1"], ["q4", "d4"]]
    assert described["disjoint"] == [["q5", "d5"]]
    assert pair_ids(golden, partition.forget[:0]) == []
