"""The first documents that two rankers give for any text, side by side.

Rankers that have a vector for each document search all documents. The others read a query and a document together,
which takes too long for all of them: they rank the candidates that BM25 finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from unrank.collection.bm25 import Bm25
from unrank.collection.collection import Collection
from unrank.collection.normalisation import normalised
from unrank.collection.removal import Removal
from unrank.collection.texts import Rows
from unrank.disk import is_utf_8
from unrank.engine.runtime import Progress, Runtime
from unrank.errors import UnrankError, count, listed
from unrank.index.document_side import DocumentSide, has_vectors
from unrank.index.store import Hit, Store
from unrank.index.update import check_one_model, unknown_documents
from unrank.index.whole import FIRST, Documents, Scores
from unrank.rankers.base import Ranker

CANDIDATES = 100
PAIRS_AT_ONCE = 32


@dataclass(frozen=True)
class Preview:
    """The lists of one query before and after, and the ranks of what is to be forgotten."""

    query: str
    before: Sequence[Hit]
    after: Sequence[Hit]
    forgotten: Mapping[str, tuple[int, int]]
    """By document, its rank before and after; 0 if it is not among those that were ranked."""
    among: tuple[str, str]
    """What each ranker ranked, in words."""
    substitutes: Mapping[str, tuple[int, int]]
    """The same ranks of the documents that take the place of forgotten ones."""


@dataclass(frozen=True)
class Place:
    """A collection, and an index of it if there is one."""

    collection: Collection
    ids: Sequence[str]
    """The documents that are searched. An index may hold some that have left the collection."""
    store: Store | None = None

    @classmethod
    def of(cls, collection: Collection, store: Store | None) -> Place:
        documents = collection.documents
        if store is None:
            return cls(collection, documents.ids(range(len(documents))))
        check_one_model(store)
        return cls(collection, store.points().ids, store)

    @cached_property
    def rows(self) -> Rows:
        """The rows of the searched documents that are in the collection."""
        found = self.collection.documents.find(pa.array(self.ids, pa.string()))
        return found[found >= 0]

    def texts(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the texts of those documents that are in the collection."""
        documents = self.collection.documents
        rows = documents.find(pa.array(ids, pa.string()))
        rows = rows[rows >= 0]
        return dict(zip(documents.ids(rows), documents.texts(rows), strict=True))


def marked(collection: Collection, removal: Removal, query: str) -> set[str]:
    """Return the documents that are to be forgotten for a text: removed ones, and those of removed pairs and queries
    whose query has this text."""
    asked = sorted({*removal.queries, *(query for query, _ in removal.pairs)})
    rows = collection.queries.rows(asked)
    texts = collection.queries.texts(rows)
    same = {
        id: collection.relevant[row]
        for id, row, text in zip(asked, rows, texts, strict=True)
        if normalised(text) == normalised(query)
    }
    found = {*removal.documents, *(document for id, document in removal.pairs if id in same)}
    return found.union(*(collection.documents.ids(same[id]) for id in removal.queries if id in same))


def _check_known(place: Place, removal: Removal) -> None:
    """Refuse a removal that names documents neither of the collection nor of the index."""
    named = {*removal.documents, *(document for _, document in removal.pairs), *removal.substitutes.values()}
    if unknown := unknown_documents(sorted(named), place.collection, place.ids):
        where = f"neither in the collection nor in {place.store.name}" if place.store else "not in the collection"
        raise UnrankError(
            f"the removal: {count(len(unknown), 'document id')} {where}: {listed(unknown)}; check them with "
            "'unrank find', or take them out"
        )


def check_searched(queries: Sequence[str], option: str) -> None:
    """Refuse texts that cannot be searched for; an option or an argument names them."""
    if not queries or not all(query.strip() for query in queries):
        raise UnrankError(f"no text to search for: give {option} with some words")
    if not all(map(is_utf_8, queries)):
        raise UnrankError(f"{option} is not UTF-8, so it cannot be read as text")


