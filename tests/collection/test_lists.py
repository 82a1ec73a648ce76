"""The lists to rank: how many relevant documents, which negatives, and from where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.collection.sources.by_id import negatives_of, relevant_of

from unrank.collection.build import build_collection
from unrank.collection.collection import Collection, Ragged
from unrank.collection.lists import group, lay_end_to_end, listed_relevant, make_negatives
from unrank.collection.options import ImportOptions
from unrank.collection.sources.source import Candidate, Judgement, Raw, Text
from unrank.collection.texts import Texts
from unrank.errors import UnknownIds

WORDS = ["heap", "queue", "tree", "graph", "list"]


def texts(what: str, values: Sequence[str]) -> Texts:
    ids = [f"{what[0]}{row}" for row in range(len(values))]
    return Texts(what, pa.table({"id": pa.array(ids, pa.string()), "text": pa.array(values, pa.string())}))


def as_lists(ragged: Ragged) -> list[list[int]]:
    return [ragged[row].tolist() for row in range(len(ragged.offsets) - 1)]


def negatives(
    relevant: Sequence[Sequence[int]],
    documents: Sequence[str],
    most: int,
    run: Iterable[Candidate] | None = None,
    queries: Sequence[str] = (),
    seed: int = 0,
) -> list[list[int]]:
    asked = texts("query", queries or ["heap"] * len(relevant))
    ragged = lay_end_to_end([np.array(row, np.int32) for row in relevant])
    return as_lists(make_negatives(run, ragged, asked, texts("document", documents), most, seed))


def large(out: Path, seed: int = 0, relevant: int = 25) -> Collection:
    """A training and a test query with 40 relevant documents each, among 60."""

    def relevant_to(query: str, rows: range) -> list[Judgement]:
        return [Judgement(query, f"d{row}", 1) for row in rows]

    source = Raw(
        "large",
        lambda: [Text(id, f"{id} tree") for id in ("big", "small", "other")],
        lambda: [Text(f"d{row}", f"tree {row}") for row in range(60)],
        {
            "train": lambda: relevant_to("big", range(40)) + relevant_to("small", range(3)),
            "test": lambda: relevant_to("other", range(10, 50)),
        },
    )
    return build_collection(source, out, ImportOptions(candidates=12, seed=seed, relevant=relevant))


def test_a_query_lists_25_relevant_documents_and_no_other_of_them(tmp_path: Path) -> None:
    collection = large(tmp_path / "out")
    relevant, others = relevant_of(collection), negatives_of(collection)
    assert {query: len(listed) for query, listed in relevant.items()} == {"big": 25, "small": 3, "other": 25}
    assert set(relevant["big"]) <= {f"d{row}" for row in range(40)}
    assert set(others["big"]) <= {f"d{row}" for row in range(40, 60)}
    assert set(others["other"]) <= {f"d{row}" for row in [*range(10), *range(50, 60)]}
    assert {query: len(set(listed)) for query, listed in others.items()} == {"big": 12, "small": 12, "other": 10 + 2}
    assert collection.unlisted == 15 + 15
    assert len(collection.pairs) == 28
    assert len(collection.judged) == 83


def test_which_25_is_a_matter_of_the_seed(tmp_path: Path) -> None:
    one, again, other = (relevant_of(large(tmp_path / str(place), seed)) for place, seed in enumerate([0, 0, 1]))
    assert one == again
    assert one["big"] != other["big"]
    assert one["big"] != one["other"]


def test_the_option_counts_for_training_queries_only(tmp_path: Path) -> None:
    collection = large(tmp_path / "out", relevant=2)
    assert collection.relevant.counts.tolist() == [2, 2, 25]
    assert collection.unlisted == 38 + 1 + 15


def test_the_draw_does_not_depend_on_the_order_of_the_documents() -> None:
    ids = [f"d{row}" for row in range(40)]
    queries = texts("query", ["tree"])
    kept = []
    for order in (ids, ids[::-1]):
        documents = Texts("document", pa.table({"id": pa.array(order), "text": pa.array(order)}))
        everything = lay_end_to_end([np.arange(40)])
        listed = listed_relevant(everything, np.array([25]), documents, queries, 0)
        kept.append({order[row] for row in listed[0]})
    assert kept[0] == kept[1]
    assert len(kept[0]) == 25


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_negatives_are_never_relevant_stand_once_and_are_as_many_as_there_can_be(data: st.DataObject) -> None:
    documents = data.draw(st.lists(st.sampled_from([*WORDS, "", "the"]), min_size=1, max_size=12))
    rows = st.integers(0, len(documents) - 1)
    relevant = data.draw(st.lists(st.sets(rows).map(sorted), min_size=1, max_size=3))
    queries = data.draw(st.lists(st.sampled_from([*WORDS, ""]), min_size=len(relevant), max_size=len(relevant)))
    most = data.draw(st.integers(1, 14))
    made = negatives(relevant, documents, most, queries=queries)
    assert made == negatives(relevant, documents, most, queries=queries)
    for listed, wanted in zip(made, relevant, strict=True):
        assert len(listed) == len(set(listed)) == min(most, len(documents) - len(wanted))
        assert not set(listed) & set(wanted)


def test_matching_documents_come_first_and_drawn_ones_fill_up() -> None:
    documents = ["stone"] * 300
    documents[7], documents[20], documents[33] = "heap heap", "heap", "heap and a great many other words"
    [listed] = negatives([[20]], documents, 10)
    assert listed[:2] == [7, 33]
    assert len(set(listed)) == 10
    [other] = negatives([[20]], documents, 10, seed=1)
    assert other[:2] == [7, 33]
    assert other != listed


def test_a_run_gives_its_best_that_are_not_relevant_in_its_order() -> None:
    run = [Candidate("q0", f"d{row}") for row in (4, 2, 4, 0, 3, 1)]
    assert negatives([[0]], WORDS, 3, run) == [[4, 2, 3]]
    assert negatives([[0]], WORDS, 10, run) == [[4, 2, 3, 1]]
    assert negatives([[2, 4]], WORDS, 2, run) == [[0, 3]]


def test_the_queries_of_a_run_may_be_mixed() -> None:
    run = [Candidate("q0", "d3"), Candidate("q1", "d4"), Candidate("q0", "d1"), Candidate("q1", "d0")]
    assert negatives([[0], [1]], WORDS, 5, run) == [[3, 1], [4, 0]]


def test_a_query_that_the_run_does_not_name_has_its_list_from_words() -> None:
    documents = ["heap", "stone", "heap of tree", "tree"]
    run = [Candidate("q1", "d3"), Candidate("q0", "d0"), Candidate("unused", "d1")]
    # The run of q0 holds nothing but what is relevant to it, and q2 is not in the run.
    made = negatives([[0], [0], [3]], documents, 2, run, queries=["heap", "tree", "tree"])
    assert made[0][0] == 2
    assert made[1] == [3]
    assert made[2][0] == 2
    assert [len(listed) for listed in made] == [2, 1, 2]


def test_a_run_that_names_unknown_documents() -> None:
    run = [Candidate("q0", "d1"), Candidate("q0", "d9"), Candidate("q0", "d8"), Candidate("unused", "d7")]
    with pytest.raises(UnknownIds, match="the run: 2 document ids not in the collection: 'd8', 'd9'"):
        negatives([[0]], WORDS, 3, run)


def test_no_candidates_on_demand(tmp_path: Path) -> None:
    source = Raw(
        "bare",
        lambda: [Text("q", "heap")],
        lambda: [Text("d", "heap"), Text("e", "tree")],
        {"train": lambda: [Judgement("q", "d", 1)]},
        lambda: [Candidate("q", "e")],
    )
    assert negatives_of(build_collection(source, tmp_path / "none", ImportOptions(candidates=0))) == {"q": []}
    assert negatives_of(build_collection(source, tmp_path / "some", ImportOptions())) == {"q": ["e"]}


def test_groups_keep_the_order_of_their_values() -> None:
    grouped = group(np.array([2, 0, 2, 0]), np.array([9, 8, 7, 6]), 4)
    assert as_lists(grouped) == [[8, 6], [], [9, 7], []]
    assert grouped.pairs(np.array([2, 1, 0])).tolist() == [[2, 9], [2, 7], [0, 8], [0, 6]]
    assert as_lists(lay_end_to_end([])) == []
