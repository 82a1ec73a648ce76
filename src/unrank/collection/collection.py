"""A collection: queries, documents, judgements, and a list to rank for each query.

On disk it is a folder of Arrow files, which are memory-mapped. A query's list holds at most 25 of its relevant
documents (sampled by seed) and its negatives; its other relevant documents are in no list. The code refers to queries
and documents by row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unrank.collection.arrow import open_arrow
from unrank.collection.options import ImportOptions
from unrank.collection.texts import Rows, Texts
from unrank.disk import exists, inside, read_json, sha256
from unrank.errors import BadFile, UnrankError
from unrank.parse import WrongValue, parse
from unrank.record import CollectionName

FORMAT_VERSION = 1
HASH_KEY = "seal"
"""The key, in `collection.json`, of a hash of all its other entries."""
VERIFIED_BYTES = 64 * 2**20
"""The files of a collection up to this size are hashed whenever it is opened: it takes a fraction of a second."""
FILES = ("queries.arrow", "documents.arrow", "judgements.arrow", "candidates.arrow")

Pairs = NDArray[np.int64]
"""Query row and document row. [pairs, 2]"""


@dataclass(frozen=True)
class FileHash:
    """The size and the hash of a file of a collection."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Description:
    """The entries of `collection.json` that are used."""

    name: str
    fingerprint: str
    min_grade: int
    test_min_grade: int
    files: Mapping[str, FileHash]
    source: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    """How it was imported."""


