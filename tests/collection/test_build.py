"""From a source to a folder: which queries, which grades, and what happens when something is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.collection.sources.by_id import grades_of, held_out, negatives_of, relevant_of, texts_of

from unrank.collection.build import build_collection
from unrank.collection.collection import FILES, Collection, description_hash, open_collection
from unrank.collection.options import ImportOptions
from unrank.collection.sources.source import Judgement, Raw, Text
from unrank.errors import BadFile, UnknownIds, UnknownName, UnrankError

Judgements = Sequence[tuple[str, str, int]]
TRAIN: Judgements = [("q1", "d1", 2), ("q1", "d2", 1), ("q2", "d2", 1), ("q3", "d3", 0)]
TEST: Judgements = [("t1", "d1", 1), ("t1", "d4", 2), ("t2", "d4", 1), ("t3", "d4", 0)]


def raw(splits: Mapping[str, Judgements], documents: Sequence[str] = (), queries: Sequence[str] = ()) -> Raw:
    """A source in memory whose texts are words of their ids."""
    judged = [judgement for split in splits.values() for judgement in split]
    query_ids = queries or list(dict.fromkeys(query for query, _, _ in judged))
    document_ids = documents or [f"d{row}" for row in range(1, 7)]
    return Raw(
        "made",
        lambda: [Text(id, f"which {id}") for id in query_ids],
        lambda: [Text(id, f"about {id}") for id in document_ids],
        {name: partial(list, [Judgement(*judgement) for judgement in split]) for name, split in splits.items()},
        licence="none",
    )


def build(out: Path, source: Raw, **options: Any) -> Collection:
    return build_collection(source, out, ImportOptions(**options))


def many(queries: int) -> Raw:
    return raw({"train": [(f"q{row}", f"d{row % 6 + 1}", 1) for row in range(queries)]})


def test_queries_without_a_relevant_document_are_left_out(tmp_path: Path) -> None:
    collection = build(
        tmp_path / "out", raw({"train": TRAIN, "test": TEST}, queries=["t3", *"xy", "q3", "q1", "q2", "t1", "t2"])
    )
    assert relevant_of(collection) == {"q1": ["d1", "d2"], "q2": ["d2"], "t1": ["d1", "d4"], "t2": ["d4"]}
    assert held_out(collection) == ["t1", "t2"]
    assert texts_of(collection.queries)["q2"] == "which q2"
    assert len(collection.documents) == 6
    assert (collection.name, collection.description.source) == ("made", "memory")
    assert collection.description.counts == {"queries": 4, "documents": 6, "judgements": 6}


def test_each_split_has_its_own_least_grade(tmp_path: Path) -> None:
    collection = build(tmp_path / "out", raw({"train": TRAIN, "test": TEST}), min_grade=2, test_min_grade=2)
    assert relevant_of(collection) == {"q1": ["d1"], "t1": ["d4"]}
    assert "d2" in negatives_of(collection)["q1"]
    assert grades_of(collection) == {("q1", "d1"): 2, ("q1", "d2"): 1, ("t1", "d1"): 1, ("t1", "d4"): 2}
    other = build(tmp_path / "other", raw({"train": TRAIN, "test": TEST}), min_grade=2)
    assert relevant_of(other) == {"q1": ["d1"], "t1": ["d1", "d4"], "t2": ["d4"]}


def test_of_a_pair_judged_twice_the_higher_grade_counts(tmp_path: Path) -> None:
    twice = [("q1", "d1", 0), ("q1", "d1", 3), ("q1", "d2", 1), ("q1", "d2", -32768)]
    assert grades_of(build(tmp_path / "out", raw({"train": twice}))) == {("q1", "d1"): 3, ("q1", "d2"): 1}


def test_a_test_split_by_name(tmp_path: Path) -> None:
    splits = {"train": TRAIN, "dev": TEST, "test": [("u1", "d5", 1)]}
    assert held_out(build(tmp_path / "out", raw(splits))) == ["u1"]
    assert held_out(build(tmp_path / "dev", raw(splits), test_split="dev")) == ["t1", "t2"]
    with pytest.raises(UnknownName, match=r"unknown split 'tset': did you mean 'test'\? known are train, dev, test"):
        build(tmp_path / "typo", raw(splits), test_split="tset")
    with pytest.raises(UnrankError, match=r"'test' is the only split.*--test-share"):
        build(tmp_path / "alone", raw({"test": TEST}), test_split="test")


def test_a_lone_test_split_is_trained_on(tmp_path: Path) -> None:
    collection = build(tmp_path / "out", raw({"test": TEST}))
    assert collection.queries.ids(collection.training_queries) == ["t1", "t2"]


def test_a_share_of_the_queries_for_testing(tmp_path: Path) -> None:
    one, again = (build(tmp_path / name, many(40), test_share=0.25) for name in ("one", "again"))
    assert len(held_out(one)) == 10
    assert held_out(one) == held_out(again)
    assert held_out(build(tmp_path / "seed", many(40), test_share=0.25, seed=1)) != held_out(one)
    backwards = raw({"train": [(f"q{row}", f"d{row % 6 + 1}", 1) for row in reversed(range(40))]})
    assert set(held_out(build(tmp_path / "backwards", backwards, test_share=0.25))) == set(held_out(one))


def test_so_many_queries_drawn_by_seed(tmp_path: Path) -> None:
    source = many(30)
    both = raw({"train": list(source.splits["train"]()), "test": [(f"t{row}", "d1", 1) for row in range(9)]})
    one, again = (build(tmp_path / name, both, train_queries=7, test_queries=4) for name in ("one", "again"))
    assert (len(one.training_queries), len(one.test_queries)) == (7, 4)
    assert texts_of(one.queries) == texts_of(again.queries)
    other = build(tmp_path / "other", both, train_queries=7, test_queries=4, seed=1)
    assert set(texts_of(other.queries)) != set(texts_of(one.queries))
    assert len(build(tmp_path / "all", both, train_queries=99).training_queries) == 30


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (raw({"train": TRAIN}, documents=["d1", "d2", "d3", "d2", "d1"]), "2 document ids given more than once"),
        (raw({"train": TRAIN}, queries=["q1", "q2", "q1"]), "the query id 'q1' occurs more than once"),
        (raw({"train": [*TRAIN, ("q1", "d77", 0)]}), "'train': 1 document id not in the collection: 'd77'"),
        (raw({"train": TRAIN}, queries=["q1"]), "the judgements: 1 query id not in the collection: 'q2'"),
        (raw({"train": TRAIN, "test": TRAIN}), "both for training and for testing: 'q1', 'q2'"),
        (raw({"train": [("q1", "d1", 0)]}), "no training query with a document of grade 1"),
        (raw({"train": []}), "no training query"),
        (Raw("made", list, list, {"train": list}), "made has no documents"),
    ],
)
def test_a_source_that_is_not_right_leaves_nothing_behind(tmp_path: Path, source: Raw, message: str) -> None:
    with pytest.raises(UnrankError, match=message) as caught:
        build(tmp_path / "out", source)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_unknown_ids_are_named_and_counted(tmp_path: Path) -> None:
    with pytest.raises(UnknownIds, match=r"7 document ids .*: 'x0', 'x1', 'x2', 'x3', 'x4' and 2 more"):
        build(tmp_path / "out", raw({"train": [("q1", f"x{row % 7}", 1) for row in range(14)]}))


def test_texts_that_are_too_long_for_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = raw({"train": TRAIN, "test": TEST}, documents=["d1", "d2", "d3", "d4é"])
    source = replace(source, splits={"train": source.splits["train"]})
    whole = build(tmp_path / "whole", source)
    monkeypatch.setattr("unrank.collection.arrow.BYTES_A_BATCH", 23)  # two documents of an id and a text, not three
    cut = build(tmp_path / "cut", source)
    for name in ("queries", "documents"):
        texts, cut_texts = getattr(whole, name), getattr(cut, name)
        assert texts_of(cut_texts) == texts_of(texts)
        assert (len(texts.batches()), len(cut_texts.batches())) == (1, {"queries": 1, "documents": 3}[name])
        assert cut_texts.ids(cut_texts.rows(texts.ids(range(len(texts))))) == texts.ids(range(len(texts)))
    monkeypatch.setattr("unrank.collection.arrow.BYTES_A_BATCH", 12)
    assert len(build(tmp_path / "one", raw({"train": TRAIN})).queries.batches()) == 2
    with pytest.raises(UnrankError, match=r"^the text of 'd4é' has 14 bytes with its id, .* takes at most 12: cut it"):
        build(tmp_path / "none", source)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test_share": 0.95}, "a test share of 0.95 of 9 queries leaves none to train on: lower it, or leave it out"),
        ({"test_share": 0.01}, "a test share of 0.01 of 9 queries leaves none to test on: raise it, or leave it out"),
        ({"test_share": 0.5, "test_min_grade": 9}, "no query to test on has a document of grade 9 or more: lower"),
        ({"test_split": "dev", "test_min_grade": 9}, "no query to test on has a document of grade 9 or more: lower"),
        ({"test_split": "none"}, "no query to test on has a document of grade 1 or more: lower --test-min-grade"),
        ({"test_min_grade": 9}, "no query to test on has a document of grade 9 or more: lower --test-min-grade"),
    ],
)
def test_a_share_or_a_split_that_leaves_no_query(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    train = [(f"q{row}", "d1", 1) for row in range(9)]
    source = raw({"train": train, "dev": [("t1", "d1", 1)], "test": [("t2", "d1", 1)], "none": []})
    with pytest.raises(UnrankError, match=message):
        build(tmp_path / "out", source, **options)
    assert not (tmp_path / "out").exists()


def test_a_test_split_that_nobody_asked_for_may_be_without_relevant_documents(tmp_path: Path) -> None:
    assert held_out(build(tmp_path / "out", raw({"train": TRAIN, "test": [("t1", "d1", 0)]}))) == []
    assert held_out(build(tmp_path / "alone", raw({"train": TRAIN}), min_grade=2, test_min_grade=2)) == []


@pytest.mark.parametrize("grade", [1.7, 0.5, "1", None, 100_000, np.float64(1), 2**70])
def test_a_grade_that_is_no_small_whole_number(tmp_path: Path, grade: Any) -> None:
    small: Any = np.uint64(1)
    assert grades_of(build(tmp_path / "fine", raw({"train": [("q1", "d1", small), ("q1", "d2", -1)]})))
    with pytest.raises(
        UnrankError, match=f"^made: the grade {re.escape(repr(grade))} of document 'd2' for query 'q1' is not a whole"
    ):
        build(tmp_path / "out", raw({"train": [("q1", "d1", 1), ("q1", "d2", grade)]}))


@pytest.mark.parametrize("failure", [BadFile("corpus.jsonl", "not JSON", 3), KeyboardInterrupt(), OSError("disk full")])
def test_a_source_that_breaks_off_leaves_nothing_behind(tmp_path: Path, failure: BaseException) -> None:
    def documents() -> Iterator[Text]:
        yield Text("d1", "one")
        raise failure

    source = Raw("made", list, documents, {"train": list})
    with pytest.raises(type(failure)):
        build(tmp_path / "out", source)
    assert list(tmp_path.iterdir()) == []


def test_what_stands_at_the_place_is_refused_and_untouched(tmp_path: Path) -> None:
    for name in ("file", "folder"):
        place = tmp_path / name
        if name == "folder":
            place.mkdir()
            place = place / "mine.txt"
        place.write_text("mine")
        with pytest.raises(UnrankError, match="exists already: choose another --out"):
            build(tmp_path / name, raw({"train": TRAIN}))
        assert place.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder", "mine.txt"]


def test_where_nothing_can_be_written_no_work_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnrankError, match=r"cannot write to .*below: .*file is not a folder"):
        build(tmp_path / "file" / "far" / "below", raw({"train": TRAIN}))
    monkeypatch.setattr("unrank.disk.os.access", lambda *_: False)  # who is root may write anywhere
    with pytest.raises(UnrankError, match=f"cannot write to {tmp_path}: it is read-only"):
        build(tmp_path / "far" / "below", raw({"train": TRAIN}))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relevant": 0}, "relevant must be at least 1, not 0"),
        ({"train_queries": 0}, "train queries must be at least 1"),
        ({"test_queries": -1}, "test queries must be at least 1"),
        ({"candidates": -1}, "candidates must be at least 0"),
        ({"candidates": 1.5}, "candidates must be a whole number, not 1.5"),
        ({"relevant": True}, "relevant must be a whole number, not True"),
        ({"keep": "queries-sharing-documents"}, "keep must be a list, not one text"),
        ({"test_share": 0.0}, "a test share of 0 is not possible"),
        ({"test_share": 1.0}, "a test share of 1 is not possible"),
        ({"test_share": float("nan")}, "a test share of nan is not possible"),
        ({"test_share": 0.5, "test_split": "dev"}, "a test split or a test share, not both"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UnrankError, match=message):
        ImportOptions(**options)


def test_reopened_it_is_the_same(tmp_path: Path) -> None:
    source = raw({"train": TRAIN, "test": TEST})
    made, again, other = build(tmp_path / "a", source), open_collection(tmp_path / "a"), build(tmp_path / "b", source)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted([*FILES, "collection.json"])
    for reopened in (again, other):
        assert reopened.fingerprint == made.fingerprint
        assert texts_of(reopened.queries) == texts_of(made.queries)
        assert texts_of(reopened.documents) == texts_of(made.documents)
        assert np.array_equal(reopened.pairs, made.pairs)
        assert np.array_equal(reopened.test_pairs, made.test_pairs)
        assert negatives_of(reopened) == negatives_of(made)
        assert grades_of(reopened) == grades_of(made)
    assert repr(again) == "Collection('made': 4 queries, 6 documents, 3 training pairs, 2 test queries)"
    assert build(tmp_path / "c", raw({"train": TRAIN})).fingerprint != made.fingerprint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build(tmp_path / "made", raw({"train": TRAIN, "test": TEST}))
    return tmp_path / "made"


def assert_refused(folder: Path, message: str) -> None:
    with pytest.raises(BadFile, match=message) as caught:
        open_collection(folder)
    assert str(caught.value).startswith(str(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file(folder: Path, name: str) -> None:
    path = folder / name
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert_refused(folder, f"{name}: missing or cut short")
    path.write_bytes(b"x" * len(whole))
    assert_refused(folder, f"{name}: changed since the collection was written")
    path.unlink()
    assert_refused(folder, f"{name}: missing")


def test_a_file_that_is_another(folder: Path) -> None:
    description = json.loads((folder / "collection.json").read_text())
    description["files"]["candidates.arrow"] = description["files"]["queries.arrow"]
    description["seal"] = description_hash(description)
    (folder / "collection.json").write_text(json.dumps(description))
    (folder / "candidates.arrow").write_bytes((folder / "queries.arrow").read_bytes())
    assert_refused(folder, "its columns are not relevant, negatives")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, "format version 2, this unrank reads 1; import it again"),
        ({"format_version": None}, "format version None"),
        ({"format_version": ...}, "not a collection's description"),
        ({"files": ["queries.arrow"]}, "damaged"),
        ({"files": {"queries.arrow": {}}}, "damaged"),
        ({"files": {"queries.arrow": 12}}, "damaged"),
        ({"files": ...}, "damaged"),
        ({"name": ...}, "damaged"),
        ({"min_grade": ...}, "damaged"),
        ({"test_min_grade": "one"}, "damaged"),
        ({"fingerprint": ...}, "damaged"),
    ],
)
def test_a_damaged_description(folder: Path, change: dict[str, Any], message: str) -> None:
    path = folder / "collection.json"
    description = {**json.loads(path.read_text()), **change}
    path.write_text(json.dumps({key: value for key, value in description.items() if value is not ...}))
    assert_refused(folder, message)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"name": "made"', "12"])
def test_a_description_that_is_none(folder: Path, text: str) -> None:
    (folder / "collection.json").write_text(text)
    assert_refused(folder, "collection.json")


def test_a_folder_that_is_no_collection(tmp_path: Path) -> None:
    assert_refused(tmp_path, "holds no collection.json; make one with 'unrank import'")
    assert_refused(tmp_path / "nowhere", "no such collection folder")
