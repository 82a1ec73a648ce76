"""Forget, entangled, disjoint: by hand, and against a second writing that is slow and plain."""

from __future__ import annotations

import random
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.table import Listed, as_set, collection_of
from tests.tiny import GOLDEN, make_collection

from unrank.collection.collection import Collection
from unrank.collection.inspect import describe_removal
from unrank.collection.partition import (
    make_partition,
    reserved_documents,
    reserved_queries,
    split_pairs,
    whole_partition,
)
from unrank.collection.removal import Removal
from unrank.errors import UnknownIds, UnrankError

SIZE = 6
Pair = tuple[int, int]
rows = st.integers(0, SIZE - 1)
pair = st.tuples(rows, rows)


@dataclass(frozen=True)
class Sets:
    forget: Set[Pair]
    entangled: Set[Pair]
    disjoint: Set[Pair]


def slow_partition(pairs: Set[Pair], queries: Set[int], documents: Set[int], single: Set[Pair]) -> Sets:
    forget = {x for x in pairs if x[0] in queries or x[1] in documents or x in single}
    kept = pairs - forget
    entangled = {x for x in kept if any(share(x, y) for y in forget)}
    return Sets(forget, entangled, kept - entangled)


def share(x: Pair, y: Pair) -> bool:
    return x[0] == y[0] or x[1] == y[1]


@st.composite
def cases(draw: st.DrawFn) -> tuple[set[Pair], set[int], set[int], set[Pair]]:
    pairs = draw(st.sets(pair, min_size=1, max_size=20))
    single = draw(st.sets(st.sampled_from(sorted(pairs)), max_size=3))
    return pairs, draw(st.sets(rows, max_size=3)), draw(st.sets(rows, max_size=3)), single


def collection_with(pairs: Set[Pair]) -> Collection:
    return collection_of([Listed([d for q, d in sorted(pairs) if q == row]) for row in range(SIZE)], SIZE)


def sets_by_id(collection: Collection, removal: Removal) -> dict[str, set[tuple[str, ...]]]:
    described = describe_removal(collection, make_partition(collection, removal))
    return {name: {tuple(ids) for ids in pairs} for name, pairs in described.items()}


GOLDEN_CASES = {
    "queries": (
        Removal(queries=["q1", "q2"]),
        {("q1", "d1"), ("q1", "d2"), ("q2", "d3")},
        {("q3", "d2"), ("q4", "d3")},
        {("q4", "d4"), ("q5", "d5")},
    ),
    "documents": (
        Removal(documents=["d2", "d3"]),
        {("q1", "d2"), ("q2", "d3"), ("q3", "d2"), ("q4", "d3")},
        {("q1", "d1"), ("q4", "d4")},
        {("q5", "d5")},
    ),
    "one pair": (
        Removal(pairs=[("q4", "d3")]),
        {("q4", "d3")},
        {("q2", "d3"), ("q4", "d4")},
        {("q1", "d1"), ("q1", "d2"), ("q3", "d2"), ("q5", "d5")},
    ),
    "a pair that shares nothing": (
        Removal(pairs=[("q5", "d5")]),
        {("q5", "d5")},
        set(),
        {("q1", "d1"), ("q1", "d2"), ("q2", "d3"), ("q3", "d2"), ("q4", "d3"), ("q4", "d4")},
    ),
    "two pairs": (
        Removal(pairs=[("q1", "d1"), ("q4", "d4")]),
        {("q1", "d1"), ("q4", "d4")},
        {("q1", "d2"), ("q4", "d3")},
        {("q2", "d3"), ("q3", "d2"), ("q5", "d5")},
    ),
    "a mix": (
        Removal(queries=["q2"], documents=["d2"], pairs=[("q4", "d4")]),
        {("q2", "d3"), ("q1", "d2"), ("q3", "d2"), ("q4", "d4")},
        {("q1", "d1"), ("q4", "d3")},
        {("q5", "d5")},
    ),
}


@pytest.mark.parametrize("name", GOLDEN_CASES)
def test_the_golden_example(golden: Collection, name: str) -> None:
    removal, forget, entangled, disjoint = GOLDEN_CASES[name]
    assert sets_by_id(golden, removal) == {"forget": forget, "entangled": entangled, "disjoint": disjoint}


def test_what_was_named_is_kept_as_rows(golden: Collection) -> None:
    partition = make_partition(golden, Removal(queries=["q2"], documents=["d3", "d2"], pairs=[("q4", "d4")]))
    assert golden.queries.ids(partition.queries) == ["q2"]
    assert sorted(golden.documents.ids(partition.documents)) == ["d2", "d3"]
    alone = make_partition(golden, Removal(pairs=[("q4", "d4")]))
    assert len(alone.queries) == len(alone.documents) == 0