def preview(
    rankers: tuple[Ranker, Ranker],
    place: Place,
    queries: Sequence[str],
    removal: Removal,
    runtime: Runtime,
    most: int = FIRST,
) -> list[Preview]:
    """Rank documents for each query with the original and with the new ranker."""
    check_searched(queries, "--query")
    _check_known(place, removal)
    forgotten = [sorted(marked(place.collection, removal, query)) for query in queries]
    new = [sorted({removal.substitutes[id] for id in ids if id in removal.substitutes}) for ids in forgotten]
    wanted = [[*ids, *substitutes] for ids, substitutes in zip(forgotten, new, strict=True)]
    sides = [
        _search_all(ranker, place, queries, wanted, runtime, most)
        if has_vectors(ranker)
        else _rank_candidates(ranker, place, queries, wanted, runtime.progress, most)
        for ranker in rankers
    ]
    (before, then, there), (after, now, here) = sides
    return [
        Preview(
            query,
            before[number],
            after[number],
            {id: (then[number][id], now[number][id]) for id in forgotten[number]},
            (there[number], here[number]),
            {id: (then[number][id], now[number][id]) for id in new[number]},
        )
        for number, query in enumerate(queries)
    ]


Ranked = tuple[list[list[Hit]], list[dict[str, int]], list[str]]
"""For each query its first documents, the ranks of the wanted documents, and what was ranked."""


def _in_order(ids: Sequence[str], scores: Scores, wanted: Sequence[str], most: int) -> tuple[list[Hit], dict[str, int]]:
    """Return the first documents by score, and the ranks of the wanted ones. A tie is decided for a wanted document."""
    named = set(wanted)
    rows = {id: row for row, id in enumerate(ids) if id in named}
    others = np.ones(len(ids), bool)
    others[[*rows.values()]] = False
    order = np.lexsort((others, -scores))
    ranks = np.empty(len(ids), np.int64)
    ranks[order] = np.arange(1, len(ids) + 1)
    first = [Hit(ids[row], float(scores[row])) for row in order[:most]]
    return first, {id: int(ranks[rows[id]]) if id in rows else 0 for id in wanted}


def _search_all(
    ranker: Ranker,
    place: Place,
    queries: Sequence[str],
    wanted: Sequence[Sequence[str]],
    runtime: Runtime,
    most: int,
) -> Ranked:
    ids, scores = documents_of(ranker, place, runtime).scores(queries)
    found = [_in_order(ids, row, some, most) for row, some in zip(scores, wanted, strict=True)]
    among = [_all_of(place, len(ids))] * len(queries)
    return [first for first, _ in found], [ranks for _, ranks in found], among


def _all_of(place: Place, ranked: int) -> str:
    if place.store is None:
        return f"all {count(ranked, 'document')}"
    if ranked == len(place.ids):
        return f"all {count(ranked, 'document')} of the index"
    return (
        f"{count(ranked, 'document')} of {len(place.ids):,} in the index: the others have left the collection, and "
        "without their texts this ranker cannot encode them"
    )


def documents_of(ranker: Ranker, place: Place, runtime: Runtime) -> Documents:
    """Take the vectors of the index if this ranker's document side made them; otherwise encode all documents."""
    side = DocumentSide.of(ranker, runtime)
    header = place.store.header() if place.store is not None else None
    if place.store is not None and header is not None and header.model == side.digest:
        return Documents.stored(side, place.store)
    ids = place.collection.documents.ids(place.rows)
    return Documents.encoded(side, place.collection, ids, runtime.progress)


def _rank_candidates(
    ranker: Ranker,
    place: Place,
    queries: Sequence[str],
    wanted: Sequence[Sequence[str]],
    progress: Progress,
    most: int,
) -> Ranked:
    documents = place.collection.documents
    candidates = [place.rows[rows] for rows, _ in Bm25(documents.texts(place.rows)).best(queries, CANDIDATES)]
    progress.begin("ranking BM25's candidates", len(queries))
    found = []
    for query, rows, some in zip(queries, candidates, wanted, strict=True):
        scores = np.array(_scores(ranker, query, documents.texts(rows)), np.float32)
        found.append(_in_order(documents.ids(rows), scores, some, most))
        progress.advance()
    among = [_candidates_of(ranker, len(rows)) for rows in candidates]
    return [first for first, _ in found], [ranks for _, ranks in found], among


def _scores(ranker: Ranker, query: str, texts: Sequence[str]) -> list[float]:
    pieces = [texts[start : start + PAIRS_AT_ONCE] for start in range(0, len(texts), PAIRS_AT_ONCE)]
    return [score for piece in pieces for score in ranker.score_texts([query] * len(piece), piece)]


def _candidates_of(ranker: Ranker, ranked: int) -> str:
    if not ranked:
        return f"no document: BM25 finds none, and a {ranker.kind} cannot search all documents"
    return f"{count(ranked, 'document')} that BM25 puts first: a {ranker.kind} cannot search all documents"
