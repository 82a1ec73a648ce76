"""Texts and their ids, memory-mapped.

The code refers to a text by its row number; ids are used in input and output only. A text is read from disk when it is
needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unrank.errors import UnknownIds, UnrankError, count, listed

Rows = NDArray[np.int64]

FEW = 100
"""Ids are looked up in little memory if the collection has this many times more of them."""


def hashed_order(ids: Sequence[str], salt: str) -> list[int]:
    """Return the positions of `ids` in a random order that depends on salt and ids alone, not on their input order.

    >>> hashed_order(["a", "b", "c"], "0"), hashed_order(["c", "a", "b"], "0")
    ([0, 2, 1], [1, 0, 2])
    """
    return sorted(range(len(ids)), key=lambda i: hashlib.sha256(f"{salt}:{ids[i]}".encode()).digest())


class Texts:
    """The queries or the documents of a collection."""

    def __init__(self, what: str, table: pa.Table) -> None:
        self.what = what
        self._ids: pa.ChunkedArray = table.column("id")
        self._texts: pa.ChunkedArray = table.column("text")

    def __len__(self) -> int:
        return len(self._ids)

    @cached_property
    def _starts(self) -> Rows:
        sizes = [len(chunk) for chunk in self._ids.chunks]
        return np.cumsum([0, *sizes])

    def id(self, row: int) -> str:
        return self.ids([row])[0]

    def text(self, row: int) -> str:
        return self.texts([row])[0]

    def ids(self, rows: Sequence[int] | NDArray[np.integer]) -> list[str]:
        return self._take(self._ids, rows)

    def texts(self, rows: Sequence[int] | NDArray[np.integer]) -> list[str]:
        return self._take(self._texts, rows)

    def between(self, start: int, stop: int) -> pa.ChunkedArray:
        """Return the texts of rows `start` to `stop` as Arrow holds them, without a copy."""
        return self._texts.slice(start, stop - start)

    def batches(self) -> list[pa.StringArray]:
        """Return all texts in order, chunk by chunk."""
        return list(self._texts.chunks)

    def rows(self, ids: Sequence[str], where: str = "the removal") -> Rows:
        """Return the rows of these ids; raise an error that names the unknown ones."""
        if broken := [id for id in ids if not _is_text(id)]:
            raise UnknownIds(self.what, broken, where)
        found = self.find(pa.array(ids, pa.string()))
        if missing := [ids[i] for i in np.flatnonzero(found < 0).tolist()]:
            raise UnknownIds(self.what, missing, where)
        return found

    def find(self, ids: pa.Array | pa.ChunkedArray) -> Rows:
        """Return the rows of these ids, -1 for an unknown one."""
        if FEW * len(ids) < len(self):
            return self._find_few(ids)
        return _places(ids, self._ids)

    def _find_few(self, ids: pa.Array | pa.ChunkedArray) -> Rows:
        """Find a few ids in little memory: scan all ids of the collection for them, without an index."""
        wanted = pc.unique(ids)
        rows = np.full(len(wanted), -1, np.int64)
        for start, chunk in zip(self._starts, self._ids.chunks, strict=False):
            places = _places(chunk, wanted)
            here = np.flatnonzero(places >= 0)
            rows[places[here]] = start + here
        return rows[_places(ids, wanted)]

    @property
    def empty(self) -> int:
        """The number of texts without a character that is not white space."""
        found = (pc.match_substring_regex(chunk, r"\S") for chunk in self._texts.chunks)
        return len(self) - sum(pc.sum(each).as_py() or 0 for each in found)

    def check_unique(self) -> None:
        """Raise an error that names the ids that occur more than once."""
        if len(pc.unique(self._ids)) == len(self._ids):
            return
        counts = pc.value_counts(self._ids)
        twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values").to_pylist()
        raise UnrankError(
            f"{count(len(twice), f'{self.what} id')} given more than once: {listed(twice)}; ids must be unique"
        )

    def _take(self, column: pa.ChunkedArray, rows: Sequence[int] | NDArray[np.integer]) -> list[str]:
        # Chunk by chunk: taking from the whole column at once would first copy it into memory.
        wanted = np.asarray(rows, dtype=np.int64)
        taken = np.empty(len(wanted), dtype=object)
        chunk_of = np.searchsorted(self._starts, wanted, side="right") - 1
        for chunk in np.unique(chunk_of):
            here = np.flatnonzero(chunk_of == chunk)
            values = column.chunk(int(chunk)).take(pa.array(wanted[here] - self._starts[chunk]))
            taken[here] = as_texts(values)
        return list(taken)


def as_texts(values: pa.Array) -> list[str]:
    """Return an Arrow column as strings."""
    try:
        texts: list[str] = values.to_pylist()
    except UnicodeDecodeError as error:
        raise UnrankError("the collection is damaged: an id or a text is not UTF-8; import it again") from error
    return texts


def _places(ids: pa.Array | pa.ChunkedArray, among: pa.Array | pa.ChunkedArray) -> Rows:
    """Return the position of each id in `among`, -1 if it is not there."""
    places = pc.fill_null(pc.index_in(ids, value_set=among), -1)
    return np.asarray(places.to_numpy(), dtype=np.int64)


def _is_text(id: str) -> bool:
    """Return whether an id is valid text; bytes of the command line may not be UTF-8.

    >>> _is_text("é"), _is_text("\\udcff")
    (True, False)
    """
    return not any("\ud800" <= letter <= "\udfff" for letter in id)