@dataclass(frozen=True)
class Ragged:
    """One array of document rows for each query, stored end to end."""

    offsets: Rows  # [queries + 1]
    values: NDArray[np.int32]

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @cached_property
    def counts(self) -> Rows:
        return np.diff(self.offsets)

    def pairs(self, rows: Rows) -> Pairs:
        """Return the (row, value) pairs of these rows, in their order."""
        counts = self.counts[rows]
        starts = np.repeat(self.offsets[rows], counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.stack([np.repeat(rows, counts), self.values[starts + within]], axis=1)


class Collection:
    """Queries, documents, judgements and lists, open for reading. Open one with `open_collection`."""

    def __init__(self, folder: Path, description: Description, tables: Mapping[str, pa.Table]) -> None:
        self.folder = folder
        self.description = description
        self.name = description.name
        self.queries = Texts("query", tables["queries"])
        self.documents = Texts("document", tables["documents"])
        self.is_test: NDArray[np.bool_] = _numpy(tables["queries"].column("test"))
        judgements = tables["judgements"]
        self.judged: Pairs = np.stack(
            [_numpy(judgements.column("query")), _numpy(judgements.column("document"))], axis=1
        ).astype(np.int64)
        self.grades: NDArray[np.int16] = _numpy(judgements.column("grade"))
        self.relevant = _ragged(tables["candidates"].column("relevant"))
        self.negatives = _ragged(tables["candidates"].column("negatives"))
        self._check_rows()

    def _check_rows(self) -> None:
        """Raise a ValueError if a row is named that does not exist."""
        queries, documents = len(self.queries), len(self.documents)
        lists = (self.relevant, self.negatives)
        named: list[tuple[NDArray[np.integer], int]] = [
            (self.judged[:, 0], queries),
            (self.judged[:, 1], documents),
            *((each.values, documents) for each in lists),
        ]
        if any(len(rows) and (rows.min() < 0 or rows.max() >= size) for rows, size in named):
            raise ValueError("it names a query or a document that is not there")
        if any(len(each.offsets) != queries + 1 for each in lists):
            raise ValueError("it does not hold one list for each query")

    @cached_property
    def training_queries(self) -> Rows:
        return np.flatnonzero(~self.is_test)

    @cached_property
    def test_queries(self) -> Rows:
        return np.flatnonzero(self.is_test)

    @cached_property
    def pairs(self) -> Pairs:
        """The relevant training pairs that are in a list."""
        return self.relevant.pairs(self.training_queries)

    @cached_property
    def test_pairs(self) -> Pairs:
        return self.relevant.pairs(self.test_queries)

    @cached_property
    def unlisted(self) -> int:
        """The number of relevant pairs that are in no list, because their query has too many."""
        min_grade = np.where(self.is_test, self.description.test_min_grade, self.description.min_grade)
        relevant = int(np.count_nonzero(self.grades >= min_grade[self.judged[:, 0]]))
        return relevant - len(self.relevant.values)

    def list_pairs(self, queries: Rows) -> Pairs:
        """Return all pairs of these queries' lists: the relevant ones, then the negatives."""
        return np.concatenate([self.relevant.pairs(queries), self.negatives.pairs(queries)])

    def pair_keys(self, pairs: Pairs) -> Rows:
        """Return one number for each pair, by which pairs are compared."""
        return pairs[:, 0] * len(self.documents) + pairs[:, 1]

    def find_pairs(self, pairs: Pairs, among: Pairs) -> Rows:
        """Return where pairs are among others, which hold all of them."""
        keys = self.pair_keys(among)
        order = np.argsort(keys)
        return order[np.searchsorted(keys, self.pair_keys(pairs), sorter=order)]

    def gains(self, pairs: Pairs) -> NDArray[np.float64]:
        """Return what each relevant pair counts in nDCG: its grade, at least 1."""
        keys, grades = self._graded
        wanted = self.pair_keys(pairs)
        where = np.searchsorted(keys, wanted)
        there = where < len(keys)
        there[there] = keys[where[there]] == wanted[there]
        gains = np.ones(len(pairs))
        gains[there] = np.maximum(grades[where[there]], 1)
        return gains

    @cached_property
    def _graded(self) -> tuple[Rows, NDArray[np.int16]]:
        """The keys of all judged pairs in their order, and the grades."""
        keys = self.pair_keys(self.judged)
        order = np.argsort(keys)
        return keys[order], self.grades[order]

    def pair_ids(self, pairs: Pairs) -> list[tuple[str, str]]:
        return list(zip(self.queries.ids(pairs[:, 0]), self.documents.ids(pairs[:, 1]), strict=True))

    def check_candidates(self) -> None:
        """Raise an error if no query has a negative."""
        if len(self.negatives.values):
            return
        if self.description.options.get("candidates", 0) == 0:
            raise UnrankError(
                f"{self.name} was imported without candidates, so there is nothing to rank against; import it again, "
                "with --candidates above 0"
            )
        raise UnrankError(
            f"in {self.name} every document is relevant to every query, so there is nothing to rank against; add "
            "documents, and import it again"
        )

    @property
    def named(self) -> CollectionName:
        """The collection as records name it, with the options of its import."""
        imported = {"source": self.description.source, **self.description.options} if self.description.options else {}
        return CollectionName(self.name, self.fingerprint, imported)

    @property
    def fingerprint(self) -> str:
        """One hash of all the files."""
        return self.description.fingerprint

    def __repr__(self) -> str:
        return (
            f"Collection({self.name!r}: {len(self.queries):,} queries, {len(self.documents):,} documents, "
            f"{len(self.pairs):,} training pairs, {len(self.test_queries):,} test queries)"
        )


def open_collection(folder: str | Path, verify: bool | None = None) -> Collection:
    """Open a collection folder that `unrank import` wrote. Texts are read when they are needed; offsets and rows are
    checked at once. `verify` checks the hash of every file; by default a small collection's are checked."""
    folder = Path(folder)
    if not exists(folder) or not folder.is_dir():
        raise BadFile(folder, "no such collection folder; make one with 'unrank import'")
    if not (folder / "collection.json").is_file():
        raise BadFile(folder, "not a collection: it holds no collection.json; make one with 'unrank import'")
    description = _read_description(folder)
    size = sum(description.files[name].bytes for name in FILES)
    if verify or (verify is None and size <= VERIFIED_BYTES):
        _check_hashes(folder, description)
    tables = {name.removesuffix(".arrow"): open_arrow(folder / name) for name in FILES}
    try:
        return Collection(folder, description, tables)
    except (KeyError, pa.ArrowException, ValueError, TypeError) as error:
        raise BadFile(folder, f"damaged collection ({error}); import it again") from error


def _read_description(folder: Path) -> Description:
    """Return the description of a collection; raise an error if it, or the size of a file, is not as it was written."""
    path = folder / "collection.json"
    value = read_json(path)
    if not isinstance(value, dict) or "format_version" not in value:
        raise BadFile(path, "not a collection's description; import the collection again")
    if value["format_version"] != FORMAT_VERSION:
        raise BadFile(
            path, f"format version {value['format_version']}, this unrank reads {FORMAT_VERSION}; import it again"
        )
    try:
        description: Description = parse(Description, value)
    except WrongValue as error:
        raise BadFile(path, f"damaged: {error}; import the collection again") from error
    if HASH_KEY in value and value[HASH_KEY] != description_hash(value):
        raise BadFile(
            path, f"changed since it was written; import the collection again, or take {HASH_KEY!r} out of it"
        )
    for name in FILES:
        file = inside(folder, name)
        if name not in description.files:
            raise BadFile(path, f"damaged: it does not describe {name}; import the collection again")
        if not file.is_file() or file.stat().st_size != description.files[name].bytes:
            raise BadFile(file, "missing or cut short since the collection was written; import it again")
    options = {each.name: value[each.name] for each in fields(ImportOptions) if each.name in value}
    return replace(description, options=options)


def _check_hashes(folder: Path, description: Description) -> None:
    for name in FILES:
        if sha256(folder / name) != description.files[name].sha256:
            raise BadFile(folder / name, "changed since the collection was written; import it again")


def description_hash(description: Mapping[str, object]) -> str:
    """Return one hash of a description, the entry of the hash itself left out."""
    hashed = {key: value for key, value in description.items() if key != HASH_KEY}
    return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()


def _numpy(column: pa.ChunkedArray) -> NDArray[Any]:
    return np.asarray(column.chunk(0).to_numpy(zero_copy_only=False) if column.num_chunks == 1 else column.to_numpy())


def _ragged(column: pa.ChunkedArray) -> Ragged:
    lists = column.chunk(0) if column.num_chunks == 1 else pa.chunked_array(column).combine_chunks()
    return Ragged(np.asarray(lists.offsets).astype(np.int64), np.asarray(lists.values))
