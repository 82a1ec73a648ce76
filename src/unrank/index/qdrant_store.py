"""Qdrant: an index on a Qdrant server.

The server is the one at `QDRANT_URL`, by default http://localhost:6333, with the key in `QDRANT_API_KEY`. The name of
an index is an alias of the collection NAME-1, NAME-2, …, whose metadata holds the facts of the index. Points that are
put aside are in the collection of the next number. Vectors of another model take their place by moving the alias, in
one step. Edited texts of the same model come in several requests, so that a search may see some before the others.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection as Some
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import numpy as np

from unrank.disk import sole_user
from unrank.errors import UnrankError
from unrank.index.store import Header, Hit, Points, Store, Vectors, missing_extra
from unrank.owner import state_folder
from unrank.parse import WrongValue, parse

NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")
HERE = "http://localhost:6333"
FACTS = "unrank"
"""The entry of a collection's metadata that holds the facts of the index."""
IDS = UUID("6d3a1f0c-7a5e-4c1b-9a54-2f6f0b9d8e11")
"""The namespace of the ids of points, which Qdrant wants as numbers or UUIDs."""
BLOCK = 4_096
NUMBERS = 400_000
"""The numbers in a request at most: a server takes 32 MiB unless told otherwise."""
SECONDS = 300
DISTANCES = {"dot": "Dot", "euclidean": "Euclid"}


