"""irds: what datasets of ir_datasets become. All are made here; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.collection.sources.by_id import held_out, negatives_of, relevant_of, texts_of, write_files
from tests.collection.sources.made_datasets import FILES, built, library_in, made_dev, made_train, with_run

from unrank.collection.build import ImportOptions, import_collection
from unrank.collection.sources.irds import raw_from_dataset, read_irds


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with library_in(tmp_path_factory.mktemp("ir_datasets")) as library:
        yield library


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "in", FILES)


@pytest.fixture
def train(library: Any, folder: Path) -> Any:
    return made_train(library, folder)


@pytest.fixture
def dev(library: Any, folder: Path) -> Any:
    return made_dev(library, folder)


def test_a_dataset_becomes_a_collection(tmp_path: Path, train: Any) -> None:
    collection = built(tmp_path, train)
    assert collection.name == "made/here"
    assert texts_of(collection.documents) == {
        "d1": "a heap keeps the least on top",
        "d2": "a queue keeps its order",
        "d3": "a tree has a root",
        "d4": "",
    }
    assert texts_of(collection.queries) == {"q1": "what is a heap", "q2": "what is a tree"}
    assert relevant_of(collection) == {"q1": ["d1"], "q2": ["d3"]}
    assert sorted(negatives_of(collection)["q1"]) == ["d2", "d3", "d4"]
    assert held_out(collection) == []


def test_another_dataset_is_for_testing(tmp_path: Path, train: Any, dev: Any) -> None:
    collection = built(tmp_path, train, {"made/dev": dev})
    assert texts_of(collection.queries)["q3"] == "what is a queue"
    assert held_out(collection) == ["q3"]
    assert relevant_of(collection) == {"q1": ["d1"], "q2": ["d3"], "q3": ["d2"]}


def test_scored_documents_are_the_candidates(tmp_path: Path, folder: Path, library: Any, train: Any, dev: Any) -> None:
    tests = {"made/dev": with_run(library, dev, folder / "dev/run.txt")}
    collection = built(tmp_path, with_run(library, train, folder / "run.txt"), tests)
    assert negatives_of(collection) == {"q1": ["d4", "d3"], "q2": ["d1", "d2"], "q3": ["d1", "d4"]}


def test_scored_documents_for_some_leave_all_to_bm25(folder: Path, library: Any, train: Any, dev: Any) -> None:
    scored = with_run(library, train, folder / "run.txt")
    assert raw_from_dataset("made/here", scored).candidates is not None
    assert raw_from_dataset("made/here", scored, {"made/dev": dev}).candidates is None


def test_registered_ids_are_imported(tmp_path: Path, library: Any, train: Any, dev: Any) -> None:
    library.registry.register("made-here", train)
    library.registry.register("made-here/dev", dev)
    options = ImportOptions(test_split="made-here/dev")
    collection = import_collection("irds:made-here", tmp_path / "out", options)
    assert collection.name == "made-here"
    assert collection.description["source"] == "irds"
    assert held_out(collection) == ["q3"]


def test_a_known_id_is_not_downloaded_before_it_is_read(library: Any) -> None:
    raw = read_irds("msmarco-passage/train/judged", "msmarco-passage/dev/small")
    assert list(raw.splits) == ["train", "msmarco-passage/dev/small"]
    assert raw.candidates is not None
    assert not any(library.util.home_path().rglob("*.tsv"))


class Reasoned(NamedTuple):
    query_id: str
    text: str


def test_a_text_that_is_not_the_default_is_taken_where_it_is_plain(library: Any, folder: Path, train: Any) -> None:
    download = library.util.LocalDownload(folder / "queries.tsv")
    raw = raw_from_dataset("made/here", library.Dataset(library.formats.TsvQueries(download, Reasoned), train))
    assert next(iter(raw.queries())) == ("q1", "what is a heap")
