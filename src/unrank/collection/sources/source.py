"""The data of a source: ids and texts as its files hold them, read as a stream.

A source is a function from a location to a `Raw`. It checks the form of each line and names the one that is wrong.
Repeated and unknown ids are checked once, for all sources, when the collection is built.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np

PAIRS_A_BATCH = 500_000
"""Pairs in a batch: many, because each batch looks its ids up among all."""
LEAST_GRADE, MOST_GRADE = -(2**15), 2**15 - 1
"""The grades that fit 16 bits."""
Item = TypeVar("Item")


class Text(NamedTuple):
    """A query or a document."""

    id: str
    text: str


class Judgement(NamedTuple):
    """The grade of a document for a query."""

    query: str
    document: str
    grade: int


class Candidate(NamedTuple):
    """A document to rank for a query. A source gives each query's candidates best first."""

    query: str
    document: str


@dataclass(frozen=True)
class Raw:
    """A collection as its source holds it. Each callable starts a new pass over the data."""

    name: str
    queries: Callable[[], Iterable[Text]]
    documents: Callable[[], Iterable[Text]]
    splits: Mapping[str, Callable[[], Iterable[Judgement]]]
    candidates: Callable[[], Iterable[Candidate]] | None = None
    licence: str = ""


def grade_of(judgement: Judgement) -> int:
    """Return the grade of a judgement, or raise a ValueError. numpy would cut a fraction to a whole number.

    >>> grade_of(Judgement("q", "d", 2))
    2
    """
    query, document, grade = judgement
    if isinstance(grade, int | np.integer) and LEAST_GRADE <= grade <= MOST_GRADE:
        return int(grade)
    raise ValueError(
        f"the grade {grade!r} of document {document!r} for query {query!r} is not a whole number from {LEAST_GRADE} "
        f"to {MOST_GRADE}"
    )


Watch = Callable[[], AbstractContextManager[None]]
"""Makes a context for the code of another package."""


def watched(raw: object, watch: Watch) -> Raw:
    """Return a collection of another package. Its data are read within `watch`, and refused there by a ValueError if
    they do not have the form of a collection."""
    if not isinstance(raw, Raw) or not _are_texts(raw.name, raw.licence):
        raise ValueError(f"it returned {raw!r}, which is not a Raw with a name")

    def of(kind: Any, read: Callable[[], Iterable[Any]] | None) -> Any:
        return partial(_checked, kind, read, watch) if read is not None else None

    splits = {name: of(Judgement, read) for name, read in raw.splits.items()}
    texts = of(Text, raw.queries), of(Text, raw.documents)
    return replace(raw, queries=texts[0], documents=texts[1], splits=splits, candidates=of(Candidate, raw.candidates))


def _checked(kind: Any, read: Callable[[], Iterable[Any]], watch: Watch) -> Iterator[Any]:
    with watch():
        for given in read():
            item = kind(*given)
            if kind is Judgement:
                grade_of(item)
            if not _are_texts(*item[:2]):
                raise ValueError(f"{item!r}: an id or a text that is not a str of UTF-8")
            yield item


def _are_texts(*values: object) -> bool:
    """Return whether these are texts that can be written.

    >>> _are_texts("a", "é"), _are_texts(1), _are_texts("\\udcff")
    (True, False, False)
    """
    try:
        return all(isinstance(value, str) and value.encode() is not None for value in values)
    except UnicodeEncodeError:
        return False


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of `size` items, the last one shorter."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


class Ranked(NamedTuple):
    """A line of a run: a document's place in the ranking for a query."""

    query: str
    document: str
    place: float
    """The lower, the better."""


def best_first(run: Callable[[], Iterable[Ranked]]) -> Iterator[Candidate]:
    """Yield each query's documents by their place; `run` starts a new pass over the lines.

    Lines of equal place keep their order. A run that is in order is passed on as it is read. Each line of one that is
    not is held in memory as three numbers, and sorted.

    >>> lines = [Ranked("q2", "a", 1), Ranked("q1", "b", 2), Ranked("q1", "a", 1), Ranked("q1", "c", 2)]
    >>> [document for query, document in best_first(lambda: lines) if query == "q1"]
    ['a', 'b', 'c']
    """
    lines = run() if _is_in_order(run()) else _in_order(run())
    return (Candidate(line.query, line.document) for line in lines)


def _is_in_order(lines: Iterable[Ranked]) -> bool:
    last: dict[str, float] = {}
    for query, _, place in lines:
        if last.get(query, place) > place:
            return False
        last[query] = place
    return True


def _in_order(lines: Iterable[Ranked]) -> Iterator[Ranked]:
    query_numbers: dict[str, int] = {}
    document_numbers: dict[str, int] = {}
    queries, documents, places = array("i"), array("i"), array("d")
    for query, document, place in lines:
        queries.append(query_numbers.setdefault(query, len(query_numbers)))
        documents.append(document_numbers.setdefault(document, len(document_numbers)))
        places.append(place)
    query_ids, document_ids = list(query_numbers), list(document_numbers)
    for line in np.lexsort((np.asarray(places), np.asarray(queries))):
        yield Ranked(query_ids[queries[line]], document_ids[documents[line]], places[line])
