"""triples: what is said about training columns that are not right."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.collection.sources.by_id import write_files
from tests.collection.sources.test_triples import HEAP, TRIPLES, imported, write_table

from unrank.collection.build import ImportOptions
from unrank.collection.sources.triples import text_id
from unrank.errors import UnrankError


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
        ("a.tsv", "query\tquery\nx\ty\n", "a.tsv, line 1: a column name stands twice in the header: 'query', 'query'"),
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
    with pytest.raises(UnrankError, match=r"in: holds no file that ends in one of \.jsonl, \.tsv"):
        imported(tmp_path, write_files(tmp_path / "in", {"README.md": ""}))
