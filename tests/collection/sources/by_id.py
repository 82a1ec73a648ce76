"""A collection in the words of its source: ids and texts instead of rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unrank.collection.collection import Collection, Ragged
from unrank.collection.texts import Texts


def write_files(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def texts_of(texts: Texts) -> dict[str, str]:
    rows = np.arange(len(texts))
    return dict(zip(texts.ids(rows), texts.texts(rows), strict=True))


def relevant_of(collection: Collection) -> dict[str, list[str]]:
    return _lists(collection, collection.relevant)


def negatives_of(collection: Collection) -> dict[str, list[str]]:
    return _lists(collection, collection.negatives)


def held_out(collection: Collection) -> list[str]:
    return collection.queries.ids(collection.test_queries)


def grades_of(collection: Collection) -> dict[tuple[str, str], int]:
    queries = collection.queries.ids(collection.judged[:, 0])
    documents = collection.documents.ids(collection.judged[:, 1])
    return dict(zip(zip(queries, documents, strict=True), collection.grades.tolist(), strict=True))


def _lists(collection: Collection, lists: Ragged) -> dict[str, list[str]]:
    rows = range(len(collection.queries))
    return {collection.queries.id(row): collection.documents.ids(lists[row].astype(np.int64)) for row in rows}