@pytest.mark.parametrize("name", GOLDEN_CASES)
def test_the_order_of_the_judgements_does_not_matter(tmp_path: Path, golden: Collection, name: str) -> None:
    shuffled = random.Random(name).sample(GOLDEN, len(GOLDEN))
    assert sets_by_id(make_collection(tmp_path / "out", shuffled), GOLDEN_CASES[name][0]) == sets_by_id(
        golden, GOLDEN_CASES[name][0]
    )


@settings(deadline=None, max_examples=150)
@given(cases())
def test_any_removal_partitions_any_pairs(case: tuple[set[Pair], set[int], set[int], set[Pair]]) -> None:
    pairs, queries, documents, single = case
    expected = slow_partition(*case)
    removal = Removal(
        [f"q{row}" for row in queries], [f"d{row}" for row in documents], [(f"q{q}", f"d{d}") for q, d in single]
    )
    if not expected.forget or expected.forget == pairs:
        with pytest.raises(UnrankError):
            make_partition(collection_with(pairs), removal)
        return
    partition = make_partition(collection_with(pairs), removal)
    assert len(partition.forget) + len(partition.entangled) + len(partition.disjoint) == len(pairs)
    assert Sets(as_set(partition.forget), as_set(partition.entangled), as_set(partition.disjoint)) == expected
    assert as_set(partition.retain) == pairs - expected.forget


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(pair, st.booleans()), unique_by=lambda marked: marked[0], max_size=20), st.randoms())
def test_any_marked_pairs_in_any_order(marked: list[tuple[Pair, bool]], generator: random.Random) -> None:
    pairs = {x for x, _ in marked}
    forget = {x for x, gone in marked if gone}
    expected = slow_partition(pairs, set(), set(), forget)
    for order in (marked, generator.sample(marked, len(marked))):
        array = np.array([x for x, _ in order], np.int64).reshape(-1, 2)
        partition = split_pairs(array, np.array([gone for _, gone in order], bool))
        assert Sets(as_set(partition.forget), as_set(partition.entangled), as_set(partition.disjoint)) == expected
        assert len(partition.forget) + len(partition.entangled) + len(partition.disjoint) == len(pairs)


@settings(deadline=None, max_examples=100)
@given(cases(), st.integers(0, 99))
def test_partners_and_draws_of_them(case: tuple[set[Pair], set[int], set[int], set[Pair]], seed: int) -> None:
    sets = slow_partition(*case)
    array = np.array(sorted(case[0]), np.int64)
    partition = split_pairs(array, np.array([tuple(x) in sets.forget for x in array.tolist()]))
    for x in sets.forget:
        expected = {y for y in sets.entangled if share(x, y)}
        # With at most 10 partners, 400 draws miss one of them with a chance below 1e-17.
        drawn, has = partition.draw_partners(np.array([x] * 400, np.int64), np.random.default_rng(seed))
        assert has.tolist() == [bool(expected)] * 400
        assert as_set(drawn[has]) == expected
        places, partners = partition.all_partners(np.array([x, x], np.int64))
        assert sorted(partners[places == 0].tolist()) == sorted(partners[places == 1].tolist())
        assert as_set(partners) == expected and len(partners) == 2 * len(expected)


def test_each_pair_of_a_batch_draws_a_partner_of_its_own(golden: Collection) -> None:
    partition = make_partition(golden, Removal(documents=["d2", "d3"]))
    drawn, has = partition.draw_partners(partition.forget, np.random.default_rng(0))
    assert drawn.shape == partition.forget.shape
    for (query, document), partner, found in zip(partition.forget.tolist(), drawn.tolist(), has.tolist(), strict=True):
        partners = [pair for pair in partition.entangled.tolist() if share(pair, (query, document))]
        assert found == bool(partners)
        assert not found or partner in partners


def test_all_partners_are_equally_likely() -> None:
    pairs = np.array([[0, 0], [0, 1], [1, 0], [2, 0], [3, 0]])  # one shares the query, three the document
    partition = split_pairs(pairs, np.array([True, False, False, False, False]))
    drawn, has = partition.draw_partners(np.repeat(partition.forget, 4_000, axis=0), np.random.default_rng(0))
    assert has.all()
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(counts) == 4
    assert (np.abs(counts - 1_000) < 150).all()


def test_substitutes_stand_in_for_the_documents_of_forget_pairs(golden: Collection) -> None:
    partition = make_partition(golden, Removal(documents=["d2", "d3"], substitutes={"d3": "d5"}))
    pairs, has = partition.substitute_pairs
    ids = golden.pair_ids(partition.forget)
    assert has.tolist() == [document == "d3" for _, document in ids]
    assert golden.pair_ids(pairs[has]) == [(query, "d5") for query, document in ids if document == "d3"]
    assert not make_partition(golden, Removal(documents=["d2"])).substitute_pairs[1].any()
    with pytest.raises(UnknownIds, match=r"^my.json: 1 document id not in the collection: 'other'"):
        make_partition(golden, Removal(documents=["d2"], substitutes={"d2": "other"}), "my.json")


