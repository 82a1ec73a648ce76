"""BM25: the texts that share words with a query, best first.

It makes the candidate lists if a source brings none, finds the ids of a text, and is the baseline of every neural
ranker.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unrank.collection.texts import Rows, Texts, as_texts
from unrank.errors import UnrankError


@contextmanager
def _without(module: str) -> Iterator[None]:
    """Prevent the import of a module while the block runs."""
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
    was = {module: modules[module]} if module in modules else {}
    modules[module] = None
    try:
        yield
    finally:
        del modules[module]
        modules.update(was)


with _without("jax"):  # bm25s imports jax if it is installed, and jax takes three quarters of a GPU's memory
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
        """Index all texts of a collection."""
        return cls([text for chunk in texts.batches() for text in as_texts(chunk)])

    def best(self, queries: Sequence[str], most: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Yield, for each query, the rows with a score above zero, best first, and their scores.

        Rows with equal scores come in their own order, at the cut-off too, so the result is the same on every machine.
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
        """Return the score of each row for one query."""
        return np.asarray(self._scores(self._tokens([query])[0])[rows])

    def _scores(self, tokens: list[str]) -> NDArray[np.float32]:
        if self._empty or not tokens:
            return np.zeros(self._size, np.float32)
        return np.asarray(self._index.get_scores(tokens), np.float32)

    def _tokens(self, queries: Sequence[str]) -> list[list[str]]:
        return list(bm25s.tokenize(queries, stopwords="en", return_ids=False, show_progress=False))


@dataclass(frozen=True)
class Found:
    """A query or a document that was found."""

    id: str
    text: str


def find_texts(texts: Texts, words: str, exact: bool = False, most: int = 10) -> list[Found]:
    """Return the texts that match the words best; with `exact`, those that contain them, in any letter case."""
    if not words.strip():
        raise UnrankError("nothing to look for: give some words of the text")
    rows = _containing(texts, words) if exact else next(Bm25.over(texts).best([words], most))[0]
    rows = rows[:most]
    return [Found(id, text) for id, text in zip(texts.ids(rows), texts.texts(rows), strict=True)]


def _containing(texts: Texts, words: str) -> Rows:
    hits = [pc.match_substring(chunk, words, ignore_case=True) for chunk in texts.batches()]
    return np.flatnonzero(pa.chunked_array(hits, pa.bool_()).to_numpy()).astype(np.int64)
