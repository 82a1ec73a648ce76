"""The first documents that two rankers give for any text, side by side.

Rankers that have a vector for each document search all documents. The others read a query and a document together,
which takes too long for all of them: they rank the candidates that BM25 finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unrank.collection.bm25 import Bm25
from unrank.collection.collection import Collection
from unrank.collection.normalisation import normalised
from unrank.collection.removal import Removal
from unrank.engine.runtime import Progress, Runtime
from unrank.errors import UnrankError, count
from unrank.index.document_side import DocumentSide, has_vectors
from unrank.index.store import Hit, Store
from unrank.index.update import check_one_model
from unrank.index.whole import FIRST, Documents
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
    """The documents that are searched."""
    store: Store | None = None

    @classmethod
    def of(cls, collection: Collection, store: Store | None) -> Place:
        documents = collection.documents
        if store is None:
            return cls(collection, documents.ids(range(len(documents))))
        check_one_model(store)
        known = set(documents.ids(range(len(documents))))
        return cls(collection, [id for id in store.points().ids if id in known], store)


def marked(collection: Collection, removal: Removal, query: str) -> set[str]:
    """Return the documents that are to be forgotten for a text: removed ones, those of removed pairs, and those that
    are relevant to a removed query with this text."""
    found = {*removal.documents, *(document for _, document in removal.pairs)}
    if removal.queries:
        rows = collection.queries.rows(removal.queries)
        texts = collection.queries.texts(rows)
        same = [row for row, text in zip(rows, texts, strict=True) if normalised(text) == normalised(query)]
        found.update(collection.documents.id(int(document)) for row in same for document in collection.relevant[row])
    return found


def preview(
    rankers: tuple[Ranker, Ranker],
    place: Place,
    queries: Sequence[str],
    removal: Removal,
    runtime: Runtime,
    most: int = FIRST,
) -> list[Preview]:
    """Rank documents for each query with the original and with the new ranker."""
    if not queries or not all(query.strip() for query in queries):
        raise UnrankError("no text to search for: give --query with some words")
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
            (there, here),
            {id: (then[number][id], now[number][id]) for id in new[number]},
        )
        for number, query in enumerate(queries)
    ]


Ranked = tuple[list[list[Hit]], list[dict[str, int]], str]
"""The first documents of each query, the ranks of the wanted documents, and what was ranked."""


def _search_all(
    ranker: Ranker,
    place: Place,
    queries: Sequence[str],
    wanted: Sequence[Sequence[str]],
    runtime: Runtime,
    most: int,
) -> Ranked:
    documents = documents_of(ranker, place, runtime)
    pairs = [(number, id) for number, ids in enumerate(wanted) for id in ids]
    found = documents.ranks([queries[number] for number, _ in pairs], [id for _, id in pairs])
    ranks: list[dict[str, int]] = [{} for _ in queries]
    for (number, id), rank in zip(pairs, found, strict=True):
        ranks[number][id] = int(rank)
    return documents.first(queries, most), ranks, f"all {count(len(place.ids), 'document')}"


def documents_of(ranker: Ranker, place: Place, runtime: Runtime) -> Documents:
    """Take the vectors of the index if this ranker's document side made them; otherwise encode all documents."""
    side = DocumentSide.of(ranker, runtime)
    header = place.store.header() if place.store is not None else None
    if place.store is not None and header is not None and header.model == side.digest:
        return Documents.stored(side, place.store)
    return Documents.encoded(side, place.collection, place.ids, runtime.progress)


def _rank_candidates(
    ranker: Ranker,
    place: Place,
    queries: Sequence[str],
    wanted: Sequence[Sequence[str]],
    progress: Progress,
    most: int,
) -> Ranked:
    documents, allowed = place.collection.documents, set(place.ids)
    found = [rows for rows, _ in Bm25.over(documents).best(queries, CANDIDATES)]
    lists: list[list[Hit]] = []
    progress.begin("ranking BM25's candidates", len(queries))
    for query, rows in zip(queries, found, strict=True):
        ids, texts = documents.ids(rows), documents.texts(rows)
        scores = [
            score
            for start in range(0, len(texts), PAIRS_AT_ONCE)
            for score in ranker.score_texts(
                [query] * len(texts[start : start + PAIRS_AT_ONCE]), texts[start : start + PAIRS_AT_ONCE]
            )
        ]
        hits = [Hit(id, score) for id, score in zip(ids, scores, strict=True) if id in allowed]
        lists.append(sorted(hits, key=lambda hit: -hit.score))
        progress.advance()
    places = [{hit.id: rank for rank, hit in enumerate(hits, 1)} for hits in lists]
    ranks = [{id: place.get(id, 0) for id in ids} for place, ids in zip(places, wanted, strict=True)]
    among = f"the first {CANDIDATES} that BM25 finds: a {ranker.kind} cannot search all documents"
    return [hits[:most] for hits in lists], ranks, among
