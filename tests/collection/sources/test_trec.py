"""trec: what a folder in TREC's forms becomes, and what is said about one that is not right."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.collection.sources.by_id import grades_of, held_out, negatives_of, relevant_of, texts_of, write_files

from unrank.collection.build import ImportOptions, import_collection
from unrank.collection.sources.trec import read_trec

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
