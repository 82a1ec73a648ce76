"""The contract of a store of document vectors, and the stores that can be named.

A store holds points: a document's id, a digest of its text, a digest of the document side of the ranker that encoded
it, and its vector. New points are first put aside, and `switch` brings them into the index. So a search never sees
vectors of two models, and an update that was killed continues from the points that it had put aside.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Collection as Some
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from unrank.errors import UnknownName, UnrankError

Vectors = NDArray[np.float32]
"""One vector in each row. [texts, width]"""
SIMILARITIES = ("dot", "euclidean")
"""How vectors are compared. For the cosine, unit vectors are stored and compared by their dot product."""


@dataclass(frozen=True)
class Header:
    """The facts that are true of all points of an index."""

    model: str
    """A digest of the document side of the ranker that encoded them."""
    kind: str
    """The kind of that ranker."""
    similarity: str
    width: int
    collection: str
    """The folder of the collection that the texts are from."""

    def __post_init__(self) -> None:
        if self.similarity not in SIMILARITIES:
            raise UnrankError(f"an index that compares by {self.similarity!r}: known are {', '.join(SIMILARITIES)}")


@dataclass(frozen=True)
class Points:
    """Points without their vectors: ids of documents, digests of their texts, digests of the document side."""

    ids: Sequence[str] = ()
    texts: Sequence[str] = ()
    models: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Hit:
    """A document that a search found, and its score."""

    id: str
    score: float


class Store(ABC):
    """An index in some place. What is written survives the end of the process at any moment."""

    name: str
    """The name by which the command line knows it."""
    folder: Path | None = None
    """Its folder; `None` if it is in a database."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[None]:
        """Keep other writers away during the block."""

    @abstractmethod
    def header(self) -> Header | None:
        """Return the facts of the index; `None` if it has not been built."""

    @abstractmethod
    def points(self) -> Points:
        """Return all points of the index."""

    @abstractmethod
    def put_aside(self) -> Points:
        """Return the points that are put aside and not in the index yet."""

    @abstractmethod
    def put(self, header: Header, points: Points, vectors: Vectors) -> None:
        """Put new points aside, for an index with these facts."""

    @abstractmethod
    def switch(self, header: Header, keep: bool) -> None:
        """Bring the points that are put aside into the index.

        With `keep` they replace the points with the same ids, and the others stay. Otherwise they replace all points,
        in one step: a search never compares vectors of two models.
        """

    @abstractmethod
    def delete(self, ids: Some[str]) -> None:
        """Delete these documents from the index."""

    @abstractmethod
    def drop(self, ids: Some[str]) -> None:
        """Delete these documents from the points that are put aside."""

    @abstractmethod
    def blocks(self) -> Iterator[tuple[Sequence[str], Vectors]]:
        """Yield the ids and vectors of all points, some thousands at a time."""

    @abstractmethod
    def search(self, queries: Vectors, most: int) -> list[list[Hit]]:
        """Return the nearest documents of each query, best first."""


STORES = {
    "faiss": ("faiss_store", "FaissStore"),
    "pgvector": ("pgvector_store", "PgvectorStore"),
    "qdrant": ("qdrant_store", "QdrantStore"),
}
"""The module and the class of each store."""


def open_store(name: str) -> Store:
    """Return the store `faiss:FOLDER`, `pgvector:TABLE` or `qdrant:NAME`. Without a prefix it is a folder of FAISS."""
    kind, colon, place = name.partition(":")
    if not colon or "/" in kind:
        kind, place = "faiss", name
    if kind not in STORES:
        raise UnknownName("store", kind, STORES)
    if not place:
        raise UnrankError(f"{name}: name the index too: faiss:FOLDER, pgvector:TABLE or qdrant:NAME")
    module, cls = STORES[kind]
    return cast(Store, getattr(importlib.import_module(f"unrank.index.{module}"), cls)(place))


def missing_extra(package: str, extra: str) -> UnrankError:
    """Return the error for a package that is not installed."""
    return UnrankError(f"{package} is not installed: run pip install 'unrank[{extra}]'")
