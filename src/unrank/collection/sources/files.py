"""Files line by line and row by row: text, JSON lines, TSV, CSV and Parquet. An error names file and line."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unrank.collection.sources.source import LEAST_GRADE, MOST_GRADE
from unrank.disk import check_regular, object_of, open_regular
from unrank.errors import BadFile

ENDINGS = (".jsonl", ".tsv", ".csv", ".parquet")
PARQUET_ROWS = 1_000
FIELD_LIMIT = 2**31 - 1
WHOLE = re.compile(r"[+-]?[0-9]+")

Row = dict[str, Any]


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line numbers and lines without the empty ones; the error for a byte that is not UTF-8 names its line."""
    number = 0
    try:
        with open_regular(path) as file:
            for number, line in enumerate(file, 1):
                if text := line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n"):
                    yield number, text
    except FileNotFoundError as error:
        raise BadFile(path, "no such file") from error
    except UnicodeDecodeError as error:
        raise BadFile(path, "not UTF-8 text", number) from error
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error


def read_json_lines(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield line numbers and JSON objects, one on each line."""
    read_value = json.JSONDecoder(object_pairs_hook=object_of).decode  # one for all lines
    for number, line in read_lines(path):
        try:
            value = read_value(line)
            if "\\" in line and "\\ud" in line.lower():
                json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise BadFile(path, "half of a surrogate pair, which is not text", number) from error
        except KeyError as error:
            raise BadFile(path, f"the key {error.args[0]!r} is there twice in one object", number) from error
        except (ValueError, RecursionError) as error:
            raise BadFile(path, f"not JSON: {getattr(error, 'msg', 'a value too long or too deep')}", number) from error
        if not isinstance(value, dict):
            raise BadFile(path, "expected a JSON object on each line", number)
        yield number, value


def read_grade(path: Path, number: int, text: str) -> int:
    """Return a relevance grade: a whole number that fits 16 bits."""
    return read_whole(path, number, "grade", text, LEAST_GRADE, MOST_GRADE)


def read_whole(path: Path, number: int, what: str, text: str, least: int, most: int) -> int:
    """Return a whole number from `least` to `most`."""
    if not WHOLE.fullmatch(text.strip()):
        raise BadFile(path, f"the {what} {text!r} is not a whole number", number)
    try:
        whole = int(text)
    except ValueError:
        whole = most + 1  # Python reads no number of thousands of digits
    if not least <= whole <= most:
        raise BadFile(path, f"the {what} {text} is out of range: give one from {least} to {most}", number)
    return whole


def read_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield row numbers and rows, each a dict from column to value. The ending tells the format.

    TSV and CSV start with a header. In CSV a text may be in double quotes and contain line breaks; in TSV a quote is an
    ordinary character. A row's number is that of its line; in Parquet it is its own.
    """
    if path.suffix == ".jsonl":
        return read_json_lines(path)
    if path.suffix == ".parquet":
        return _read_parquet(path)
    lines = _read_csv(path) if path.suffix == ".csv" else _read_tsv(path)
    return _with_header(path, lines)


def _with_header(path: Path, lines: Iterator[tuple[int, Sequence[str]]]) -> Iterator[tuple[int, Row]]:
    number, header = next(lines, (1, ()))
    _check_header(path, header, number)
    for number, values in lines:
        if len(values) != len(header):
            raise BadFile(path, f"expected {len(header)} columns as in the header, found {len(values)}", number)
        yield number, dict(zip(header, values, strict=True))


def _check_header(path: Path, names: Sequence[str], number: int | None = None) -> None:
    """Refuse a table in which a column hides another one of the same name."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadFile(path, f"the column name {twice!r} occurs more than once; rename one", number)


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
    """Yield lines with their ends, the empty ones too: a quoted text may contain them."""
    number = 0
    try:
        with open_regular(path) as file:
            for number, line in enumerate(file, 1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise BadFile(path, "not UTF-8 text", number) from error
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error


def _read_parquet(path: Path) -> Iterator[tuple[int, Row]]:
    try:
        check_regular(path)
        with pq.ParquetFile(path) as file:
            _check_header(path, file.schema_arrow.names)
            batches = file.iter_batches(batch_size=PARQUET_ROWS)
            yield from enumerate((row for batch in batches for row in _batch_rows(path, batch)), 1)
    except (OSError, pa.ArrowException) as error:
        raise BadFile(path, f"not readable as Parquet: {str(error).splitlines()[0]}") from error


def _batch_rows(path: Path, batch: pa.RecordBatch) -> Iterator[Row]:
    """Yield the rows of a batch. Python has no values for some of Arrow's, such as the year 10,000."""
    columns: dict[str, list[Any]] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            columns[name] = column.to_pylist()
        except (OverflowError, ValueError) as error:
            problem = f"the column {name!r} holds a value that is not readable: {error}; mend it, or leave it out"
            raise BadFile(path, problem) from error
    return ({name: values[row] for name, values in columns.items()} for row in range(len(batch)))
