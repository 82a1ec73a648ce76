"""One row of training columns, as pairs of a query's and a document's text.

>>> [*pairs_of_row({"query": "a", "positive": "b", "negative_1": "c"})]
[Pair(query='a', document='b', grade=1), Pair(query='a', document='c', grade=None)]
>>> [*pairs_of_row({"sentence1": "a", "sentence2": "c", "score": 0.2})]
[Pair(query='a', document='c', grade=0)]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan
from typing import NamedTuple

from unrank.collection.sources.tables import Row

QUERY = ("anchor", "query", "sentence1")
DOCUMENT = ("passage", "document", "sentence2", "text")
LABEL = ("label", "score")
RELEVANT_LABEL = 0.5


class Pair(NamedTuple):
    query: str
    document: str
    grade: int | None
    """1 or 0; a negative that nobody judged has none."""


def pairs_of_row(row: Row) -> Iterator[Pair]:
    """The row's pairs; a ValueError says what is wrong with it."""
    query = _text(row, _column(row, QUERY))
    if "positive" in row:
        yield Pair(query, _text(row, "positive"), 1)
        yield from (Pair(query, negative, None) for negative in _negatives(row))
    else:
        document, label = _column(row, (*DOCUMENT, "positive")), _column(row, LABEL)
        yield Pair(query, _text(row, document), int(_number(row, label) >= RELEVANT_LABEL))


def _column(row: Row, names: Sequence[str]) -> str:
    for name in names:
        if name in row:
            return name
    raise ValueError(f"no column {' or '.join(map(repr, names))}; found {', '.join(map(repr, row))}")


def _text(row: Row, column: str) -> str:
    value = row[column]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"the column {column!r} holds no text")
    return value


def _negatives(row: Row) -> Iterator[str]:
    """The texts of all negative columns; empty ones only fill up the table."""
    for column in row:
        if not column.startswith("negative"):
            continue
        values = row[column] if isinstance(row[column], list) else [row[column]]
        for value in values:
            if not isinstance(value, str | None):
                raise ValueError(f"the column {column!r} holds neither a text nor a list of texts")
            if value and value.strip():
                yield value


def _number(row: Row, column: str) -> float:
    try:
        number = float(row[column])
    except (TypeError, ValueError):
        number = float("nan")
    if isnan(number):
        raise ValueError(f"the column {column!r} holds {row[column]!r}, which is not a number")
    return number
