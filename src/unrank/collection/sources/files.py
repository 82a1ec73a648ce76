"""Files line by line and row by row: text, JSON lines, TSV, CSV and Parquet. An error names file and line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unrank.disk import check_regular, open_regular
from unrank.errors import BadFile, listed

ENDINGS = (".jsonl", ".tsv", ".csv", ".parquet")
PARQUET_ROWS = 1_000
FIELD_LIMIT = 2**31 - 1

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
    read_value = json.JSONDecoder(object_pairs_hook=_object).decode  # one for all lines
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


def _object(pairs: list[tuple[str, Any]]) -> Row:
    """Return an object; refuse one in which a key hides another value under the same name."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise KeyError(next(key for key in keys if keys.count(key) > 1))
    return found


def read_grade(path: Path, number: int, text: str) -> int:
    """Return a relevance grade: a whole number that fits 16 bits."""
    try:
        grade = int(text)
    except ValueError as error:
        raise BadFile(path, f"the grade {text!r} is not a whole number", number) from error
    if not -32768 <= grade <= 32767:
        raise BadFile(path, f"the grade {grade} is out of range", number)
    return grade


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
    if len(set(header)) < len(header):
        raise BadFile(path, f"a column name occurs twice in the header: {listed(header)}", number)
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
            batches = file.iter_batches(batch_size=PARQUET_ROWS)
            yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise BadFile(path, f"not readable as Parquet: {str(error).splitlines()[0]}") from error
