"""Training columns through the sieve: JSONL, TSV, CSV and Parquet, each written as it was read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from unrank.collection.sources.files import PARQUET_ROWS, Row, read_lines, read_rows
from unrank.collection.sources.triples import Pair, pairs_of_row
from unrank.desk.sieve import Sieve
from unrank.errors import BadFile

Count = Callable[[bool], None]


def filter_columns(path: Path, out: Path, sieve: Sieve, count: Count) -> None:
    """Pass the rows of one file on to another, told apart by the ending of the first."""
    write = {".jsonl": _json_lines, ".parquet": _parquet}.get(path.suffix, _table)
    write(path, out, _kept(path, sieve, count))


Kept = Iterator[tuple[Row, Row | None]]
"""Each row as it was read, and as it is passed on; None where it is not."""


def _kept(path: Path, sieve: Sieve, count: Count) -> Kept:
    for number, row in read_rows(path):
        try:
            kept = kept_row(row, sieve)
        except ValueError as error:
            raise BadFile(path, str(error), number) from error
        count(kept is not None)
        yield row, kept


def kept_row(row: Row, sieve: Sieve) -> Row | None:
    """The row, without negatives that were removed where they stand in a list; None where it must not pass."""
    pairs = list(pairs_of_row(row))
    keeps = sieve.keeps_texts(pairs[0].query, (pair.document for pair in pairs))
    if not all(sieve.keeps_texts(pairs[0].query, _beside(row, pairs))):
        return None
    if all(keeps):
        return row
    removed = [pair for pair, kept in zip(pairs, keeps, strict=True) if not kept]
    if any(pair.grade is not None for pair in removed):
        return None
    gone, kept = {pair.document for pair in removed}, dict(row)
    for column, value in row.items():
        if not column.startswith("negative"):
            continue
        if isinstance(value, list):
            kept[column] = [text for text in value if text not in gone]
        if value in gone if isinstance(value, str) else value and not kept[column]:
            return None
    return kept


def _beside(row: Row, pairs: Sequence[Pair]) -> Iterator[str]:
    """Texts in columns that no pair is made of: they would pass with the row all the same."""
    known = {pairs[0].query, *(pair.document for pair in pairs)}
    for value in row.values():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and text not in known:
                yield text


def _json_lines(path: Path, out: Path, rows: Kept) -> None:
    with out.open("w", encoding="utf-8", newline="") as file:
        for (_, line), (row, kept) in zip(read_lines(path), rows, strict=True):
            if kept is not None:
                file.write((line if kept is row else json.dumps(kept, ensure_ascii=False)) + "\n")


def _table(path: Path, out: Path, rows: Kept) -> None:
    """TSV and CSV: no column of them holds a list, so that a row passes as it is or not at all."""
    written = _csv_line if path.suffix == ".csv" else "\t".join
    first = next(rows, None)
    if first is None:
        shutil.copyfile(path, out)  # a header alone passes as it came
        return
    with out.open("w", encoding="utf-8", newline="") as file:
        file.write(written(first[0]) + "\n")
        for row, kept in chain([first], rows):
            if kept is not None:
                file.write(written(row.values()) + "\n")


def _csv_line(values: Iterable[str]) -> str:
    """
    >>> print(_csv_line(["a", 'b "c", d']))
    "a","b ""c"", d"
    """
    return ",".join('"' + value.replace('"', '""') + '"' for value in values)


def _parquet(path: Path, out: Path, rows: Kept) -> None:
    with pq.ParquetFile(path) as file:
        schema = file.schema_arrow
    with pq.ParquetWriter(out, schema) as writer:
        batch: list[Row] = []
        for _, kept in rows:
            if kept is not None:
                batch.append(kept)
            if len(batch) == PARQUET_ROWS:
                writer.write_table(pa.Table.from_pylist(batch, schema))
                batch.clear()
        writer.write_table(pa.Table.from_pylist(batch, schema))
