"""BM25: the documents that share words with a query, best first.

It makes the candidate lists where a source brings none, finds the ids behind a text, and is the ranker that
every neural one has to beat.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrank.collection.texts import Texts, as_texts


@contextmanager
def _without(module: str) -> Iterator[None]:
    """While a module cannot be imported."""
    modules: dict[str, Any] = sys.modules
    was = {module: modules[module]} if module in modules else {}
    modules[module] = None
    try:
        yield
    finally:
        del modules[module]
        modules.update(was)


with _without("jax"):  # bm25s would try it as soon as it finds it, and jax takes three quarters of a GPU's memory
    import bm25s

QUERIES_A_BATCH = 1_000


class Bm25:
    """An index over the given texts, in their order."""

    def __init__(self, texts: Sequence[str]) -> None:
        tokens = bm25s.tokenize(texts, stopwords="en", show_progress=False)
        self._empty = not any(len(ids) for ids in tokens.ids)
        self._size = len(texts)
        self._index = bm25s.BM25()
        if not self._empty:
            self._index.index(tokens, show_progress=False)

    @classmethod
    def over(cls, texts: Texts) -> Bm25:
        return cls([text for chunk in texts.batches() for text in as_texts(chunk)])

    def best(self, queries: Sequence[str], most: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """For each query the rows with a score above zero, best first, and their scores.

        Of rows that score alike the first come first, at the end of the list too: it is the same on every machine.
        """
        for start in range(0, len(queries), QUERIES_A_BATCH):
            for tokens in self._tokens(queries[start : start + QUERIES_A_BATCH]):
                scores = self._scores(tokens)
                rows = np.flatnonzero(scores > 0)
                if len(rows) > most > 0:
                    rows = rows[scores[rows] >= np.partition(scores[rows], -most)[-most]]
                rows = rows[np.lexsort((rows, -scores[rows]))][:most]
                yield rows, scores[rows]

    def scores(self, query: str, rows: NDArray[np.integer]) -> NDArray[np.float32]:
        """The score of each of these rows for one query."""
        return np.asarray(self._scores(self._tokens([query])[0])[rows])

    def _scores(self, tokens: list[str]) -> NDArray[np.float32]:
        if self._empty or not tokens:
            return np.zeros(self._size, np.float32)
        return np.asarray(self._index.get_scores(tokens), np.float32)

    def _tokens(self, queries: Sequence[str]) -> list[list[str]]:
        return list(bm25s.tokenize(queries, stopwords="en", return_ids=False, show_progress=False))
