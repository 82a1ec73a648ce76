"""The rows of a table file, one at a time: JSONL, TSV, CSV or Parquet, told apart by the ending.

TSV and CSV start with a header. In CSV a text may stand in double quotes and run over lines; in TSV a quote
is a character like any other. A row goes by the number of its line, in Parquet by its own.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unrank.collection.sources.source import read_json_lines, read_lines
from unrank.errors import BadFile, listed

ENDINGS = (".jsonl", ".tsv", ".csv", ".parquet")
PARQUET_ROWS = 1_000
FIELD_LIMIT = 2**31 - 1

Row = dict[str, Any]


def read_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Row numbers and rows, each from column to value."""
    if path.suffix == ".jsonl":
        return read_json_lines(path)
    if path.suffix == ".parquet":
        return _read_parquet(path)
    lines = _read_csv(path) if path.suffix == ".csv" else _read_tsv(path)
    return _with_header(path, lines)


def _with_header(path: Path, lines: Iterator[tuple[int, Sequence[str]]]) -> Iterator[tuple[int, Row]]:
    number, header = next(lines, (1, ()))
    if len(set(header)) < len(header):
        raise BadFile(path, f"a column name stands twice in the header: {listed(header)}", number)
    for number, values in lines:
        if len(values) != len(header):
            raise BadFile(path, f"expected {len(header)} columns as in the header, found {len(values)}", number)
        yield number, dict(zip(header, values, strict=True))


def _read_tsv(path: Path) -> Iterator[tuple[int, Sequence[str]]]:
    return ((number, line.split("\t")) for number, line in read_lines(path))


def _read_csv(path: Path) -> Iterator[tuple[int, Sequence[str]]]:
    csv.field_size_limit(FIELD_LIMIT)
    reader = csv.reader(_whole_lines(path), strict=True)
    start = 1
    try:
        for values in reader:
            if values:
                yield start, values
            start = reader.line_num + 1
    except csv.Error as error:
        raise BadFile(path, f"not CSV: {error}", start) from error


def _whole_lines(path: Path) -> Iterator[str]:
    """Lines with their ends, the empty ones too: a quoted text may hold them."""
    number = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise BadFile(path, "not UTF-8 text", number) from error
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error


def _read_parquet(path: Path) -> Iterator[tuple[int, Row]]:
    try:
        with pq.ParquetFile(path) as file:
            batches = file.iter_batches(batch_size=PARQUET_ROWS)
            yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise BadFile(path, f"not readable as Parquet: {str(error).splitlines()[0]}") from error
