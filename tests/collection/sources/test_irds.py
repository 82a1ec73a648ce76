"""ir_datasets: what is read, and the errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.collection.sources.by_id import held_out, negatives_of, relevant_of, texts_of, write_files
from tests.collection.sources.made_datasets import FILES, built, library_in, made_dev, made_train, with_run

from unrank.collection.build import import_collection
from unrank.collection.options import ImportOptions
from unrank.collection.sources.irds import raw_from_dataset, read_irds
from unrank.errors import UnrankError


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
    assert collection.description.source == "irds"
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


@pytest.mark.usefixtures("library")
def test_an_unknown_id_brings_the_nearest() -> None:
    with pytest.raises(
        UnrankError, match="unknown ir_datasets id 'msmarco-pasage/train': did you mean 'msmarco-passage"
    ):
        read_irds("msmarco-pasage/train", None)
    with pytest.raises(UnrankError, match=r"unknown ir_datasets id 'car/v1\.5/tset200'"):
        read_irds("car/v1.5/train/fold0", "car/v1.5/tset200")


@pytest.mark.usefixtures("library")
def test_an_id_without_judgements_brings_some_that_have_them() -> None:
    message = r"irds:car/v1\.5 has no queries and no qrels; name a part of it that has, such as 'car/v1\.5/"
    with pytest.raises(UnrankError, match=message):
        read_irds("car/v1.5", None)


def test_a_download_that_fails_is_one_line(
    tmp_path: Path, library: Any, train: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    closed = library.util.RequestsDownload("http://127.0.0.1:9/documents.tsv", tries=1)
    dataset = library.Dataset(library.formats.TsvDocs(library.util.Download([closed], tmp_path / "cache")), train)
    with pytest.raises(UnrankError, match=r"irds:made/here could not be downloaded or read \(.+\); check the network"):
        built(tmp_path, dataset)
    assert not (tmp_path / "out").exists()


def test_an_id_that_cannot_even_be_looked_up_is_one_line(library: Any) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("All download sources failed\n" + "mirror " * 100)

    library.registry.register_pattern("^made-elsewhere$", fail)
    with pytest.raises(UnrankError) as raised:
        read_irds("made-elsewhere", None)
    assert str(raised.value).startswith(
        "irds:made-elsewhere could not be downloaded or read (All download sources failed "
    )
    assert len(str(raised.value).splitlines()[0]) == len(str(raised.value)) < 300


def test_a_package_that_a_dataset_lacks_is_named(library: Any, train: Any) -> None:
    class Unreadable(library.formats.BaseDocs):  # type: ignore[misc]
        def docs_iter(self) -> Iterator[Any]:
            raise ImportError("This dataset requires trec-car-tools")

    raw = raw_from_dataset("made/here", library.Dataset(Unreadable(), train))
    with pytest.raises(UnrankError, match=r"^irds:made/here: This dataset requires trec-car-tools$"):
        list(raw.documents())


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("documents.tsv", "d1\ta\tb\n", "irds:made/here could not be downloaded or read (expected 2 fields, got 3)"),
        ("qrels.txt", "q1 d1 1\n", "irds:made/here could not be downloaded or read (expected 4 columns, got 3)"),
        ("documents.tsv", "d1\ta\n" * 2, "1 document id given more than once: 'd1'"),
        ("queries.tsv", "q1\ta\nq1\tb\n", "irds:made/here: the query id 'q1' has two texts"),
        ("queries.tsv", "q1\ta\n", "the judgements: 1 query id not in the collection: 'q2'"),
        ("qrels.txt", "q1 0 d9 1\n", "the judgements of split 'train': 1 document id not in the collection: 'd9'"),
    ],
)
def test_what_is_wrong_is_one_line(
    tmp_path: Path, folder: Path, train: Any, name: str, text: str, message: str
) -> None:
    write_files(folder, {name: text})
    with pytest.raises(UnrankError) as raised:
        built(tmp_path, train)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_bytes_that_are_not_utf_8_are_refused(tmp_path: Path, folder: Path, train: Any) -> None:
    (folder / "documents.tsv").write_bytes(b"d1\t\xff\n")
    with pytest.raises(UnrankError, match=r"irds:made/here could not be downloaded or read \('utf-8' codec"):
        built(tmp_path, train)


def test_a_missing_file_is_one_line(tmp_path: Path, folder: Path, train: Any) -> None:
    (folder / "queries.tsv").unlink()
    with pytest.raises(UnrankError, match=r"irds:made/here could not be downloaded or read \(.*queries\.tsv\)"):
        built(tmp_path, train)


class Paper(NamedTuple):
    doc_id: str
    abstract: str


def test_documents_without_a_text_are_refused(tmp_path: Path, library: Any, folder: Path, train: Any) -> None:
    documents = library.formats.TsvDocs(library.util.LocalDownload(folder / "documents.tsv"), Paper)
    with pytest.raises(
        UnrankError, match="irds:made/here: ir_datasets does not say which of doc_id, abstract is the text"
    ):
        built(tmp_path, library.Dataset(documents, train))


@pytest.mark.parametrize("test_split", [None, "car/v1.5/test200"])
def test_without_ir_datasets_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, test_split: str | None) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(UnrankError, match=r"the source irds: needs ir_datasets: pip install 'unrank\[irds\]'"):
        read_irds("car/v1.5/train/fold0", test_split)
