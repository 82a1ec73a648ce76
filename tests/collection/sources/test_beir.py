"""beir: what a BEIR folder becomes, and what is said about one that is not right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.collection.sources.by_id import held_out, negatives_of, relevant_of, texts_of, write_files

from unrank.collection.build import import_collection
from unrank.collection.options import ImportOptions
from unrank.collection.sources.beir import read_beir
from unrank.errors import UnrankError

FILES = {
    "corpus.jsonl": (
        '{"_id": "d1", "title": "Heaps", "text": "a heap keeps the least on top"}\n'
        '{"_id": "d2", "title": "", "text": "a queue keeps its order"}\n'
        "\n"
        '{"_id": "d3", "title": null, "text": "a tree has a root"}\n'
        '{"_id": "d4", "text": "a graph has edges"}\n'
    ),
    "queries.jsonl": (
        '{"_id": "q1", "text": "what is a heap"}\n'
        '{"_id": "q2", "text": "what is a tree"}\n'
        '{"_id": "q3", "text": "what is a queue"}\n'
        '{"_id": "unjudged", "text": "what is a list"}\n'
    ),
    "qrels/train.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\nq2\td3\t2\n",
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq3\td2\t1\n",
}


def test_a_folder_becomes_a_collection(tmp_path: Path) -> None:
    source = write_files(tmp_path / "structures", FILES)
    collection = import_collection(f"beir:{source}", tmp_path / "out")
    assert collection.name == "structures"
    assert collection.description.source == "beir"
    assert texts_of(collection.documents) == {
        "d1": "Heaps a heap keeps the least on top",
        "d2": "a queue keeps its order",
        "d3": "a tree has a root",
        "d4": "a graph has edges",
    }
    assert texts_of(collection.queries) == {"q1": "what is a heap", "q2": "what is a tree", "q3": "what is a queue"}
    assert relevant_of(collection) == {"q1": ["d1"], "q2": ["d3"], "q3": ["d2"]}
    assert held_out(collection) == ["q3"]
    assert {query: sorted(found) for query, found in negatives_of(collection).items()} == {
        "q1": ["d2", "d3", "d4"],
        "q2": ["d1", "d2", "d4"],
        "q3": ["d1", "d3", "d4"],
    }


def test_a_byte_order_mark_and_windows_line_ends_are_no_part_of_the_ids(tmp_path: Path) -> None:
    files = {name: "\ufeff" + text.replace("\n", "\r\n") for name, text in FILES.items()}
    collection = import_collection(f"beir:{write_files(tmp_path / 'in', files)}", tmp_path / "out")
    assert relevant_of(collection) == {"q1": ["d1"], "q2": ["d3"], "q3": ["d2"]}


def test_qrels_may_lack_the_header(tmp_path: Path) -> None:
    source = write_files(tmp_path / "in", {**FILES, "qrels/train.tsv": "q1\td1\t1\n"})
    assert list(read_beir(str(source), None).splits["train"]()) == [("q1", "d1", 1)]


def test_qrels_may_begin_with_empty_lines(tmp_path: Path) -> None:
    source = write_files(tmp_path / "in", {**FILES, "qrels/train.tsv": "\n\r\n" + FILES["qrels/train.tsv"]})
    assert list(read_beir(str(source), None).splits["train"]()) == [("q1", "d1", 1), ("q1", "d2", 0), ("q2", "d3", 2)]


def test_spaces_around_a_grade_and_a_sign_are_read(tmp_path: Path) -> None:
    source = write_files(tmp_path / "in", {**FILES, "qrels/train.tsv": "q1\td1\t +2 \nq1\td2\t-1\n"})
    assert list(read_beir(str(source), None).splits["train"]()) == [("q1", "d1", 2), ("q1", "d2", -1)]


def test_a_note_is_named_as_the_licence(tmp_path: Path) -> None:
    source = write_files(tmp_path / "in", {**FILES, "NOTE.txt": "CC BY 4.0"})
    assert read_beir(str(source), None).licence == "see NOTE.txt of the source"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("corpus.jsonl", '{"_id": "d1", "text": "x"}\n{"_id": "d2"}\n', "corpus.jsonl, line 2: expected"),
        ("corpus.jsonl", '{"_id": 1, "text": "x"}\n', "corpus.jsonl, line 1: expected"),
        ("corpus.jsonl", "", "has no documents"),
        ("corpus.jsonl", FILES["corpus.jsonl"] * 2, "4 document ids given more than once: 'd1', 'd2', 'd3', 'd4'"),
        ("queries.jsonl", FILES["queries.jsonl"] * 2, "the query id 'q1' occurs more than once"),
        ("queries.jsonl", "\n{oops\n", "queries.jsonl, line 2: not JSON"),
        ("queries.jsonl", "[1]\n", "queries.jsonl, line 1: expected a JSON object on each line"),
        ("queries.jsonl", '{"_id": "q1", "text": "\\ud800"}\n', "queries.jsonl, line 1: half of a surrogate pair"),
        ("queries.jsonl", '{"_id": "q1", "text": "x"}\n', "2 query ids not in the collection: 'q2', 'q3'"),
        (
            "qrels/train.tsv",
            "q1\td1\n",
            "train.tsv, line 1: expected query, document and score separated by tabs, found 2",
        ),
        ("qrels/train.tsv", "q1\td1\t1\nq1\td2\tyes\n", "train.tsv, line 2: the grade 'yes' is not a whole number"),
        ("qrels/train.tsv", "q1\td1\t1_0\n", "train.tsv, line 1: the grade '1_0' is not a whole number"),
        ("qrels/train.tsv", "q1\td1\t٣\n", "train.tsv, line 1: the grade '٣' is not a whole number"),
        ("qrels/train.tsv", "q1\td1\t1\nq1\td2\tscore\n", "line 2: the grade 'score' is not a whole number"),
        ("qrels/train.tsv", "q1\td1\t99999\n", "train.tsv, line 1: the grade 99999 is out of range"),
        (
            "qrels/train.tsv",
            "q1\td9\t1\n",
            "the judgements of split 'train': 1 document id not in the collection: 'd9'",
        ),
        ("qrels/train.tsv", "q1\td1\t0\n", "split 'train' has no training query with a document of grade 1 or more"),
        ("qrels/test.tsv", "q1\td2\t1\n", "queries that are both for training and for testing: 'q1'"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    source = write_files(tmp_path / "in", {**FILES, name: text})
    with pytest.raises(UnrankError) as raised:
        import_collection(f"beir:{source}", tmp_path / "out")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/train.tsv"])
def test_bytes_that_are_not_utf_8_are_said_with_their_line(tmp_path: Path, name: str) -> None:
    source = write_files(tmp_path / "in", FILES)
    (source / name).write_bytes(b"\n\xff\xfe\n")
    with pytest.raises(UnrankError, match=r", line 2: not UTF-8 text"):
        import_collection(f"beir:{source}", tmp_path / "out")


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    source = write_files(tmp_path / "in", FILES)
    (source / name).unlink()
    with pytest.raises(UnrankError, match=f"{name}: missing; a BEIR folder contains"):
        import_collection(f"beir:{source}", tmp_path / "out")


def test_a_folder_without_qrels_is_refused(tmp_path: Path) -> None:
    source = write_files(tmp_path / "in", {name: FILES[name] for name in ("corpus.jsonl", "queries.jsonl")})
    with pytest.raises(UnrankError, match=r"qrels: contains no \.tsv file"):
        import_collection(f"beir:{source}", tmp_path / "out")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnrankError, match="nowhere: no such folder; beir: takes the folder"):
        import_collection(f"beir:{tmp_path / 'nowhere'}", tmp_path / "out")


def test_an_unknown_split_brings_the_nearest(tmp_path: Path) -> None:
    source = write_files(tmp_path / "in", FILES)
    with pytest.raises(UnrankError, match="unknown split 'tset': did you mean 'test'"):
        import_collection(f"beir:{source}", tmp_path / "out", ImportOptions(test_split="tset"))


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(min_size=1), st.text(), min_size=1, max_size=5))
def test_any_ids_and_texts_come_through(tmp_path: Path, texts: dict[str, str]) -> None:
    lines = [json.dumps({"_id": id, "text": text}, ensure_ascii=False) for id, text in texts.items()]
    source = write_files(tmp_path / "in", {**FILES, "corpus.jsonl": "\n".join(lines)})
    read = dict(read_beir(str(source), None).documents())
    assert read == {id: text.strip() for id, text in texts.items()}
