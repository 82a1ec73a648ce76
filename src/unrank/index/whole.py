"""Ranks among all documents of an index, and not among the candidates of a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unrank.collection.collection import Collection, Pairs
from unrank.engine.runtime import Progress
from unrank.errors import UnrankError
from unrank.evaluation.measure import reciprocal_of
from unrank.index.document_side import STORED, DocumentSide
from unrank.index.store import Store, Vectors
from unrank.index.update import PIECE, check_one_model
from unrank.record import WholeIndex, WholeIndexRanks

Blocks = Callable[[], Iterable[tuple[Sequence[str], Vectors]]]
"""A function that yields the ids and vectors of all documents, some at a time."""
Scores = NDArray[np.float32]
FIRST = 10
QUERIES_AT_ONCE = 256


@dataclass(frozen=True)
class Documents:
    """All documents of an index or a collection as a ranker encodes them."""

    side: DocumentSide
    blocks: Blocks

    @classmethod
    def stored(cls, side: DocumentSide, store: Store) -> Documents:
        """Take the vectors of an index that this ranker's document side made."""
        return cls(side, store.blocks)

    @classmethod
    def encoded(cls, side: DocumentSide, collection: Collection, ids: Sequence[str], progress: Progress) -> Documents:
        """Encode documents of a collection now, and keep their vectors in memory."""
        progress.begin("encoding documents", len(ids))
        made: list[tuple[Sequence[str], Vectors]] = []
        for start in range(0, len(ids), PIECE):
            piece = ids[start : start + PIECE]
            texts = collection.documents.texts(collection.documents.rows(piece))
            made.append((piece, side.encode(texts, "document")))
            progress.advance(len(piece))
        return cls(side, lambda: made)

    def only(self, ids: Sequence[str]) -> Documents:
        """Return these documents alone."""
        kept = set(ids)

        def blocks() -> Iterator[tuple[Sequence[str], Vectors]]:
            for block, vectors in self.blocks():
                rows = [row for row, id in enumerate(block) if id in kept]
                yield [block[row] for row in rows], vectors[rows]

        return Documents(self.side, blocks)

    def scores(self, texts: Sequence[str]) -> tuple[list[str], Scores]:
        """Return the ids of all documents, and their scores for each query. [texts, documents]"""
        queries, ids = self.side.encode(texts, "query"), list[str]()
        found = [np.empty((len(texts), 0), np.float32)]
        for block, vectors in self.blocks():
            ids += block
            found.append(self._scores(queries, vectors))
        return ids, np.concatenate(found, axis=1)

    def ranks(self, texts: Sequence[str], wanted: Sequence[str]) -> NDArray[np.int64]:
        """Return the rank of document `wanted[i]` for query `texts[i]`; 0 if it is not among the documents.

        A tie is decided for the document.
        """
        found = [self._ranks(texts[some], wanted[some]) for some in _slices(len(texts))]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def _ranks(self, texts: Sequence[str], wanted: Sequence[str]) -> NDArray[np.int64]:
        queries, own = self.side.encode(texts, "query"), np.full(len(texts), np.nan, np.float32)
        for ids, vectors in self.blocks():
            place = {id: row for row, id in enumerate(ids)}
            here = [number for number, id in enumerate(wanted) if id in place]
            if here:
                scores = self._scores(queries[here], vectors)
                own[here] = scores[np.arange(len(here)), [place[wanted[number]] for number in here]]
        above = np.zeros(len(texts), np.int64)
        for ids, vectors in self.blocks():
            place = {id: row for row, id in enumerate(ids)}
            higher = self._scores(queries, vectors) > own[:, None]
            for number, id in enumerate(wanted):
                if id in place:
                    higher[number, place[id]] = False  # its score may differ from itself in the last bit
            above += higher.sum(axis=1)
        return np.where(np.isnan(own), 0, above + 1)

    def _scores(self, queries: Vectors, documents: Vectors) -> Scores:
        if STORED[str(self.side.ranker.similarity)] == "dot":
            scores: Scores = queries @ documents.T
            return scores
        squares = (queries**2).sum(1)[:, None] + (documents**2).sum(1)[None, :] - 2 * queries @ documents.T
        far: Scores = np.sqrt(np.maximum(squares, 0))
        return -far


def _slices(size: int) -> Iterator[slice]:
    return (slice(start, start + QUERIES_AT_ONCE) for start in range(0, size, QUERIES_AT_ONCE))


def whole_ranks(documents: Documents, collection: Collection, sets: Mapping[str, Pairs]) -> dict[str, WholeIndexRanks]:
    """Measure each set over all documents: for each query, the rank of the first of its documents in the set."""
    return {name: _measure(documents, collection, pairs) for name, pairs in sets.items() if len(pairs)}


def _measure(documents: Documents, collection: Collection, pairs: Pairs) -> WholeIndexRanks:
    texts, ids = collection.queries.texts(pairs[:, 0]), collection.documents.ids(pairs[:, 1])
    ranks = documents.ranks(texts, ids)
    _, owner = np.unique(pairs[:, 0], return_inverse=True)
    first = np.full(owner.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, owner[ranks > 0], ranks[ranks > 0])
    first[first == np.iinfo(np.int64).max] = 0
    found = first[first > 0]
    return WholeIndexRanks(
        mrr=float(reciprocal_of(first.astype(np.float64)).mean()),
        median_rank=float(np.median(found)) if len(found) else None,
        first_ten=int(np.count_nonzero(found <= FIRST)),
        queries=len(first),
        not_in_index=len(first) - len(found),
    )


def measure_forgotten(
    store: Store, sides: tuple[DocumentSide, DocumentSide], collection: Collection, forget: Pairs, progress: Progress
) -> WholeIndex:
    """Measure the forget pairs over an index of the original, and over the same documents as the new ranker encodes
    them.

    Documents that have left the collection are left out of both if their texts would have to be encoded.
    """
    ids, (old, new) = store.points().ids, sides
    before, after = Documents.stored(old, store), Documents.stored(new, store)
    if old.digest != new.digest:
        rows = collection.documents.find(pa.array(ids, pa.string()))
        ids = collection.documents.ids(rows[rows >= 0])
        before, after = before.only(ids), Documents.encoded(new, collection, ids, progress)
    return WholeIndex(len(ids), *(_measure(each, collection, forget) for each in (before, after)))


def check_index_of(store: Store, side: DocumentSide) -> None:
    """Refuse an index that the document side of this ranker did not make."""
    header = store.header()
    if header is None:
        raise UnrankError(f"{store.name} does not exist or was not finished: make it with 'unrank index build'")
    if header.model != side.digest:
        raise UnrankError(
            f"{store.name} holds vectors of another document side, and scores of two models cannot be compared: "
            "bring it up to date with 'unrank index update'"
        )
    check_one_model(store)
