"""The vectors of a collection's documents as an Arrow file, made in pieces of a fixed range of rows."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from unrank.collection.collection import Collection, open_collection
from unrank.collection.removal import Removal
from unrank.engine.pieces import Pieces
from unrank.engine.runtime import Device, Progress, Runtime
from unrank.forgetting.previous_requests import not_recognised
from unrank.index.document_side import DocumentSide
from unrank.index.store import Vectors
from unrank.index.update import removed_documents
from unrank.rankers import load_ranker, record_of
from unrank.record import Record, requests_of

FORMAT = 1
PIECE = 4_096
"""The number of documents in a piece, those that are left out included."""


@dataclass(frozen=True)
class Encoding:
    """The vectors of a collection's documents: columns `id` and `vector`, in the collection's order."""

    side: DocumentSide
    collection: Collection
    record: Record | None = None
    """The record of the ranker, whose removed documents are left out; `None` to leave out none."""
    removal: Removal | None = None
    name: str = "vectors"

    @property
    def pieces(self) -> int:
        return -(-len(self.collection.documents) // PIECE)

    def manifest(self) -> dict[str, object]:
        header = self.side.header(self.collection)
        asked = [[asdict(request) for request in requests_of(self.record)], asdict(self.removal or Removal())]
        return {
            "format": FORMAT,
            "model": header.model,
            "kind": header.kind,
            "similarity": header.similarity,
            "width": header.width,
            "fingerprint": self.collection.fingerprint,
            "documents": len(self.collection.documents),
            "removed": hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:32],
            "piece": PIECE,
            "recognised": not_recognised(self.record) is None,
        }

    def make(self, piece: int) -> pa.RecordBatch:
        documents = self.collection.documents
        rows = range(piece * PIECE, min((piece + 1) * PIECE, len(documents)))
        removed = removed_documents(documents.ids(rows), self.record, self.removal)
        kept = [row for row, id in zip(rows, documents.ids(rows), strict=True) if id not in removed]
        texts = documents.texts(kept) or ["a"]
        return _batch(documents.ids(kept), self.side.encode(texts, "document")[: len(kept)])


@dataclass(frozen=True)
class EncodingJob:
    """What any worker needs to take part in an encoding."""

    out: Path
    ranker: str
    collection: Path
    removal: Path | None = None
    keep_removed: bool = False
    device: Device = "auto"
    fast: bool = True

    def open(self, progress: Progress) -> Pieces:
        """Load the ranker, and open the folder of its vectors."""
        collection = open_collection(self.collection)
        side = DocumentSide.of(load_ranker(self.ranker, self.fast), Runtime.on(self.device, progress))
        record = None if self.keep_removed else record_of(self.ranker)
        if warning := not_recognised(record):
            progress.say(f"{warning}; name it with --removal, or its vectors are written")
        named = Removal.load(self.removal) if self.removal else None
        return Pieces(self.out, Encoding(side, collection, record, named))


def _batch(ids: list[str], vectors: Vectors) -> pa.RecordBatch:
    flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    return pa.record_batch({"id": pa.array(ids, pa.string()), "vector": column})