def test_without_entangled_pairs_nobody_has_a_partner() -> None:
    partition = split_pairs(np.array([[0, 0], [1, 1]]), np.array([True, False]))
    assert partition.draw_partners(partition.forget, np.random.default_rng(0))[1].tolist() == [False]


@pytest.mark.parametrize(
    ("removal", "message"),
    [
        (Removal(), "an empty removal: it names no query, no document and no pair"),
        (Removal(queries=["q1", "q8", "q9"]), "2 query ids not in the collection: 'q8', 'q9'"),
        (Removal(documents=["other"]), "1 document id not in the collection: 'other'"),
        (Removal(queries=[f"u{i}" for i in range(8)]), "8 query ids not in the collection: .*'u4' and 3 more"),
        (Removal(pairs=[("q1", "d9")]), "1 document id not in the collection: 'd9'"),
        (Removal(pairs=[("q9", "d1")]), "1 query id not in the collection: 'q9'"),
        (Removal(pairs=[("q1", "d1"), ("q1", "d5")]), r"1 pair not among the relevant .*: \('q1', 'd5'\)"),
        (Removal(queries=["q1", "q2", "q3", "q4", "q5"]), "leaves nothing: all 7 training pairs"),
        (Removal(queries=["q5"], documents=["d1", "d2", "d3", "d4"]), "leaves nothing"),
        (Removal(pairs=GOLDEN), "leaves nothing"),
    ],
)
def test_a_removal_that_cannot_be(golden: Collection, removal: Removal, message: str) -> None:
    with pytest.raises(UnrankError, match=f"^my.json: {message}") as caught:
        make_partition(golden, removal, "my.json")
    assert "\n" not in str(caught.value)


def test_unknown_ids_have_their_own_error(golden: Collection) -> None:
    with pytest.raises(UnknownIds, match="unrank find"):
        make_partition(golden, Removal(queries=["nobody"]))


def test_test_queries_are_nobodys_to_forget(dense: Collection) -> None:
    with pytest.raises(UnrankError, match=r"names test queries.*'test0', 'test3'; take them out"):
        make_partition(dense, Removal(queries=["query1", "test3", "test0"]))
    document = dense.documents.id(int(dense.relevant[int(dense.test_queries[0])][0]))
    with pytest.raises(UnrankError, match="1 pair not among the relevant training pairs"):
        make_partition(dense, Removal(pairs=[("test0", document)]))


def test_documents_that_are_relevant_to_nothing(dense: Collection) -> None:
    with pytest.raises(UnrankError, match="nothing that it names is a relevant training pair"):
        make_partition(dense, Removal(documents=["n1", "n2"]))
    named = dense.documents.id(int(dense.pairs[0, 1]))
    partition = make_partition(dense, Removal(documents=["n1", named]))
    assert sorted(dense.documents.ids(partition.documents)) == sorted(["n1", named])


@given(st.integers(140, 180), st.sets(st.integers(0, 20), min_size=1, max_size=6), st.booleans())
@settings(max_examples=20)
def test_reserved_pairs_are_in_no_other_set(queries: int, removed: set[int], by_query: bool) -> None:
    collection = collection_of([Listed([row % 21, (row + 7) % 21]) for row in range(queries)], 21)
    left_out, documents = reserved_queries(collection), reserved_documents(collection)
    assert (len(left_out), len(documents)) == ((0, 0) if queries < 150 else (30, 1))
    names = [f"{'q' if by_query else 'd'}{row}" for row in sorted(removed)]
    removal = Removal(queries=names) if by_query else Removal(documents=names)
    plain, made = make_partition(collection, removal), make_partition(collection, removal, reserve=True)
    assert np.array_equal(plain.forget, made.forget) and not len(plain.reserved)
    assert as_set(made.reserved) == {
        (query, document) for query, document in as_set(plain.retain) if query in left_out or document in documents
    }
    assert {*made.no_negatives} == {*made.documents} | {*documents}
    assert as_set(made.retain) == as_set(plain.retain) - as_set(made.reserved)
    assert as_set(whole_partition(collection, reserve=True).reserved) >= as_set(made.reserved)


def test_a_removal_must_leave_more_than_reserved_pairs() -> None:
    collection = collection_of([Listed([row]) for row in range(150)], 150)
    reserved = whole_partition(collection, reserve=True).reserved
    left_out = collection.queries.ids(reserved[:, 0])
    rest = Removal(queries=[query for query in collection.queries.ids(np.arange(150)) if query not in left_out])
    assert len(make_partition(collection, rest).retain) == len(left_out) > 30
    with pytest.raises(UnrankError, match=f"leaves nothing: all {150 - len(left_out)} training pairs"):
        make_partition(collection, rest, reserve=True)
    removal, gone = Removal(queries=left_out[:1]), Removal(queries=left_out[1:3])
    later = make_partition(collection, removal, previous=gone, reserve=True)
    assert (len(later.forget), len(later.previous), len(later.reserved)) == (1, 2, len(left_out) - 3)
