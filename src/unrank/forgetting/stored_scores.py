"""The scores of all lists that `evaluate` measures as an Arrow file, made in pieces of a fixed number of queries."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from unrank.collection.collection import Pairs, open_collection
from unrank.collection.removal import Removal
from unrank.collection.texts import Rows, Texts
from unrank.engine.pieces import Pieces
from unrank.engine.runtime import Device, Progress
from unrank.engine.teacher import saved_digest
from unrank.errors import BadFile, count
from unrank.evaluation.scorecard import MOST_QUERIES, MeasuredLists, Scorecard
from unrank.forgetting.evaluate import evaluation_workspace
from unrank.forgetting.workspace import Workspace
from unrank.rankers import load_ranker, record_of
from unrank.rankers.base import Ranker

FORMAT = 1
PIECE = 256
"""The number of queries in a piece."""
SCHEMA = pa.schema({"query": pa.string(), "document": pa.string(), "score": pa.float32()})


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
        pairs = self._pairs(piece)
        scores = pa.array(self.workspace.scorer(self.ranker)(pairs), pa.float32())
        return pa.record_batch({**self._ids(pairs), "score": scores}, schema=SCHEMA)

    def measure(self, pieces: Pieces) -> tuple[Scorecard, dict[str, MeasuredLists]]:
        """Measure the ranker by the finished table. Pairs outside the lists, of substitutes, are scored now."""
        table = pieces.read()
        pairs = [self._pairs(piece) for piece in range(self.pieces)]
        if problem := self._problem(table, pairs):
            raise BadFile(pieces.file, f"damaged: {problem}; delete it, and make it again")
        teacher = self.workspace.teacher(self.ranker)
        teacher.remember(np.concatenate(pairs), table["score"].to_numpy())
        return self.workspace.evaluator.scorecard_and_lists(teacher.scores)

    def _problem(self, table: pa.Table, pairs: list[Pairs]) -> str | None:
        """Return why a table does not hold a score of each pair; `None` if it does. Ids are compared piece by piece."""
        if table.schema != SCHEMA:
            return f"its columns are not {', '.join(f'{field.name} ({field.type})' for field in SCHEMA)}"
        if len(table) != (rows := sum(map(len, pairs))):
            return f"it has {count(len(table), 'row')}, not {rows:,}"
        try:
            table.validate(full=True)
        except (ValueError, pa.ArrowException) as error:
            return str(error)
        if any(column.null_count for column in table.columns) or not np.isfinite(table["score"]).all():
            return "it holds values that are missing or not finite"
        start = 0
        for part in pairs:
            if not table.slice(start, len(part)).drop_columns("score").equals(pa.table(self._ids(part))):
                return f"rows {start + 1:,} to {start + len(part):,} are not of the pairs that are measured"
            start += len(part)
        return None

    def _ids(self, pairs: Pairs) -> dict[str, pa.StringArray]:
        """Return the columns `query` and `document` of pairs."""
        queries, documents = self.workspace.collection.queries, self.workspace.collection.documents
        return {"query": _ids(queries, pairs[:, 0]), "document": _ids(documents, pairs[:, 1])}

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


def _ids(texts: Texts, rows: Rows) -> pa.StringArray:
    """Return the ids of texts, each looked up once."""
    each, places = np.unique(rows, return_inverse=True)
    return pa.array(texts.ids(each), pa.string()).take(pa.array(places))
