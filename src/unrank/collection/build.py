"""Write a collection folder from a source, as a stream.

Documents are written as they are read; only their ids stay in memory. Negatives come from the source's run, or from
BM25.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unrank.collection.arrow import list_column, open_table, text_batches, write_table, write_texts
from unrank.collection.collection import (
    FILES,
    FORMAT_VERSION,
    HASH_KEY,
    Collection,
    Ragged,
    description_hash,
    open_collection,
)
from unrank.collection.lists import group, listed_relevant, make_negatives
from unrank.collection.options import ImportOptions
from unrank.collection.selection import Judged, select_queries
from unrank.collection.sources import read_source
from unrank.collection.sources.source import Raw, Text
from unrank.collection.texts import Rows, Texts
from unrank.disk import check_free, new_folder, sha256, write_json
from unrank.errors import UnknownIds, UnrankError

TEST_RELEVANT = 25
"""Maximal number of relevant documents in a test query's list."""


def import_collection(source: str, out: str | Path, options: ImportOptions | None = None) -> Collection:
    """Read a source such as `beir:PATH` and write the collection folder `out`."""
    options = options or ImportOptions()
    check_free(Path(out))
    raw = read_source(source, options.test_split)
    return build_collection(raw, Path(out), options, source.partition(":")[0])


def build_collection(raw: Raw, out: Path, options: ImportOptions, source: str = "memory") -> Collection:
    """Write the collection folder `out` from the data of a source."""
    with new_folder(out) as folder:
        documents = _write_documents(raw, folder)
        train, test = select_queries(raw, documents, options)
        queries = _write_queries(raw, folder, train, test)
        is_test = np.arange(len(queries)) >= len(train.query_ids)
        rows = np.concatenate([train.queries, len(train.query_ids) + test.queries])
        columns = _write_judgements(folder, rows, _joined(train, test, "documents"), _joined(train, test, "grades"))
        relevant = _relevant(columns, is_test, options)
        most = np.where(is_test, TEST_RELEVANT, options.relevant)
        listed = listed_relevant(relevant, most, documents, queries, options.seed)
        negatives = _negatives(raw, relevant, queries, documents, options)
        lists = {"relevant": listed, "negatives": negatives}
        lists_columns = {name: list_column(each.offsets, each.values) for name, each in lists.items()}
        write_table(folder / "candidates.arrow", lists_columns)
        write_json(folder / "collection.json", _description(folder, raw, source, options))
    return open_collection(out)


def _relevant(columns: dict[str, NDArray[Any]], is_test: NDArray[np.bool_], options: ImportOptions) -> Ragged:
    min_grade = np.where(is_test, options.test_min_grade, options.min_grade)
    keep = columns["grade"] >= min_grade[columns["query"]]
    return group(columns["query"][keep], columns["document"][keep], len(is_test))


def _negatives(raw: Raw, relevant: Ragged, queries: Texts, documents: Texts, options: ImportOptions) -> Ragged:
    if options.candidates == 0:
        return Ragged(np.zeros(len(queries) + 1, np.int64), np.empty(0, np.int32))
    run = raw.candidates() if raw.candidates is not None else None
    return make_negatives(run, relevant, queries, documents, options.candidates, options.seed)


def _write_documents(raw: Raw, folder: Path) -> Texts:
    path = folder / "documents.arrow"
    write_texts(path, text_batches(raw.documents()))
    documents = Texts("document", open_table(path))
    if len(documents) == 0:
        raise UnrankError(f"{raw.name} has no documents")
    documents.check_unique()
    return documents


def _write_queries(raw: Raw, folder: Path, train: Judged, test: Judged) -> Texts:
    """Write the queries to use, training queries first, each split in the order of the source."""
    ids = [*train.query_ids, *test.query_ids]
    texts: dict[str, str | None] = dict.fromkeys(ids)
    seen: set[str] = set()
    for id, text in raw.queries():
        if id in seen:
            raise UnrankError(f"{raw.name}: the query id {id!r} occurs more than once; ids must be unique")
        seen.add(id)
        if id in texts:
            texts[id] = text
    if missing := [id for id, text in texts.items() if text is None]:
        raise UnknownIds("query", missing, "the judgements")
    found = (Text(id, text) for id, text in texts.items() if text is not None)
    table = pa.Table.from_batches(text_batches(found, most=len(ids)))
    is_test = pa.array(np.arange(len(ids)) >= len(train.query_ids))
    columns = {"id": table["id"], "text": table["text"], "test": is_test}
    return Texts("query", write_table(folder / "queries.arrow", columns))


def _write_judgements(
    folder: Path, queries: Rows, documents: Rows, grades: NDArray[np.int16]
) -> dict[str, NDArray[Any]]:
    """Write judgements sorted by query and document. If a pair is judged twice, the higher grade counts."""
    order = np.lexsort((-grades.astype(np.int32), documents, queries))
    queries, documents, grades = queries[order], documents[order], grades[order]
    first = np.ones(len(order), bool)
    first[1:] = (queries[1:] != queries[:-1]) | (documents[1:] != documents[:-1])
    columns: dict[str, NDArray[Any]] = {
        "query": queries[first].astype(np.int32),
        "document": documents[first].astype(np.int32),
        "grade": grades[first],
    }
    write_table(folder / "judgements.arrow", {name: pa.array(values) for name, values in columns.items()})
    return columns


def _description(folder: Path, raw: Raw, source: str, options: ImportOptions) -> dict[str, object]:
    files = {name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)} for name in FILES}
    fingerprint = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    counts = {name.removesuffix(".arrow"): open_table(folder / name).num_rows for name in FILES[:3]}
    head = {"format_version": FORMAT_VERSION, "name": raw.name, "source": source, "licence": raw.licence}
    described = {**head, **asdict(options), "counts": counts, "files": files, "fingerprint": fingerprint}
    return {**described, HASH_KEY: description_hash(described)}


def _joined(train: Judged, test: Judged, name: str) -> NDArray[Any]:
    return np.concatenate([getattr(train, name), getattr(test, name)])
