"""The paper's two constructions: which training queries make a collection worth forgetting in.

To forget documents, queries with several relevant documents are kept; to forget queries, those that share a relevant
document with another one. Each is a function of the relevant pairs, given as two columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from unrank.collection.texts import Rows
from unrank.errors import UnknownName


def with_several_documents(queries: Rows, documents: Rows) -> Rows:
    """
    >>> with_several_documents(np.array([1, 1, 2, 3]), np.array([1, 2, 3, 3])).tolist()
    [1]
    """
    return several(queries)


def sharing_documents(queries: Rows, documents: Rows) -> Rows:
    """
    >>> sharing_documents(np.array([1, 1, 2, 3]), np.array([1, 2, 3, 3])).tolist()
    [2, 3]
    """
    return np.unique(queries[np.isin(documents, several(documents))])


CONSTRUCTIONS: Mapping[str, Callable[[Rows, Rows], Rows]] = {
    "queries-with-several-documents": with_several_documents,
    "queries-sharing-documents": sharing_documents,
}


def check_constructions(names: Sequence[str]) -> None:
    for name in names:
        if name not in CONSTRUCTIONS:
            raise UnknownName("construction to keep", name, CONSTRUCTIONS)


def constructed(names: Sequence[str], queries: Rows, documents: Rows) -> Rows:
    """The queries that one of these constructions keeps; a pair that stands there twice counts once."""
    queries, documents = np.unique(np.stack([queries, documents]), axis=1)
    kept = [CONSTRUCTIONS[name](queries, documents) for name in names]
    return np.unique(np.concatenate([queries[:0], *kept]))


def several(values: Rows) -> Rows:
    """The values that occur more than once."""
    found, counts = np.unique(values, return_counts=True)
    return found[counts > 1]
