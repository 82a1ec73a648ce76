"""The rows of a ledger that its history covers, and their comparison with the history.

The last entry about a request, a run or a ranker of the service holds one hash of its rows. So nobody can change a row
outside the history unseen.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from unrank.desk.history_index import RESTORE, BrokenChain, Entry, HistoryIndex, LastEntry, hash_of_rows

COLUMNS = "id, received, due, basis, state, run"
ITEM = "query, document, query_text, document_text"
COVERED = (
    f"SELECT {COLUMNS} FROM request WHERE id BETWEEN ? AND ? ORDER BY id",
    f"SELECT request, {ITEM}, salt FROM named WHERE request BETWEEN ? AND ? ORDER BY request, rowid",
    "SELECT request, document, substitute, substitute_text, salt FROM substitute WHERE request BETWEEN ? AND ? "
    "ORDER BY request, document",
    "SELECT request, hex(hash), kind FROM keyed_hash WHERE request BETWEEN ? AND ? ORDER BY request, hash",
    "SELECT request, ranker, state, run FROM state_by_ranker WHERE request BETWEEN ? AND ? ORDER BY request, ranker",
)
"""The rows of requests."""
RUN = "SELECT id, state, out, asked, result FROM run"
SERVICE = "SELECT name, role, ranker, collection, indexes, since, run, before FROM service_ranker"
LARGEST = 2**63 - 1
"""The largest integer in SQLite."""


class CoveredRows:
    """The rows of an open ledger that its history covers."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._connection = connection

    def hash_of(self, request: int) -> str:
        """Return one hash of all rows of a request."""
        [(_, hashed)] = self._hashed(request, request)
        return hashed

    def compare(self, index: HistoryIndex) -> None:
        """Refuse rows that are not as the last entry about them says, and rows that are missing."""
        requests, runs, service = {*index.requests}, {*index.runs}, {*index.service}
        for request, hashed in self._hashed():
            self._check(f"request {request[0]}", index.requests.get(request[0]), hashed, request[1:5])
            requests.discard(request[0])
        for row in self._connection.execute(RUN):
            self._check(f"run {row[0]}", index.runs.get(row[0]), hash_of_rows([row]))
            runs.discard(row[0])
        for row in self._connection.execute(SERVICE):
            self._check(f"ranker {row[0]}", index.service.get(row[0]), hash_of_rows([row]))
            service.discard(row[0])
        for what, missing in (("request", requests), ("run", runs), ("ranker", service)):
            if missing:
                first = min(missing, key=str)
                raise BrokenChain(f"{self._path}: {what} {first} is in the history and no longer in the ledger")

    def compare_request(self, index: HistoryIndex, id: int) -> None:
        """Compare one request."""
        [(request, hashed)] = self._hashed(id, id)
        self._check(f"request {id}", index.requests.get(id), hashed, request[1:5])

    def _hashed(self, first: int = -LARGEST, last: int = LARGEST) -> Iterator[tuple[tuple[Any, ...], str]]:
        """Yield each request's row, and one hash of all its rows in the ledger."""
        parts = [self._connection.execute(query, [first, last]) for query in COVERED]
        for _, rows in groupby(heapq.merge(*parts, key=itemgetter(0)), itemgetter(0)):
            whole = [*rows]
            yield whole[0], hash_of_rows(whole)

    def _check(self, what: str, last: LastEntry | None, hashed: str, facts: tuple[Any, ...] = ()) -> None:
        """Refuse rows with another hash, or a request with other facts, than the last entry about them says."""
        if last is not None and last.facts == facts and last.covers in (None, hashed):
            return
        where = ""
        if last is not None:
            [row] = self._connection.execute("SELECT * FROM history WHERE number = ?", [last.number])
            where = f" in {Entry(*row)}"
        raise BrokenChain(
            f"{self._path}: {what} is not as its history says{where}: it was changed outside the history; {RESTORE}"
        )
