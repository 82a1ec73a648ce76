"""Texts and their ids, memory-mapped.

Inside the house a text is a row number; its id appears only at the border. Nothing is read from disk until
it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unrank.errors import UnknownIds, UnrankError, count, listed

Rows = NDArray[np.int64]

FEW = 100
"""So many times fewer ids than there are in all are few."""


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

    def batches(self) -> list[pa.StringArray]:
        """All texts in order, chunk by chunk."""
        return list(self._texts.chunks)

    def rows(self, ids: Sequence[str], where: str = "the removal") -> Rows:
        """The rows of these ids; ids that are not here are an error that names them."""
        if broken := [id for id in ids if not _is_text(id)]:
            raise UnknownIds(self.what, broken, where)
        found = self.find(pa.array(ids, pa.string()))
        if missing := [ids[i] for i in np.flatnonzero(found < 0).tolist()]:
            raise UnknownIds(self.what, missing, where)
        return found

    def find(self, ids: pa.Array | pa.ChunkedArray) -> Rows:
        """The rows of these ids, -1 where there is none."""
        if FEW * len(ids) < len(self):
            return self._find_few(ids)
        return _places(ids, self._ids)

    def _find_few(self, ids: pa.Array | pa.ChunkedArray) -> Rows:
        """The same in little memory: all ids are looked for among these, instead of these among all."""
        wanted = pc.unique(ids)
        rows = np.full(len(wanted), -1, np.int64)
        for start, chunk in zip(self._starts, self._ids.chunks, strict=False):
            places = _places(chunk, wanted)
            here = np.flatnonzero(places >= 0)
            rows[places[here]] = start + here
        return rows[_places(ids, wanted)]

    def check_unique(self) -> None:
        """Ids that stand there twice are an error that names them."""
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
    try:
        texts: list[str] = values.to_pylist()
    except UnicodeDecodeError as error:
        raise UnrankError("the collection is damaged: an id or a text is not UTF-8; import it again") from error
    return texts


def _places(ids: pa.Array | pa.ChunkedArray, among: pa.Array | pa.ChunkedArray) -> Rows:
    """Where each id stands among others, -1 where it does not."""
    places = pc.fill_null(pc.index_in(ids, value_set=among), -1)
    return np.asarray(places.to_numpy(), dtype=np.int64)


def _is_text(id: str) -> bool:
    """Whether it could stand in a file: a byte of the command line that is no UTF-8 could not.

    >>> _is_text("é"), _is_text("\\udcff")
    (True, False)
    """
    return not any("\ud800" <= letter <= "\udfff" for letter in id)
