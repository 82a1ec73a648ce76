"""trec: what is said about a folder that is not right."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.collection.sources.by_id import write_files
from tests.collection.sources.test_trec import FILES, without

from unrank.collection.build import ImportOptions, import_collection
from unrank.errors import UnrankError


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("queries.tsv", "q1\twhat\nq2 what\n", "queries.tsv, line 2: expected id and text parted by one tab, found 1"),
        ("queries.tsv", "q1\ta\tb\n", "queries.tsv, line 1: expected id and text parted by one tab, found 3 columns"),
        ("queries.tsv", FILES["queries.tsv"] * 2, "the query id 'q1' stands there twice"),
        ("queries.tsv", "q1\tx\n", "the judgements: 2 query ids not in the collection: 'q2', 'q3'"),
        ("queries.jsonl", "{}\n", "holds queries twice, in queries.tsv and queries.jsonl; keep one"),
        ("documents.tsv", "\tx\n", "documents.tsv, line 1: expected id and text"),
        ("documents.tsv", FILES["documents.tsv"] * 2, "4 document ids given more than once"),
        ("documents.tsv", "", "has no documents"),
        ("collection.tsv", "d1\tx\n", "holds documents twice, in documents.tsv and collection.tsv; keep one"),
        ("qrels.txt", "q1 0 d1 1\n\nq1 d1 1\n", "qrels.txt, line 3: expected query, iteration, document, grade"),
        ("qrels.txt", "q1 0 d1 high\n", "qrels.txt, line 1: the grade 'high' is not a whole number"),
        ("qrels.txt", "q1 0 d9 1\n", "the judgements of split 'train': 1 document id not in the collection: 'd9'"),
        ("qrels.tsv", "q1 0 d1 1\n", "qrels.tsv: the split 'train' is in qrels.txt already; keep one"),
        ("run.txt", "q1 Q0 d2 1 0.5\n", "run.txt, line 1: expected query, Q0, document, rank, score, tag"),
        ("run.txt", "q1 Q0 d2 1 1 t\nq1 Q0 d3 two 0 t\n", "run.txt, line 2: the rank 'two' is not a whole number"),
        ("run.txt", "q1 Q0 d9 1 0.5 t\n", "the run: 1 document id not in the collection: 'd9'"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    source = write_files(tmp_path / "in", {**FILES, name: text})
    with pytest.raises(UnrankError) as raised:
        import_collection(f"trec:{source}", tmp_path / "out")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize(
    "line", ["{}", '{"id": "d1"}', '{"text": "x"}', '{"id": true, "text": "x"}', '{"id": "d1", "text": 5}']
)
def test_a_json_line_without_id_or_text_is_refused(tmp_path: Path, line: str) -> None:
    source = write_files(tmp_path / "in", {**without("documents.tsv"), "documents.jsonl": line})
    with pytest.raises(UnrankError, match=r"documents\.jsonl, line 1: expected an object with '_id', 'id'"):
        import_collection(f"trec:{source}", tmp_path / "out")


@pytest.mark.parametrize("name", ["queries.tsv", "documents.tsv", "qrels.txt", "run.txt"])
def test_bytes_that_are_not_utf_8_are_said_with_their_line(tmp_path: Path, name: str) -> None:
    source = write_files(tmp_path / "in", FILES)
    (source / name).write_bytes(b"\n\xe9\tx\n")
    with pytest.raises(UnrankError, match=f"{name}, line 2: not UTF-8 text"):
        import_collection(f"trec:{source}", tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("queries.tsv", "holds no queries; expected one of queries.tsv, queries.jsonl"),
        ("documents.tsv", "holds no documents; expected one of documents.tsv, documents.jsonl, collection.tsv"),
        ("qrels.txt", "holds no qrels; expected qrels.txt, qrels.<split>.txt or qrels/<split>.txt"),
    ],
)
def test_a_missing_file_is_named(tmp_path: Path, name: str, message: str) -> None:
    source = write_files(tmp_path / "in", without(name))
    with pytest.raises(UnrankError, match=message):
        import_collection(f"trec:{source}", tmp_path / "out")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnrankError, match="nowhere: no such folder; trec: takes the folder"):
        import_collection(f"trec:{tmp_path / 'nowhere'}", tmp_path / "out")


def test_an_unknown_split_brings_the_nearest(tmp_path: Path) -> None:
    source = write_files(tmp_path / "in", {**FILES, "qrels.dev.txt": "q3 0 d2 1\n"})
    with pytest.raises(UnrankError, match="unknown split 'dve': did you mean 'dev'"):
        import_collection(f"trec:{source}", tmp_path / "out", ImportOptions(test_split="dve"))
