"""From a source to a collection folder, as a stream.

Documents go to disk as they are read; only their ids stay in memory. Queries without a relevant document
have no part in ranking and are left out. Negatives come from the source's run or from BM25.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unrank.collection.arrow import list_column, open_table, text_batches, write_table, write_texts
from unrank.collection.collection import FILES, FORMAT_VERSION, SEAL, Collection, Ragged, open_collection, seal
from unrank.collection.construction import check_constructions, constructed
from unrank.collection.lists import group, listed_relevant, make_negatives
from unrank.collection.order import hashed_order
from unrank.collection.sources import read_source
from unrank.collection.sources.source import PAIRS_A_BATCH, Raw, batched
from unrank.collection.texts import Rows, Texts
from unrank.disk import check_free, new_folder, sha256, write_json
from unrank.errors import UnknownIds, UnknownName, UnrankError, listed

TEST_RELEVANT = 25


@dataclass(frozen=True)
class ImportOptions:
    """How a source becomes a collection."""

    candidates: int = 100
    """Negatives in a query's list; 0 makes none."""
    test_split: str | None = None
    """The split whose queries are for testing; by default `test`, where there is another to train on."""
    test_share: float | None = None
    """Instead of a split: the share of the queries that are kept for testing."""
    min_grade: int = 1
    """The least grade at which a training judgement counts as relevant."""
    test_min_grade: int = 1
    relevant: int = 25
    """Relevant documents in a training query's list, at most."""
    train_queries: int | None = None
    """Keep this many training queries, drawn by seed."""
    test_queries: int | None = None
    seed: int = 0
    keep: Sequence[str] = ()
    """The paper's constructions: keep the training queries that one of these names. With `train_queries` those come
    first, and others, drawn by seed, fill up."""

    def __post_init__(self) -> None:
        for name in ("relevant", "train_queries", "test_queries"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UnrankError(f"{name.replace('_', ' ')} must be at least 1, not {value}")
        if self.candidates < 0:
            raise UnrankError(f"candidates must be 0 or more, not {self.candidates}")
        if self.test_share is not None and not 0 < self.test_share < 1:
            raise UnrankError(f"a test share of {self.test_share:g} is not possible: give one between 0 and 1")
        if self.test_share is not None and self.test_split is not None:
            raise UnrankError("give a test split or a test share, not both")
        check_constructions(self.keep)


@dataclass(frozen=True)
class Judged:
    """Judgements of one split: documents as rows, queries as positions in `query_ids`."""

    query_ids: list[str]
    queries: Rows
    documents: Rows
    grades: NDArray[np.int16]

    def take(self, positions: Iterable[int]) -> Judged:
        """Only the queries at these positions."""
        kept = sorted(positions)
        place = np.full(len(self.query_ids), -1)
        place[kept] = np.arange(len(kept))
        here = place[self.queries] >= 0
        ids = [self.query_ids[position] for position in kept]
        return Judged(ids, place[self.queries[here]], self.documents[here], self.grades[here])

    def with_relevant(self, least: int) -> Judged:
        """Only the queries with a document of at least this grade."""
        return self.take(np.unique(self.queries[self.grades >= least]).tolist())


def import_collection(source: str, out: str | Path, options: ImportOptions | None = None) -> Collection:
    """Read a source such as `beir:PATH` and write the collection folder `out`."""
    options = options or ImportOptions()
    check_free(Path(out))
    raw = read_source(source, options.test_split)
    return build_collection(raw, Path(out), options, source.partition(":")[0])


def build_collection(raw: Raw, out: Path, options: ImportOptions, source: str = "memory") -> Collection:
    """Write the collection folder `out` from what a source handed over."""
    with new_folder(out) as folder:
        documents = _write_documents(raw, folder)
        train, test = _judged(raw, documents, options)
        queries = _write_queries(raw, folder, train, test)
        is_test = np.arange(len(queries)) >= len(train.query_ids)
        rows = np.concatenate([train.queries, len(train.query_ids) + test.queries])
        columns = _write_judgements(folder, rows, _joined(train, test, "documents"), _joined(train, test, "grades"))
        relevant = _relevant(columns, is_test, options)
        most = np.where(is_test, TEST_RELEVANT, options.relevant)
        listed = listed_relevant(relevant, most, documents, queries, options.seed)
        negatives = _negatives(raw, relevant, queries, documents, options)
        write_table(folder / "candidates.arrow", {"relevant": list_column(listed), "negatives": list_column(negatives)})
        write_json(folder / "collection.json", _description(folder, raw, source, options))
    return open_collection(out)


def _judged(raw: Raw, documents: Texts, options: ImportOptions) -> tuple[Judged, Judged]:
    """The training and the test judgements, of the queries that are in use."""
    train_split, test_split = _choose_splits(list(raw.splits), options)
    train = _read_judgements(raw, train_split, documents).with_relevant(options.min_grade)
    if test_split is not None:
        test = _read_judgements(raw, test_split, documents).with_relevant(options.test_min_grade)
    else:
        order = hashed_order(train.query_ids, f"{options.seed}:test")
        cut = round(len(order) * (options.test_share or 0))
        test = train.take(order[:cut]).with_relevant(options.test_min_grade)
        train = train.take(order[cut:])
    if both := sorted(set(train.query_ids) & set(test.query_ids)):
        raise UnrankError(f"queries that are both for training and for testing: {listed(both)}")
    if not train.query_ids:
        raise UnrankError(
            f"split {train_split!r} leaves no training query with a document of grade {options.min_grade} or more"
        )
    first = _constructed(train, options)
    train = _drawn(train, options.train_queries, f"{options.seed}:train queries", first)
    test = _drawn(test, options.test_queries, f"{options.seed}:test queries")
    return train, test


def _constructed(train: Judged, options: ImportOptions) -> set[int] | None:
    """The positions of the queries that the paper's constructions keep; None where none is asked for."""
    if not options.keep:
        return None
    relevant = train.grades >= options.min_grade
    kept = constructed(options.keep, train.queries[relevant], train.documents[relevant])
    if not len(kept):
        raise UnrankError(f"no training query is one of the {' or '.join(options.keep)}: leave --keep out")
    return set(kept.tolist())


def _choose_splits(names: list[str], options: ImportOptions) -> tuple[str, str | None]:
    test = options.test_split
    if test is not None and test not in names:
        raise UnknownName("split", test, names)
    if test is None and options.test_share is None and "test" in names and len(names) > 1:
        test = "test"
    others = [name for name in names if name != test]
    if not others:
        raise UnrankError(f"{test!r} is the only split, so nothing is left to train on: use --test-share instead")
    return ("train" if "train" in others else others[0]), test


def _drawn(judged: Judged, most: int | None, salt: str, first: set[int] | None = None) -> Judged:
    """So many queries, drawn by seed: `first` before all others, or alone where no number is given."""
    if most is None:
        return judged if first is None else judged.take(first)
    order = hashed_order(judged.query_ids, salt)
    if first is not None:
        order.sort(key=lambda position: position not in first)
    return judged.take(order[:most])


def _read_judgements(raw: Raw, split: str, documents: Texts) -> Judged:
    where = f"the judgements of split {split!r}"
    query_ids: dict[str, int] = {}
    queries, rows, grades = [], [], []
    for batch in batched(raw.splits[split](), PAIRS_A_BATCH):
        found = documents.find(pa.array([judgement.document for judgement in batch], pa.string()))
        if missing := [batch[i].document for i in np.flatnonzero(found < 0)]:
            raise UnknownIds("document", list(dict.fromkeys(missing)), where)
        queries.append(np.array([query_ids.setdefault(judgement.query, len(query_ids)) for judgement in batch]))
        rows.append(found)
        grades.append(np.array([judgement.grade for judgement in batch], np.int16))
    none = np.empty(0, np.int64)
    return Judged(
        list(query_ids),
        np.concatenate([none, *queries]),
        np.concatenate([none, *rows]),
        np.concatenate([none.astype(np.int16), *grades]),
    )


def _relevant(columns: dict[str, NDArray[Any]], is_test: NDArray[np.bool_], options: ImportOptions) -> Ragged:
    least = np.where(is_test, options.test_min_grade, options.min_grade)
    keep = columns["grade"] >= least[columns["query"]]
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
    """The queries in use, those for training first, each group in the order of the source."""
    place = {id: row for row, id in enumerate([*train.query_ids, *test.query_ids])}
    texts: list[str | None] = [None] * len(place)
    seen: set[str] = set()
    for id, text in raw.queries():
        if id in seen:
            raise UnrankError(f"{raw.name}: the query id {id!r} stands there twice; ids must be unique")
        seen.add(id)
        if id in place:
            texts[place[id]] = text
    if missing := [id for id, row in place.items() if texts[row] is None]:
        raise UnknownIds("query", missing, "the judgements")
    is_test = np.arange(len(place)) >= len(train.query_ids)
    columns = {
        "id": pa.array(list(place), pa.string()),
        "text": pa.array(texts, pa.string()),
        "test": pa.array(is_test),
    }
    return Texts("query", write_table(folder / "queries.arrow", columns))


def _write_judgements(
    folder: Path, queries: Rows, documents: Rows, grades: NDArray[np.int16]
) -> dict[str, NDArray[Any]]:
    """Sorted by query and document; of a pair judged twice the higher grade counts."""
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


def _description(folder: Path, raw: Raw, source: str, options: ImportOptions) -> dict[str, Any]:
    files = {name: {"bytes": (folder / name).stat().st_size, "sha256": sha256(folder / name)} for name in FILES}
    fingerprint = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    counts = {name.removesuffix(".arrow"): open_table(folder / name).num_rows for name in FILES[:3]}
    head = {"format_version": FORMAT_VERSION, "name": raw.name, "source": source, "licence": raw.licence}
    described = {**head, **asdict(options), "counts": counts, "files": files, "fingerprint": fingerprint}
    return {**described, SEAL: seal(described)}


def _joined(train: Judged, test: Judged, name: str) -> NDArray[Any]:
    return np.concatenate([getattr(train, name), getattr(test, name)])
