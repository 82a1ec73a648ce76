"""The scores of all lists that `evaluate` measures as an Arrow file, made in pieces of a fixed number of queries."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from unrank.collection.collection import Pairs, open_collection
from unrank.collection.removal import Removal
from unrank.engine.pieces import Pieces
from unrank.engine.runtime import Device, Progress
from unrank.engine.teacher import saved_digest
from unrank.errors import BadFile
from unrank.evaluation.scorecard import MOST_QUERIES, MeasuredLists, Scorecard
from unrank.forgetting.evaluate import evaluation_workspace
from unrank.forgetting.workspace import Workspace
from unrank.rankers import load_ranker, record_of
from unrank.rankers.base import Ranker

FORMAT = 1
PIECE = 256
"""The number of queries in a piece."""


@dataclass(frozen=True)
class StoredScores:
    """A ranker's scores of the measured lists: columns `query`, `document` and `score`, in the order of the queries."""

    workspace: Workspace
    ranker: Ranker
    name: str = "scores"

    @property
    def pieces(self) -> int:
        return -(-len(self.workspace.evaluator.queries) // PIECE)

    def manifest(self) -> dict[str, object]:
        queries = np.ascontiguousarray(self.workspace.evaluator.queries, np.int64)
        return {
            "format": FORMAT,
            "model": saved_digest(self.ranker),
            "fingerprint": self.workspace.collection.fingerprint,
            "queries": hashlib.sha256(queries.tobytes()).hexdigest()[:32],
            "piece": PIECE,
        }

    def make(self, piece: int) -> pa.RecordBatch:
        pairs, collection = self._pairs(piece), self.workspace.collection
        scores = self.workspace.scorer(self.ranker)(pairs)
        queries, documents = collection.queries.ids(pairs[:, 0]), collection.documents.ids(pairs[:, 1])
        columns = {"query": pa.array(queries, pa.string()), "document": pa.array(documents, pa.string())}
        return pa.record_batch({**columns, "score": pa.array(scores, pa.float32())})

    def measure(self, pieces: Pieces) -> tuple[Scorecard, dict[str, MeasuredLists]]:
        """Measure the ranker by the finished table. Pairs outside the lists, of substitutes, are scored now."""
        pairs = np.concatenate([self._pairs(piece) for piece in range(self.pieces)])
        scores = pieces.read().column("score").to_numpy()
        if len(scores) != len(pairs):
            raise BadFile(pieces.file, f"has {len(scores):,} rows, not {len(pairs):,}; delete it, and make it again")
        teacher = self.workspace.teacher(self.ranker)
        teacher.remember(pairs, scores)
        return self.workspace.evaluator.scorecard_and_lists(teacher.scores)

    def _pairs(self, piece: int) -> Pairs:
        rows = self.workspace.evaluator.queries[piece * PIECE : (piece + 1) * PIECE]
        return self.workspace.collection.list_pairs(rows)


@dataclass(frozen=True)
class ScoringJob:
    """What any worker needs to score a part of the lists."""

    out: Path
    ranker: str
    collection: Path
    removal: Removal | None = None
    measure: int = MOST_QUERIES
    device: Device = "auto"
    fast: bool = True

    def open(self, progress: Progress) -> Pieces:
        """Load the ranker, and open the folder of its scores."""
        return Pieces(self.out, self.table(progress))

    def table(self, progress: Progress) -> StoredScores:
        """Load the ranker, and return the table of its scores."""
        ranker, collection = load_ranker(self.ranker, self.fast), open_collection(self.collection)
        record = record_of(self.ranker)
        how = (ranker, collection, self.removal, record, self.measure, self.device, progress)
        return StoredScores(evaluation_workspace(*how), ranker)
