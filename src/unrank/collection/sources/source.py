"""What a source hands over: ids and texts as they stand in its files, read as a stream.

A source is a function from a location to a `Raw`. It checks the form of each line and says where one is
wrong; whether ids repeat or are unknown is checked once, for all sources, when the collection is built.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from unrank.errors import BadFile

TEXTS_A_BATCH = 50_000
PAIRS_A_BATCH = 500_000
"""Many pairs at once: each batch of them looks its ids up among all."""
Item = TypeVar("Item")


class Text(NamedTuple):
    id: str
    text: str


class Judgement(NamedTuple):
    query: str
    document: str
    grade: int


class Candidate(NamedTuple):
    """A document to rank for a query. A source gives each query's candidates best first."""

    query: str
    document: str


@dataclass(frozen=True)
class Raw:
    """A collection as its source has it. Each callable starts a fresh pass over the data."""

    name: str
    queries: Callable[[], Iterable[Text]]
    documents: Callable[[], Iterable[Text]]
    splits: Mapping[str, Callable[[], Iterable[Judgement]]]
    candidates: Callable[[], Iterable[Candidate]] | None = None
    licence: str = ""


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers and lines, without the empty ones; a byte that is not UTF-8 is an error with its line."""
    number = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if text := line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n"):
                    yield number, text
    except FileNotFoundError as error:
        raise BadFile(path, "no such file") from error
    except UnicodeDecodeError as error:
        raise BadFile(path, "not UTF-8 text", number) from error
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in read_lines(path):
        try:
            value = json.loads(line)
            if "\\ud" in line.lower():
                json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise BadFile(path, "half of a surrogate pair, which is not text", number) from error
        except (ValueError, RecursionError) as error:
            raise BadFile(path, f"not JSON: {getattr(error, 'msg', 'a value too long or too deep')}", number) from error
        if not isinstance(value, dict):
            raise BadFile(path, "expected a JSON object on each line", number)
        yield number, value


def read_grade(path: Path, number: int, text: str) -> int:
    """A relevance grade: a whole number that fits 16 bits."""
    try:
        grade = int(text)
    except ValueError as error:
        raise BadFile(path, f"the grade {text!r} is not a whole number", number) from error
    if not -32768 <= grade <= 32767:
        raise BadFile(path, f"the grade {grade} is out of range", number)
    return grade


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
