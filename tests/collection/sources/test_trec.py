"""TREC's files: what is read, and the errors that name file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.collection.sources.by_id import grades_of, held_out, negatives_of, relevant_of, texts_of, write_files

from unrank.collection.build import import_collection
from unrank.collection.options import ImportOptions
from unrank.collection.sources.trec import read_trec
from unrank.errors import UnrankError

FILES = {
    "queries.tsv": "q1\twhat is a heap\nq2\twhat is a tree\nq3\twhat is a queue\n",
    "documents.tsv": "d1\ta heap keeps the least on top\nd2\ta queue keeps its order\nd3\ta tree has a root\nd4\t\n",
    "qrels.txt": "q1 0 d1 1\nq1 0 d2 0\nq2\t0\td3\t2\nq3 Q0 d2 1\n",
}
RUN = """\
q1 Q0 d3 3 0.1 tag
q2 Q0 d4 1 9.0 tag
q1 Q0 d4 1 0.9 tag
q1 Q0 d1 2 0.5 tag
q2 Q0 d3 2 8.0 tag
q3 Q0 d1 10 1.0 tag
q3 Q0 d3 9 2.0 tag
"""


def without(*names: str) -> dict[str, str]:
    return {name: text for name, text in FILES.items() if name not in names}


def test_a_folder_becomes_a_collection(tmp_path: Path) -> None:
    collection = import_collection(f"trec:{write_files(tmp_path / 'structures', FILES)}", tmp_path / "out")
    assert collection.name == "structures"
    assert texts_of(collection.documents) == {
        "d1": "a heap keeps the least on top",
        "d2": "a queue keeps its order",
        "d3": "a tree has a root",
        "d4": "",
    }
    assert texts_of(collection.queries) == {"q1": "what is a heap", "q2": "what is a tree", "q3": "what is a queue"}
    assert relevant_of(collection) == {"q1": ["d1"], "q2": ["d3"], "q3": ["d2"]}
    assert grades_of(collection) == {("q1", "d1"): 1, ("q1", "d2"): 0, ("q2", "d3"): 2, ("q3", "d2"): 1}
    assert held_out(collection) == []
    assert sorted(negatives_of(collection)["q1"]) == ["d2", "d3", "d4"]


@pytest.mark.parametrize(
    "place", ["run.txt", "run.tsv", "run", "run.bm25.txt", "runs/bm25.txt", "runs/bm25", "runs/bm25.run"]
)
def test_a_run_gives_the_negatives_by_rank(tmp_path: Path, place: str) -> None:
    source = write_files(tmp_path / "in", {**FILES, place: RUN})
    collection = import_collection(f"trec:{source}", tmp_path / "out")
    assert negatives_of(collection) == {"q1": ["d4", "d3"], "q2": ["d4"], "q3": ["d3", "d1"]}


def test_several_runs_are_merged_by_rank(tmp_path: Path) -> None:
    runs = {
        "run.a.txt": "q1 Q0 d2 1 1 a\nq1 Q0 d3 2 0 a\n",
        "run.b.tsv": "q1 Q0 d4 1 1 b\nq1 Q0 d2 2 0 b\nq2 Q0 d1 1 1 b\nq3 Q0 d4 1 1 b\n",
    }
    collection = import_collection(f"trec:{write_files(tmp_path / 'in', {**FILES, **runs})}", tmp_path / "out")
    assert negatives_of(collection) == {"q1": ["d2", "d4", "d3"], "q2": ["d1"], "q3": ["d4"]}


@pytest.mark.parametrize("layout", ["qrels.{}.txt", "qrels.{}.tsv", "qrels/{}.txt", "qrels/{}.tsv", "qrels/{}.qrels"])
def test_splits_come_from_the_names_of_the_qrels(tmp_path: Path, layout: str) -> None:
    qrels = {layout.format("train"): "q1 0 d1 1\nq2 0 d3 1\n", layout.format("dev.small"): "q3 0 d2 1\n"}
    source = write_files(tmp_path / "in", {**without("qrels.txt"), **qrels})
    collection = import_collection(f"trec:{source}", tmp_path / "out", ImportOptions(test_split="dev.small"))
    assert held_out(collection) == ["q3"]
    assert relevant_of(collection) == {"q1": ["d1"], "q2": ["d3"], "q3": ["d2"]}


@pytest.mark.parametrize("name", ["qrels", "qrels.tsv"])
def test_one_file_of_qrels_is_for_training(tmp_path: Path, name: str) -> None:
    source = write_files(tmp_path / "in", {**without("qrels.txt"), name: FILES["qrels.txt"]})
    assert list(read_trec(str(source), None).splits) == ["train"]


@pytest.mark.parametrize("name", ["documents.jsonl", "collection.jsonl", "corpus.jsonl", "docs.jsonl"])
@pytest.mark.parametrize("id_key", ["_id", "id", "docno", "doc_id"])
@pytest.mark.parametrize("text_key", ["text", "contents", "body"])
def test_json_lines_go_by_many_keys(tmp_path: Path, name: str, id_key: str, text_key: str) -> None:
    lines = f'{{"{id_key}": "d1", "{text_key}": "x", "title": "T"}}\n{{"{id_key}": 2, "{text_key}": "y"}}\n'
    source = write_files(tmp_path / "in", {**without("documents.tsv"), name: lines})
    assert list(read_trec(str(source), None).documents()) == [("d1", "T x"), ("2", "y")]


@pytest.mark.parametrize("name", ["collection.tsv", "docs.tsv", "corpus.tsv"])
def test_documents_go_by_other_names(tmp_path: Path, name: str) -> None:
    source = write_files(tmp_path / "in", {**without("documents.tsv"), name: "d1\tx\n"})
    assert list(read_trec(str(source), None).documents()) == [("d1", "x")]


def test_queries_may_be_json_lines(tmp_path: Path) -> None:
    lines = '{"query_id": "q1", "text": "what is a heap"}\n'
    source = write_files(tmp_path / "in", {**without("queries.tsv"), "queries.jsonl": lines})
    assert list(read_trec(str(source), None).queries()) == [("q1", "what is a heap")]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "queries.tsv",
            "q1\twhat\nq2 what\n",
            "line 2: expected id and text separated by one tab, found 1",
        ),
        (
            "queries.tsv",
            "q1\ta\tb\n",
            "queries.tsv, line 1: expected id and text separated by one tab, found 3",
        ),
        ("queries.tsv", FILES["queries.tsv"] * 2, "the query id 'q1' occurs more than once"),
        ("queries.tsv", "q1\tx\n", "the judgements: 2 query ids not in the collection: 'q2', 'q3'"),
        ("queries.jsonl", "{}\n", "contains queries twice, in queries.tsv and queries.jsonl; keep one"),
        ("documents.tsv", "\tx\n", "documents.tsv, line 1: expected id and text"),
        ("documents.tsv", FILES["documents.tsv"] * 2, "4 document ids given more than once"),
        ("documents.tsv", "", "has no documents"),
        ("collection.tsv", "d1\tx\n", "contains documents twice, in documents.tsv and collection.tsv; keep one"),
        ("qrels.txt", "q1 0 d1 1\n\nq1 d1 1\n", "qrels.txt, line 3: expected query, iteration, document, grade"),
        ("qrels.txt", "q1 0 d1 high\n", "qrels.txt, line 1: the grade 'high' is not a whole number"),
        ("qrels.txt", "q1 0 d9 1\n", "the judgements of split 'train': 1 document id not in the collection: 'd9'"),
        ("qrels.tsv", "q1 0 d1 1\n", "qrels.tsv: the split 'train' is in qrels.txt already; keep one"),
        ("run.txt", "q1 Q0 d2 1 0.5\n", "run.txt, line 1: expected query, Q0, document, rank, score, tag"),
        ("run.txt", "q1 Q0 d2 1 1 t\nq1 Q0 d3 two 0 t\n", "run.txt, line 2: the rank 'two' is not a whole number"),
        ("run.txt", f"q1 Q0 d2 {'9' * 400} 1 t\n", "9 is out of range: give one from -9007199254740992 to"),
        ("qrels.txt", f"q1 0 d1 {'9' * 5000}\n", "9 is out of range: give one from -32768 to 32767"),
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
        ("queries.tsv", "contains no queries; expected one of queries.tsv, queries.jsonl"),
        ("documents.tsv", "contains no documents; expected one of documents.tsv, documents.jsonl, collection.tsv"),
        ("qrels.txt", "contains no qrels; expected qrels.txt, qrels.<split>.txt or qrels/<split>.txt"),
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
