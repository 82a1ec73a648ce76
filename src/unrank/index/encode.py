"""The vectors of a collection's documents as Arrow files, made in pieces by any number of shards.

A piece has a fixed range of rows and is encoded by itself, so its bits do not depend on which shard makes it, or when.
Pieces are written whole or not at all: a stopped shard continues with those that are missing. Once all are there, they
become one file, in the order of their names. In memory there is one piece at a time.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa

from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.disk import flush, read_json, replace_json
from unrank.engine.runtime import Progress
from unrank.errors import BadFile, UnrankError, count
from unrank.index.document_side import DocumentSide
from unrank.index.store import Vectors
from unrank.index.update import removed_documents
from unrank.parse import WrongValue, parse
from unrank.record import Record, requests_of

FORMAT = 1
PIECE = 4_096
"""The number of documents in a piece, those that are left out included."""
MANIFEST, VECTORS, PIECES = "vectors.json", "vectors.arrow", "pieces"


@dataclass(frozen=True)
class Manifest:
    """What the vectors of a folder depend on. Every shard must find the same."""

    format: int
    model: str
    """A digest of the document side of the ranker."""
    kind: str
    similarity: str
    width: int
    fingerprint: str
    documents: int
    removed: str
    """A hash of the requests whose documents are left out."""
    piece: int


@dataclass(frozen=True)
class Encoded:
    """What a shard did, in numbers of pieces."""

    pieces: int
    """Of the whole collection."""
    made: int
    missing: int
    """Pieces of other shards that are not there yet."""


@dataclass(frozen=True)
class Encoding:
    """The encoding of a collection into a folder."""

    out: Path
    side: DocumentSide
    collection: Collection
    record: Record | None = None
    """The record of the ranker, whose removed documents are left out; `None` to leave out none."""
    removal: Removal | None = None

    @property
    def pieces(self) -> int:
        return -(-len(self.collection.documents) // PIECE)

    def manifest(self) -> Manifest:
        header = self.side.header(self.collection)
        asked = [[asdict(request) for request in requests_of(self.record)], asdict(self.removal or Removal())]
        removed = hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:32]
        data = (self.collection.fingerprint, len(self.collection.documents), removed, PIECE)
        return Manifest(FORMAT, header.model, header.kind, header.similarity, header.width, *data)

    def run(self, number: int, of: int, progress: Progress) -> Encoded:
        """Encode the pieces of one shard that are missing; join all pieces if that were the last."""
        manifest = self._begin()
        if (self.out / VECTORS).exists():
            shutil.rmtree(self.out / PIECES, ignore_errors=True)  # of a job that was killed at its end
            return Encoded(self.pieces, 0, 0)
        own = [piece for piece in range(self.pieces) if piece % of == number - 1]
        progress.begin("encoding documents", len(own))
        made = 0
        for done, piece in enumerate(own, 1):
            if not self._path(piece).exists():
                _write(self._path(piece), iter([self._encode(piece, manifest.width)]))
                made += 1
            progress.advance(1)
            progress.done(done / len(own))
        missing = sum(not self._path(piece).exists() for piece in range(self.pieces))
        if not missing:
            progress.begin("joining the pieces", 0)
            self._join()
        return Encoded(self.pieces, made, 0 if (self.out / VECTORS).exists() else missing)

    def _begin(self) -> Manifest:
        """Write the manifest, or compare it with the one that is there."""
        path, manifest = self.out / MANIFEST, self.manifest()
        try:
            (self.out / PIECES).mkdir(parents=True, exist_ok=True)
            if not path.exists():
                replace_json(path, asdict(manifest))
        except OSError as error:
            raise UnrankError(f"cannot write to {self.out}: {error.strerror}") from error
        try:
            found: Manifest = parse(Manifest, read_json(path))
        except WrongValue as error:
            raise BadFile(path, f"damaged: {error}; delete {self.out}, and encode again") from error
        differ = [name for name, value in asdict(manifest).items() if getattr(found, name) != value]
        if differ:
            raise UnrankError(
                f"{self.out} holds vectors that were made otherwise: {', '.join(differ)} differ; choose another --out"
            )
        return manifest

    def _path(self, piece: int) -> Path:
        return self.out / PIECES / f"{piece:08}.arrow"

    def _encode(self, piece: int, width: int) -> pa.RecordBatch:
        documents = self.collection.documents
        rows = range(piece * PIECE, min((piece + 1) * PIECE, len(documents)))
        removed = removed_documents(documents.ids(rows), self.record, self.removal)
        kept = [row for row, id in zip(rows, documents.ids(rows), strict=True) if id not in removed]
        texts = documents.texts(kept)
        vectors = self.side.encode(texts, "document") if texts else np.empty((0, width), np.float32)
        return _batch(documents.ids(kept), vectors)

    def _join(self) -> None:
        """Write all pieces to one file, and delete them."""

        def batches() -> Iterator[pa.RecordBatch]:
            for piece in range(self.pieces):
                with pa.memory_map(str(self._path(piece))) as file:
                    yield pa.ipc.open_file(file).get_batch(0)

        try:
            _write(self.out / VECTORS, batches())
        except (OSError, pa.ArrowException) as error:
            if (self.out / VECTORS).exists():  # another shard was quicker
                return
            raise UnrankError(f"{self.out / PIECES}: the pieces cannot be joined: {error}") from error
        shutil.rmtree(self.out / PIECES, ignore_errors=True)


def _batch(ids: list[str], vectors: Vectors) -> pa.RecordBatch:
    flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    return pa.record_batch({"id": pa.array(ids, pa.string()), "vector": column})


def _write(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    """Write batches as they come, whole or not at all."""
    partial = path.with_name(f".{path.name}.{uuid4().hex[:12]}")
    try:
        first = next(batches)
        with pa.OSFile(str(partial), "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(batch)
        flush(partial)
        partial.replace(path)
        flush(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def in_words(done: Encoded, out: Path) -> str:
    """Return what a shard did, in one line."""
    made = f"{count(done.made, 'piece')} encoded of {done.pieces:,}"
    if done.missing:
        return f"{made}; {done.missing:,} of other shards are missing in {out}"
    return f"{made}; all vectors are in {out / VECTORS}"