class QdrantStore(Store):
    """An index behind an alias."""

    def __init__(self, place: str) -> None:
        if not NAME.fullmatch(place):
            raise UnrankError(f"qdrant:{place}: the name of an index has small letters, digits and _ only, at most 48")
        self.alias, self.name = place, f"qdrant:{place}"
        self.url = os.environ.get("QDRANT_URL") or HERE

    @cached_property
    def _client(self) -> Any:
        key = os.environ.get("QDRANT_API_KEY")
        return _package().QdrantClient(url=self.url, api_key=key, timeout=SECONDS, check_compatibility=False)

    @contextmanager
    def _asking(self) -> Iterator[Any]:
        """Yield the client; an error of the server becomes one line."""
        package = _package()
        try:
            yield self._client
        except package.http.exceptions.UnexpectedResponse as error:
            said = " ".join(error.content.decode(errors="replace").split())[:200]
            raise UnrankError(f"{self.name}: the server at {self.url} answers {error.status_code}: {said}") from error
        except (package.http.exceptions.ApiException, package.common.client_exceptions.QdrantException) as error:
            raise UnrankError(f"{self.name}: no answer from {self.url}: {error}; set QDRANT_URL") from error

    @contextmanager
    def writing(self) -> Iterator[None]:
        folder = (state_folder() or Path(tempfile.gettempdir())) / "qdrant"
        lock = folder / sha256(f"{self.url} {self.alias}".encode()).hexdigest()[:32]
        with sole_user(lock, f"another job is at work on {self.name}: wait for it, or stop it"):
            if (number := self._number()) > 1:  # a job may have been killed between the switch and this
                self._delete_collection(self._collection(number - 1))
            yield

    def _collection(self, number: int) -> str:
        return f"{self.alias}-{number}"

    def _facts(self, collection: str) -> dict[str, Any] | None:
        """Return the facts of a collection or an alias; `None` if there is none. Refuse one that is not ours."""
        with self._asking() as client:
            try:
                config = client.get_collection(collection).config
            except _package().http.exceptions.UnexpectedResponse as error:
                if error.status_code == 404:
                    return None
                raise
        found = (config.metadata or {}).get(FACTS)
        if not isinstance(found, dict) or not isinstance(found.get("number"), int):
            raise UnrankError(
                f"{self.name}: the collection {collection} is there and no index of unrank: choose another name"
            )
        return found

    def _number(self) -> int:
        """Return the number of the current collection; 0 if there is no index."""
        found = self._facts(self.alias)
        return int(found["number"]) if found else 0

    def header(self) -> Header | None:
        found = self._facts(self.alias)
        return self._header(found) if found else None

    def _header(self, facts: dict[str, Any]) -> Header:
        try:
            header: Header = parse(Header, {name: value for name, value in facts.items() if name != "number"})
        except WrongValue as error:
            raise UnrankError(f"{self.name}: damaged: {error}; build the index again") from error
        return header

    def points(self) -> Points:
        return self._points(self.alias)

    def put_aside(self) -> Points:
        return self._points(self._collection(self._number() + 1))

    def _points(self, collection: str) -> Points:
        rows = [
            (each.payload["id"], each.payload["text"], each.payload["model"])
            for block in self._read(collection)
            for each in block
        ]
        return Points(*map(list, zip(*rows, strict=True))) if rows else Points()

    def _read(self, collection: str, most: int = BLOCK, vectors: bool = False) -> Iterator[Any]:
        """Yield the points of a collection in the order of their ids, some at a time; none if it is not there."""
        if self._facts(collection) is None:
            return
        offset = None
        while True:
            with self._asking() as client:
                block, offset = client.scroll(
                    collection, limit=most, offset=offset, with_payload=True, with_vectors=vectors
                )
            if block:
                yield block
            if offset is None:
                return

    def put(self, header: Header, points: Points, vectors: Vectors) -> None:
        aside = self._make_aside(header)
        self._upsert(aside, list(zip(points.ids, points.texts, points.models, strict=True)), vectors)

    def _make_aside(self, header: Header) -> str:
        """Return the collection for points that are put aside; make it if it is not there, or of another header."""
        number = self._number() + 1
        aside, wanted = self._collection(number), {**asdict(header), "number": number}
        if (found := self._facts(aside)) is not None:
            if (found.get("width"), found.get("similarity")) == (header.width, header.similarity):
                return aside
            self._delete_collection(aside)
        models = _package().models
        compared = models.VectorParams(size=header.width, distance=models.Distance(DISTANCES[header.similarity]))
        with self._asking() as client:
            client.create_collection(aside, vectors_config=compared, metadata={FACTS: wanted})
            if FACTS not in (client.get_collection(aside).config.metadata or {}):
                client.delete_collection(aside)
                raise UnrankError(f"{self.name}: Qdrant 1.16 or later is needed: {self.url} keeps no metadata")
        return aside

    def _upsert(self, collection: str, facts: Sequence[tuple[str, str, str]], vectors: Vectors) -> None:
        models, most = _package().models, _most(vectors.shape[1])
        for start in range(0, len(facts), most):
            some, rows = facts[start : start + most], np.asarray(vectors[start : start + most], np.float32)
            points = [
                models.PointStruct(id=_point(id), vector=row.tolist(), payload={"id": id, "text": text, "model": model})
                for (id, text, model), row in zip(some, rows, strict=True)
            ]
            with self._asking() as client:
                client.upsert(collection, points, wait=True)

    def drop(self, ids: Some[str]) -> None:
        aside = self._collection(self._number() + 1)
        if self._facts(aside) is None:
            return
        self._delete(aside, ids)
        with self._asking() as client:
            left = client.count(aside, exact=True).count
        if not left:
            self._delete_collection(aside)

    def delete(self, ids: Some[str]) -> None:
        if ids and self._facts(self.alias) is not None:
            self._delete(self.alias, ids)

    def _delete(self, collection: str, ids: Some[str]) -> None:
        models, gone = _package().models, [_point(id) for id in ids]
        for start in range(0, len(gone), BLOCK):
            with self._asking() as client:
                client.delete(collection, models.PointIdsList(points=gone[start : start + BLOCK]), wait=True)

    def _delete_collection(self, collection: str) -> None:
        if self._facts(collection) is not None:
            with self._asking() as client:
                client.delete_collection(collection)

    def switch(self, header: Header, keep: bool) -> None:
        number = self._number()
        if keep and number:
            aside = self._collection(number + 1)
            for block in self._read(aside, _most(header.width), vectors=True):
                facts = [(each.payload["id"], each.payload["text"], each.payload["model"]) for each in block]
                self._upsert(self.alias, facts, np.array([each.vector for each in block], np.float32))
            self._write_facts(self._collection(number), header, number)
            self._delete_collection(aside)
            return
        aside = self._make_aside(header)
        self._write_facts(aside, header, number + 1)
        models = _package().models
        away = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=self.alias))
        made = models.CreateAlias(collection_name=aside, alias_name=self.alias)
        steps = [*([away] if number else []), models.CreateAliasOperation(create_alias=made)]
        with self._asking() as client:
            client.update_collection_aliases(steps)
        if number:
            self._delete_collection(self._collection(number))

    def _write_facts(self, collection: str, header: Header, number: int) -> None:
        with self._asking() as client:
            client.update_collection(collection, metadata={FACTS: {**asdict(header), "number": number}})

    def blocks(self) -> Iterator[tuple[Sequence[str], Vectors]]:
        header = self.header()
        for block in self._read(self.alias, _most(header.width), vectors=True) if header else ():
            vectors = np.array([each.vector for each in block], np.float32)
            yield [each.payload["id"] for each in block], vectors

    def search(self, queries: Vectors, most: int) -> list[list[Hit]]:
        header = self.header()
        if header is None or not len(queries):
            return [[] for _ in queries]
        models = _package().models
        exact, sign = models.SearchParams(exact=True), 1 if header.similarity == "dot" else -1
        asked = [
            models.QueryRequest(query=query.tolist(), limit=most, params=exact, with_payload=["id"])
            for query in np.asarray(queries, np.float32)
        ]
        with self._asking() as client:
            found = client.query_batch_points(self.alias, asked)
        return [[Hit(hit.payload["id"], sign * float(hit.score)) for hit in each.points] for each in found]


def _most(width: int) -> int:
    """Return the number of points in a request."""
    return max(1, min(BLOCK, NUMBERS // width))


def _point(id: str) -> str:
    """Return the id of a document's point."""
    return str(uuid5(IDS, id))


def _package() -> Any:
    try:
        import qdrant_client
    except ImportError as error:
        raise missing_extra("qdrant-client", "qdrant") from error
    return qdrant_client
