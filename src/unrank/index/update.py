"""Build an index, and bring it up to date with a ranker and a collection.

What was removed is deleted first. Then, if the document side of the ranker is the one that made the index, only texts
that are new or edited are encoded. Otherwise all texts are encoded beside the index, and take its place in one step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection as Some
from collections.abc import Sequence
from dataclasses import dataclass

from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.collection.texts import as_texts
from unrank.engine.runtime import Progress
from unrank.errors import UnrankError, count
from unrank.forgetting.previous_requests import recognised_among
from unrank.index.document_side import DocumentSide
from unrank.index.store import Header, Points, Store
from unrank.record import Record, requests_of

PIECE = 512
"""The number of texts that are encoded and put aside at a time. A killed job loses one such piece."""
READ = 65_536
"""The number of ids that are read at a time."""


@dataclass(frozen=True)
class Updated:
    """What an update did, in numbers of documents."""

    documents: int
    """In the index now."""
    deleted: int
    encoded: int
    """By this process. An earlier one that was killed may have encoded others."""
    switched: bool
    """Whether all texts were encoded, because the document side is another one."""


def text_digest(text: str) -> str:
    """Return the digest of a text that its point holds."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def wanted_points(collection: Collection, removed: Some[str]) -> dict[str, str]:
    """Return the documents that belong into an index, in the collection's order, with the digests of their texts."""
    documents = collection.documents
    ids = [id for start in range(0, len(documents), READ) for id in documents.ids(_rows(start, len(documents)))]
    digests = (text_digest(text) for chunk in documents.batches() for text in as_texts(chunk))
    return {id: text for id, text in zip(ids, digests, strict=True) if id not in removed}


def _rows(start: int, size: int) -> range:
    return range(start, min(start + READ, size))


def removed_documents(ids: Sequence[str], record: Record | None, removal: Removal | None) -> set[str]:
    """Return which of these documents were removed: by a removal, or by a request in a ranker's record, whether the
    ranker has forgotten it or not."""
    known = recognised_among(Removal(documents=ids), requests_of(record)).documents
    return {*known, *(removal.documents if removal is not None else ())}


def unknown_documents(ids: Sequence[str], collection: Collection, stored: Some[str]) -> list[str]:
    """Return which of these ids name a document neither of a collection nor among the stored ones."""
    documents = collection.documents
    known = {*documents.ids(range(len(documents))), *stored}
    return [id for id in ids if id not in known]


def build_index(
    store: Store, side: DocumentSide, collection: Collection, removed: Some[str], progress: Progress
) -> Updated:
    """Build an index that does not exist yet, or go on with one that was not finished."""
    with store.writing():
        if store.header() is not None:
            raise UnrankError(f"{store.name} exists already: use 'unrank index update', or delete it first")
        return _bring_up_to_date(store, side, collection, removed, progress)


def update_index(
    store: Store, old: str, side: DocumentSide, collection: Collection, removed: Some[str], progress: Progress
) -> Updated:
    """Bring an index of the document side with the digest `old` up to date with another ranker and a collection."""
    with store.writing():
        header = store.header()
        if header is None:
            raise UnrankError(f"{store.name} does not exist or was not finished: make it with 'unrank index build'")
        if header.model not in (old, side.digest):
            raise UnrankError(f"{store.name} holds vectors of neither ranker: name the ranker that made it as OLD")
        check_one_model(store)
        return _bring_up_to_date(store, side, collection, removed, progress)


def check_one_model(store: Store) -> None:
    """Refuse an index whose points are not all of one model: their scores cannot be compared."""
    header, points = store.header(), store.points()
    if header is not None and (others := sum(model != header.model for model in points.models)):
        raise UnrankError(
            f"{store.name} mixes models: {count(others, 'point')} of {len(points):,} are of another document side; "
            "delete these, or delete the index and build it again"
        )


def _bring_up_to_date(
    store: Store, side: DocumentSide, collection: Collection, removed: Some[str], progress: Progress
) -> Updated:
    wanted = wanted_points(collection, removed)
    header, points = store.header(), store.points()
    gone = {id for id in points.ids if id not in wanted}
    store.delete(gone)
    same = header is not None and header.model == side.digest
    stored = dict(zip(points.ids, points.texts, strict=True)) if same else {}
    todo = {id: text for id, text in wanted.items() if stored.get(id) != text}
    facts = side.header(collection)
    encoded = _put_aside(store, side, facts, collection, todo, progress)
    if todo or header != facts:
        progress.begin("bringing the vectors into the index", 0)
        store.switch(facts, keep=same)
    return Updated(len(wanted), len(gone), encoded, switched=header is not None and not same)


def _put_aside(
    store: Store, side: DocumentSide, facts: Header, collection: Collection, todo: dict[str, str], progress: Progress
) -> int:
    """Encode these documents and put them aside, except those that an earlier job put aside; return how many."""
    aside = store.put_aside()
    ready = {
        id
        for id, text, model in zip(aside.ids, aside.texts, aside.models, strict=True)
        if model == side.digest and todo.get(id) == text
    }
    store.drop([id for id in aside.ids if id not in ready])
    progress.begin("encoding documents", len(todo))
    ids, encoded = list(todo), 0
    for start in range(0, len(ids), PIECE):
        piece = ids[start : start + PIECE]
        missing = [id for id in piece if id not in ready]
        if missing:
            texts = collection.documents.texts(collection.documents.rows(missing))
            points = Points(missing, [todo[id] for id in missing], [side.digest] * len(missing))
            store.put(facts, points, side.encode(texts, "document"))
            encoded += len(missing)
        progress.advance(len(piece))
        progress.done((start + len(piece)) / len(ids))
    return encoded
