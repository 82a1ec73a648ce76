"""A run: documents ranked for queries, which need not stand in order.

Only the order within a query counts. A run that is in order already is passed on as it is read; of one that
is not, each line is held as three numbers and sorted. Lines of equal place keep their order.

>>> lines = [Ranked("q2", "a", 1), Ranked("q1", "b", 2), Ranked("q1", "a", 1), Ranked("q1", "c", 2)]
>>> [document for query, document in best_first(lambda: lines) if query == "q1"]
['a', 'b', 'c']
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from unrank.collection.sources.source import Candidate


class Ranked(NamedTuple):
    query: str
    document: str
    place: float
    """The lower, the better."""


def best_first(run: Callable[[], Iterable[Ranked]]) -> Iterator[Candidate]:
    """Each query's documents by their place; `run` starts a fresh pass over the lines."""
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
