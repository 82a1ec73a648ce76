"""Check an index: every point is of this ranker and of the text as it is now, and what was removed is not there."""

from __future__ import annotations

from collections.abc import Collection as Some
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.texts import hashed_order
from unrank.engine.runtime import Progress
from unrank.errors import UnrankError
from unrank.index.document_side import DocumentSide
from unrank.index.store import Store
from unrank.index.update import PIECE, wanted_points

TOLERANCE = 1e-2
"""The distance of two vectors of a text, as a share of their length, that other devices and versions may cause."""


@dataclass(frozen=True)
class Checked:
    """The ids of documents that are not as they should be, by what is wrong."""

    removed: tuple[str, ...]
    """They were removed, or are not in the collection."""
    other_model: tuple[str, ...]
    """Their vectors were made by another document side."""
    stale: tuple[str, ...]
    """Their texts have changed since they were encoded."""
    wrong_vector: tuple[str, ...]
    """Their texts, encoded again, give other vectors."""
    missing: tuple[str, ...]
    """They are in the collection and not in the index."""
    points: int
    compared: int
    """The number of texts that were encoded again."""
    unfinished: int
    """The number of points that a job put aside and did not bring into the index."""
    same_model: bool
    """Whether the document side of this ranker is the one that the index says it is of."""

    @property
    def findings(self) -> dict[str, tuple[str, ...]]:
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: ids for name, ids in found.items() if isinstance(ids, tuple)}

    @property
    def sound(self) -> bool:
        return self.same_model and not any(self.findings.values())


def check_index(
    store: Store, side: DocumentSide, collection: Collection, removed: Some[str], sample: int, progress: Progress
) -> Checked:
    """Compare all points with a ranker and a collection. `sample` texts are encoded again, all if it is 0."""
    header = store.header()
    if header is None:
        raise UnrankError(f"{store.name} does not exist or was not finished: make it with 'unrank index build'")
    points, wanted = store.points(), wanted_points(collection, removed)
    others = {id for id, model in zip(points.ids, points.models, strict=True) if model != side.digest}
    edited = {id for id, text in zip(points.ids, points.texts, strict=True) if wanted.get(id, text) != text}
    same = header.model == side.digest
    sound = [id for id in points.ids if same and id in wanted and id not in others and id not in edited]
    chosen = [sound[place] for place in hashed_order(sound, "check")[: sample or None]]
    there = set(points.ids)
    return Checked(
        removed=tuple(id for id in points.ids if id not in wanted),
        other_model=tuple(sorted(others)),
        stale=tuple(sorted(edited)),
        wrong_vector=_wrong_vectors(store, side, collection, chosen, progress),
        missing=tuple(id for id in wanted if id not in there),
        points=len(points),
        compared=len(chosen),
        unfinished=len(store.put_aside()),
        same_model=same,
    )


def _wrong_vectors(
    store: Store, side: DocumentSide, collection: Collection, ids: Sequence[str], progress: Progress
) -> tuple[str, ...]:
    """Encode documents again, and return those whose vectors are far from the stored ones."""
    wanted, stored = set(ids), dict[str, np.ndarray]()
    for block, vectors in store.blocks():
        stored |= {id: vectors[row] for row, id in enumerate(block) if id in wanted}
    progress.begin("encoding texts again", len(ids))
    wrong: list[str] = []
    for start in range(0, len(ids), PIECE):
        piece = ids[start : start + PIECE]
        made = side.encode(collection.documents.texts(collection.documents.rows(piece)), "document")
        far = np.linalg.norm(made - np.stack([stored[id] for id in piece]), axis=1)
        limit = TOLERANCE * np.maximum(np.linalg.norm(made, axis=1), 1e-6)
        wrong += [piece[row] for row in np.flatnonzero(far > limit).tolist()]
        progress.advance(len(piece))
    return tuple(sorted(wrong))
