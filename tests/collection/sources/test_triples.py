"""Training columns: what is read, and the errors that name file and line."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.collection.sources.by_id import grades_of, held_out, negatives_of, relevant_of, texts_of, write_files

from unrank.collection.build import import_collection
from unrank.collection.collection import Collection
from unrank.collection.options import ImportOptions
from unrank.collection.sources.triples import read_triples, text_id
from unrank.errors import UnrankError

HEAP, TREE, QUEUE = "what is a heap", "what is a tree", "what is a queue"
TRIPLES = [
    {"anchor": HEAP, "positive": "least on top", "negative": "first in, first out"},
    {"anchor": TREE, "positive": "it has a root", "negative": "least on top"},
    {"anchor": HEAP, "positive": "a full tree", "negative": 'a "heap" of sand'},
    {"anchor": HEAP, "positive": "least on top", "negative": "first in, first out"},
]
ENDINGS = ["jsonl", "tsv", "csv", "parquet"]


def write_table(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".tsv":
        lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
        path.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return path


def imported(tmp_path: Path, source: Path, options: ImportOptions | None = None) -> Collection:
    return import_collection(f"triples:{source}", tmp_path / "out", options)


def ids(*texts: str) -> list[str]:
    return [text_id(text) for text in texts]


@pytest.mark.parametrize("ending", ENDINGS)
def test_triples_become_a_collection(tmp_path: Path, ending: str) -> None:
    collection = imported(tmp_path, write_table(tmp_path / f"structures.{ending}", TRIPLES))
    heap, tree = ids(HEAP, TREE)
    assert collection.name == "structures"
    assert texts_of(collection.queries) == {heap: HEAP, tree: TREE}
    assert list(texts_of(collection.documents).values()) == [
        "least on top",
        "first in, first out",
        "it has a root",
        "a full tree",
        'a "heap" of sand',
    ]
    assert all(id == text_id(text) for id, text in texts_of(collection.documents).items())
    assert relevant_of(collection) == {heap: ids("least on top", "a full tree"), tree: ids("it has a root")}
    assert negatives_of(collection) == {
        heap: ids("first in, first out", 'a "heap" of sand'),
        tree: ids("least on top"),
    }
    assert held_out(collection) == []


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("columns", [("query", "passage", "label"), ("sentence1", "sentence2", "score")])
def test_labelled_pairs_become_a_collection(tmp_path: Path, ending: str, columns: tuple[str, str, str]) -> None:
    values = [(HEAP, "least on top", 1.0), (HEAP, "it has a root", 0.4), (TREE, "it has a root", 0.5), (TREE, "x", 0.0)]
    rows = [dict(zip(columns, row, strict=True)) for row in values]
    collection = imported(tmp_path, write_table(tmp_path / f"pairs.{ending}", rows))
    heap, tree, top, root, other = ids(HEAP, TREE, "least on top", "it has a root", "x")
    assert grades_of(collection) == {(heap, top): 1, (heap, root): 0, (tree, root): 1, (tree, other): 0}
    assert relevant_of(collection) == {heap: [top], tree: [root]}
    assert negatives_of(collection) == {heap: [root], tree: [other]}


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_negatives_may_be_a_list_or_many_columns(tmp_path: Path, ending: str) -> None:
    rows: list[dict[str, Any]] = [
        {"query": HEAP, "positive": "a", "negatives": ["b", "c", ""], "negative_1": "d", "negative_2": None},
        {"query": TREE, "positive": "b", "negatives": None, "negative_1": "", "negative_2": "a"},
    ]
    collection = imported(tmp_path, write_table(tmp_path / f"train.{ending}", rows))
    heap, tree = ids(HEAP, TREE)
    assert negatives_of(collection) == {heap: ids("b", "c", "d"), tree: ids("a")}
    assert list(texts_of(collection.documents).values()) == ["a", "b", "c", "d"]


def test_candidates_come_in_order_without_repetition(tmp_path: Path) -> None:
    candidates = read_triples(str(write_table(tmp_path / "train.jsonl", TRIPLES)), None).candidates
    assert candidates is not None
    expected = [(HEAP, "first in, first out"), (TREE, "least on top"), (HEAP, 'a "heap" of sand')]
    assert list(candidates()) == [(text_id(query), text_id(document)) for query, document in expected]


def test_without_negatives_bm25_makes_them(tmp_path: Path) -> None:
    rows = [{"anchor": HEAP, "positive": "a heap"}, {"anchor": TREE, "positive": "a tree"}]
    source = write_table(tmp_path / "train.csv", rows)
    assert read_triples(str(source), None).candidates is None
    assert negatives_of(imported(tmp_path, source))[text_id(HEAP)] == ids("a tree")


def test_the_files_of_a_folder_are_its_splits(tmp_path: Path) -> None:
    source = tmp_path / "my.data"
    write_table(source / "train-00000-of-00002.parquet", TRIPLES[:1])
    write_table(source / "train-00001-of-00002.parquet", TRIPLES[1:])
    write_table(source / "test.csv", [{"query": QUEUE, "positive": "first in, first out", "negative": "a full tree"}])
    write_files(source, {"README.md": "not a table"})
    collection = imported(tmp_path, source)
    assert collection.name == "my.data"
    assert held_out(collection) == ids(QUEUE)
    assert set(relevant_of(collection)[text_id(HEAP)]) == set(ids("least on top", "a full tree"))
    assert negatives_of(collection)[text_id(QUEUE)] == ids("a full tree")


def test_a_split_without_negatives_leaves_all_to_bm25(tmp_path: Path) -> None:
    write_table(tmp_path / "in" / "train.jsonl", TRIPLES)
    write_table(tmp_path / "in" / "test.jsonl", [{"query": QUEUE, "positive": "first in, first out"}])
    collection = imported(tmp_path, tmp_path / "in")
    assert {query: len(found) for query, found in negatives_of(collection).items()} == {
        text_id(HEAP): 3,
        text_id(TREE): 4,
        text_id(QUEUE): 4,
    }


def test_equal_queries_to_train_and_to_test_on_are_refused(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_table(tmp_path / "in" / f"{split}.jsonl", TRIPLES[:1])
    with pytest.raises(UnrankError, match=f"both for training and for testing: '{text_id(HEAP)}'"):
        imported(tmp_path, tmp_path / "in")


def test_an_unknown_split_brings_the_nearest(tmp_path: Path) -> None:
    for split, rows in (("train", TRIPLES[:1]), ("dev", TRIPLES[1:2])):
        write_table(tmp_path / "in" / f"{split}.jsonl", rows)
    with pytest.raises(UnrankError, match="unknown split 'devel': did you mean 'dev'"):
        imported(tmp_path, tmp_path / "in", ImportOptions(test_split="devel"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", '{"query": "x", "positive": "y"}\n{"query": "x"\n', "a.jsonl, line 2: not JSON"),
        (
            "a.jsonl",
            '{"question": "x", "positive": "y"}',
            "line 1: no column 'anchor' or 'query' or 'sentence1'; found",
        ),
        ("a.jsonl", '{"query": "x", "negative": "y"}', "line 1: no column 'passage' or 'document'"),
        (
            "a.jsonl",
            '{"query": "x", "text": "y"}',
            "a.jsonl, line 1: no column 'label' or 'score'; found 'query', 'text'",
        ),
        ("a.jsonl", '{"query": "x", "positive": null}', "a.jsonl, line 1: the column 'positive' holds no text"),
        ("a.jsonl", '{"query": "x", "positive": "y", "negative": 3}', "the column 'negative' holds neither a text nor"),
        ("a.jsonl", '{"query": "x", "positive": "y\\udc00"}', "a.jsonl, line 1: half of a surrogate pair"),
        ("a.jsonl", "", "a has no documents"),
        ("a.tsv", "query\tpositive\nx\ty\nx y\n", "a.tsv, line 3: expected 2 columns as in the header, found 1"),
        ("a.tsv", "query\tquery\nx\ty\n", "a.tsv, line 1: the column name 'query' occurs more than once"),
        ("a.tsv", "x\ty\nx\ty\n", "a.tsv, line 2: no column 'anchor' or 'query' or 'sentence1'; found 'x', 'y'"),
        ("a.tsv", "query\tpositive\n \ty\n", "a.tsv, line 2: the column 'query' holds no text"),
        ("a.csv", 'query,positive\n"x\n\nx",y\nx,y,z\n', "a.csv, line 5: expected 2 columns as in the header, found 3"),
        ("a.csv", 'query,positive\nx,y\n"x,y\n', "a.csv, line 3: not CSV: unexpected end of data"),
        (
            "a.csv",
            "query,text,label\nx,y,high\n",
            "a.csv, line 2: the column 'label' holds 'high', which is not a number",
        ),
        (
            "a.csv",
            "query,text,score\nx,y,nan\n",
            "a.csv, line 2: the column 'score' holds 'nan', which is not a number",
        ),
        (
            "a.jsonl",
            '{"query": "x", "text": "y", "label": 1' + "0" * 400 + "}",
            "a.jsonl, line 1: the column 'label' holds a number that is out of range",
        ),
        ("a.parquet", "PAR1 no", "a.parquet: not readable as Parquet: "),
        ("a.txt", "query\n", "a.txt: the ending '.txt' is not known; expected one of .jsonl, .tsv, .csv, .parquet"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    source = write_files(tmp_path / "in", {name: text})
    with pytest.raises(UnrankError) as raised:
        imported(tmp_path, source / name)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_place_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnrankError, match="nowhere: no such file or folder; triples: takes a file"):
        imported(tmp_path, tmp_path / "nowhere")


def test_a_folder_without_tables_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnrankError, match=r"in: contains no file that ends in one of \.jsonl, \.tsv"):
        imported(tmp_path, write_files(tmp_path / "in", {"README.md": ""}))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([2**31 - 1], pa.int32()).cast(pa.date32()), "the column 'more' holds a value that is not readable: "),
        (pa.array([2**62], pa.timestamp("us")), "the column 'more' holds a value that is not readable: "),
        (pa.array([b"\xff"]).view(pa.string()), "the column 'more' holds a value that is not readable: 'utf-8'"),
    ],
    ids=["date", "time", "text"],
)
def test_a_value_that_python_does_not_have_is_refused(tmp_path: Path, column: pa.Array, message: str) -> None:
    pq.write_table(pa.table({"query": ["a"], "positive": ["b"], "more": column}), tmp_path / "a.parquet")
    with pytest.raises(UnrankError, match=message):
        imported(tmp_path, tmp_path / "a.parquet")


def test_two_columns_of_one_name_are_refused_in_parquet_too(tmp_path: Path) -> None:
    pq.write_table(pa.table([["a"], ["b"], ["c"]], names=["query", "positive", "positive"]), tmp_path / "a.parquet")
    with pytest.raises(UnrankError, match="parquet: the column name 'positive' occurs more than once; rename one"):
        imported(tmp_path, tmp_path / "a.parquet")
