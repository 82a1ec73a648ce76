"""sentence-transformers' training columns, from one file or a folder of them (JSONL, TSV, CSV, Parquet).

- `anchor` or `query`, `positive`, and any number of columns that start with `negative`, each one text or a list of
  texts: the positive is relevant, the negatives are candidates;
- `query`, `anchor` or `sentence1`; `passage`, `document`, `sentence2` or `text`; `label` or `score`: from 0.5 on the
  document is relevant (grade 1), below it is not (grade 0) and is a candidate.

Equal texts are one query or one document; its id is the first 16 hex digits of the text's SHA-256. One file is the
split `train`; in a folder each file's name is its split (`train.jsonl`, `test-00000-of-00002.parquet`). If any split
has no negatives, BM25 makes those of all splits.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from math import isnan
from pathlib import Path
from typing import NamedTuple

from unrank.collection.sources.files import ENDINGS, Row, read_rows
from unrank.collection.sources.source import Candidate, Judgement, Raw, Text
from unrank.errors import BadFile

QUERY = ("anchor", "query", "sentence1")
DOCUMENT = ("passage", "document", "sentence2", "text")
LABEL = ("label", "score")
COLUMNS = {*QUERY, *DOCUMENT, *LABEL, "positive", "negative", "negatives"}
"""The names that the format gives to columns."""
RELEVANT_LABEL = 0.5


class Pair(NamedTuple):
    """The texts of a query and a document."""

    query: str
    document: str
    grade: int | None
    """1 or 0; `None` for a negative without a judgement."""


def read_triples(location: str, test_split: str | None) -> Raw:
    place = Path(location)
    splits = files_by_split(place)
    everything = [path for paths in splits.values() for path in paths]
    has_negatives = all(any(not pair.grade for pair in _pairs(paths)) for paths in splits.values())
    return Raw(
        name=place.resolve().name if place.is_dir() else place.stem,
        queries=partial(_queries, everything),
        documents=partial(_documents, everything),
        splits={split: partial(_judgements, paths) for split, paths in splits.items()},
        candidates=partial(_candidates, everything) if has_negatives else None,
    )


def text_id(text: str) -> str:
    """Return the id of a text.

    >>> text_id("what is a heap")
    '54e74a9aed75871f'
    """
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def files_by_split(place: Path) -> dict[str, list[Path]]:
    """Return the files of each split."""
    expected = ", ".join(ENDINGS)
    if not place.exists():
        raise BadFile(place, f"no such file or folder; triples: takes a file ({expected}) or a folder of them")
    if not place.is_dir():
        if place.suffix not in ENDINGS:
            raise BadFile(place, f"the ending {place.suffix!r} is not known; expected one of {expected}")
        return {"train": [place]}
    splits: dict[str, list[Path]] = {}
    for path in sorted(place.iterdir()):
        if path.suffix in ENDINGS and path.is_file():
            splits.setdefault(re.sub(r"-\d+-of-\d+$", "", path.stem), []).append(path)
    if not splits:
        raise BadFile(place, f"contains no file that ends in one of {expected}")
    return splits


def _queries(paths: Sequence[Path]) -> Iterator[Text]:
    return _once(pair.query for pair in _pairs(paths))


def _documents(paths: Sequence[Path]) -> Iterator[Text]:
    return _once(pair.document for pair in _pairs(paths))


def _once(texts: Iterable[str]) -> Iterator[Text]:
    seen: set[str] = set()
    for text in texts:
        id = text_id(text)
        if id not in seen:
            seen.add(id)
            yield Text(id, text)


def _judgements(paths: Sequence[Path]) -> Iterator[Judgement]:
    for query, document, grade in _pairs(paths):
        if grade is not None:
            yield Judgement(text_id(query), text_id(document), grade)


def _candidates(paths: Sequence[Path]) -> Iterator[Candidate]:
    seen: set[int] = set()
    for pair in _pairs(paths):
        if pair.grade:
            continue
        candidate = Candidate(text_id(pair.query), text_id(pair.document))
        key = int("".join(candidate), 16)
        if key not in seen:
            seen.add(key)
            yield candidate


def _pairs(paths: Iterable[Path]) -> Iterator[Pair]:
    for path in paths:
        for number, row in read_rows(path):
            try:
                yield from pairs_of_row(row)
            except ValueError as error:
                raise BadFile(path, str(error), number) from error


def pairs_of_row(row: Row) -> Iterator[Pair]:
    """Yield the pairs of one row; a ValueError says what is wrong with it.

    >>> [*pairs_of_row({"query": "a", "positive": "b", "negative_1": "c"})]
    [Pair(query='a', document='b', grade=1), Pair(query='a', document='c', grade=None)]
    >>> [*pairs_of_row({"sentence1": "a", "sentence2": "c", "score": 0.2})]
    [Pair(query='a', document='c', grade=0)]
    """
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
    """Yield the texts of all negative columns, without the empty ones."""
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
    except OverflowError as error:
        raise ValueError(f"the column {column!r} holds a number that is out of range") from error
    if isnan(number):
        raise ValueError(f"the column {column!r} holds {row[column]!r}, which is not a number")
    return number
