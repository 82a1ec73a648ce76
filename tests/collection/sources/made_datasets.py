"""Datasets of ir_datasets that are made here, so that nothing is downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from unrank.collection.build import build_collection
from unrank.collection.collection import Collection
from unrank.collection.options import ImportOptions
from unrank.collection.sources.irds import raw_from_dataset

FILES = {
    "documents.tsv": "d1\ta heap keeps the least on top\nd2\ta queue keeps its order\nd3\ta tree has a root\nd4\t\n",
    "queries.tsv": "q1\twhat is a heap\nq2\twhat is a tree\n",
    "qrels.txt": "q1 0 d1 1\nq1 0 d2 0\nq2 0 d3 2\n",
    "run.txt": "q2 Q0 d1 1 0 t\nq1 Q0 d3 2 0.1 t\nq1 Q0 d4 1 0.9 t\nq2 Q0 d2 1 0 t\n",
    "dev/queries.tsv": "q2\twhat is a tree\nq3\twhat is a queue\n",
    "dev/qrels.txt": "q3 0 d2 1\n",
    "dev/run.txt": "q3 Q0 d4 1 1 t\nq3 Q0 d1 2 2 t\n",
}


@contextmanager
def library_in(home: Path) -> Iterator[Any]:
    """ir_datasets, which keeps its files in `home`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IR_DATASETS_HOME", str(home))
        yield pytest.importorskip("ir_datasets")


def made_train(library: Any, folder: Path) -> Any:
    names = {"docs_tsv": "documents.tsv", "queries_tsv": "queries.tsv", "qrels_trec": "qrels.txt"}
    return library.create_dataset(**{part: str(folder / name) for part, name in names.items()})


def made_dev(library: Any, folder: Path) -> Any:
    parts = {"queries_tsv": str(folder / "dev/queries.tsv"), "qrels_trec": str(folder / "dev/qrels.txt")}
    return library.create_dataset(**parts)


def with_run(library: Any, dataset: Any, path: Path) -> Any:
    run = library.formats.TrecScoredDocs(library.util.LocalDownload(path))
    return library.Dataset(dataset, run)


def built(tmp_path: Path, dataset: Any, tests: dict[str, Any] | None = None) -> Collection:
    options = ImportOptions(test_split=next(iter(tests or {}), None))
    return build_collection(raw_from_dataset("made/here", dataset, tests), tmp_path / "out", options)
