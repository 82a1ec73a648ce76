"""The ledger: one SQLite file that several processes read and write at once.

What a request names stands in `named` as long as the request is pending; `keyed_hash` is what is left afterwards. Every
change is one transaction together with its entry in the history, which covers what was changed, so that a process may
die at any time and nobody can change a row unseen.
"""

from __future__ import annotations

import heapq
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import astuple
from datetime import UTC, date, datetime
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

from unrank.desk.chain import RESTORE, START, BrokenChain, Entry, check_chain, check_entry
from unrank.desk.file import make_file, open_file, told
from unrank.desk.item import HashKind, Item, counts_of
from unrank.desk.key import Key, make_key, read_key
from unrank.desk.request import PENDING, Request, State
from unrank.desk.story import Story, Told, cover
from unrank.disk import check_writable
from unrank.errors import BadFile, UnrankError

COLUMNS = "id, received, due, basis, state, run"
ITEM = "query, document, query_text, document_text"
COVERED = (
    f"SELECT {COLUMNS} FROM request WHERE id BETWEEN ? AND ? ORDER BY id",
    f"SELECT request, {ITEM}, salt FROM named WHERE request BETWEEN ? AND ? ORDER BY request, rowid",
    "SELECT request, hex(hash), kind FROM keyed_hash WHERE request BETWEEN ? AND ? ORDER BY request, hash",
)
"""What the history covers of requests."""
RUN = "SELECT id, state, out, asked, result FROM run"
SALT_BYTES = 16
MAKING = 10.0
"""Seconds that another process may take to make a ledger once its key is there."""
LARGEST = 2**63 - 1
"""The largest number that SQLite knows."""


class Ledger:
    """An open ledger. Make or open one with `Ledger.open`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, path: Path, make_with: Path | None = None) -> Self:
        """Open a ledger; with a place for its key, make one where there is none."""
        if make_with is not None and not path.exists():
            _check_new(path, make_with)
            make_file(path, make_key(make_with))
        if path.is_dir():
            raise BadFile(path, "a folder, not a ledger: name a file")
        if not path.is_file():
            raise BadFile(path, "no such ledger; 'unrank desk add' makes one")
        return cls(path, open_file(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def transaction(self) -> AbstractContextManager[None]:
        """All that is written within is written together or not at all."""
        return self._together("BEGIN IMMEDIATE")

    def reading(self) -> AbstractContextManager[None]:
        """All that is read within is of one moment."""
        return self._together("BEGIN")

    @contextmanager
    def _together(self, begin: str) -> Iterator[None]:
        if self._connection.in_transaction:
            yield
            return
        with told(self.path):
            self._connection.execute(begin)
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise

    def ask(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with told(self.path):
            return self._connection.execute(query, values).fetchall()

    def key(self, path: Path) -> Key:
        """This ledger's key, and no other."""
        key = read_key(path)
        if key.fingerprint != self.about("key"):
            raise BadFile(path, f"not the key of {self.path}: bring the right one back from a backup")
        return key

    def about(self, name: str) -> str:
        found = self.ask("SELECT value FROM about WHERE name = ?", [name])
        if not found:
            raise BrokenChain(f"{self.path}: its {name} is missing, which every ledger has: it was changed; {RESTORE}")
        return str(found[0][0])

    def write(self, event: str, request: int | None = None, **details: Any) -> Entry:
        """Add an entry to the history, within the transaction whose change it tells of."""
        number, before = self.head()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry = Entry.after(number, before, request, now, event, details)
        self.ask("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(entry))
        return entry

    def head(self) -> tuple[int, str]:
        """Number and hash of the last entry."""
        last = self.ask("SELECT number, hash FROM history ORDER BY number DESC LIMIT 1")
        return (int(last[0][0]), str(last[0][1])) if last else (0, START)

    def add(self, items: Sequence[Item], received: date, due: date, basis: str, key: Key) -> Request:
        """Take a request in."""
        if not items:
            raise UnrankError("a request must name something: give a query, a document or a pair")
        with self.transaction():
            values = [received.isoformat(), due.isoformat(), basis]
            insert = "INSERT INTO request (received, due, basis, state) VALUES (?, ?, ?, 'open') RETURNING id"
            [[id]] = self.ask(insert, values)
            for item in sorted(items, key=lambda item: item.kind == "pair"):  # a text removed whole counts as that
                row = [id, *astuple(item), secrets.token_hex(SALT_BYTES)]
                self.ask("INSERT INTO named VALUES (?, ?, ?, ?, ?, ?)", row)
                for kind, hashed in key.hashes(item):
                    self.ask("INSERT OR IGNORE INTO keyed_hash VALUES (?, ?, ?)", [hashed, id, kind])
            told = dict(zip(("received", "due", "basis"), values, strict=True))
            told |= {"key": key.fingerprint, "public_key": key.public}
            self.write("added", id, **told, names=counts_of(items), covers=self._cover(id))
        return Request(id, received, due, basis, State.OPEN)

    def request(self, id: int) -> Request:
        found = self.ask(f"SELECT {COLUMNS} FROM request WHERE id = ?", [max(-LARGEST, min(id, LARGEST))])
        if not found:
            raise UnrankError(f"{self.path}: there is no request {id}; 'unrank desk list --all' names those there are")
        return _request(found[0])

    def requests(self, states: Sequence[State], most: int = -1) -> list[Request]:
        """Those in these states, state by state, the one that is due first before the others; -1 for all."""
        query = f"SELECT {COLUMNS} FROM request WHERE state = ? ORDER BY due, id LIMIT ?"
        found: list[Request] = []
        for state in states:
            left = most if most < 0 else min(most, LARGEST) - len(found)
            found += [_request(row) for row in self.ask(query, [state, left])]
        return found

    def counts(self) -> dict[State, int]:
        found = dict(self.ask("SELECT state, count(*) FROM request GROUP BY state"))
        return {state: found.get(state, 0) for state in State}

    def items(self, request: int) -> list[Item]:
        """What a request names; nothing once it is closed."""
        return [Item(*row) for row in self.ask(f"SELECT {ITEM} FROM named WHERE request = ?", [request])]

    def history(self, request: int) -> list[Entry]:
        return [Entry(*row) for row in self.ask("SELECT * FROM history WHERE request = ? ORDER BY number", [request])]

    def hashes(self, kind: HashKind, states: Sequence[State] = (*PENDING, State.CLOSED)) -> set[bytes]:
        """The keyed hashes of what requests in these states name."""
        marks = ", ".join("?" * len(states))
        query = (
            f"SELECT hash FROM keyed_hash JOIN request ON request.id = request WHERE kind = ? AND state IN ({marks})"
        )
        return {row[0] for row in self.ask(query, [kind, *states])}

    def move(self, id: int, state: State, **details: Any) -> None:
        """Bring a request into another state, and say so in the history."""
        self.ask("UPDATE request SET state = ? WHERE id = ?", [state, id])
        self.write(str(state), id, **details, covers=self._cover(id))

    def write_of_run(self, event: str, run: int, **details: Any) -> None:
        """Say in the history what became of a run, once its row says so."""
        self.write(f"run {event}", run=run, **details, covers=cover(self.ask(f"{RUN} WHERE id = ?", [run])))

    def verify(self) -> str:
        """The hash of the last entry, or an error that says where history breaks, or what it contradicts."""
        story = Story()
        with self.reading():
            entries = (Entry(*row) for row in self._connection.execute("SELECT * FROM history ORDER BY number"))
            head = check_chain(story.follow(entries), str(self.path))
            for name, (value, number) in story.keys.items():
                if value != self.about(name):
                    where = f"{self.path}: its {name} is not as entry {number} of the history says"
                    raise BrokenChain(f"{where}: it was changed beside it; {RESTORE}")
            there = set()
            for request, covered in self._covered():
                self._compare(f"request {request[0]}", story.requests.get(request[0]), covered, request[1:5])
                there.add(request[0])
            for row in self._connection.execute(RUN):
                self._compare(f"run {row[0]}", story.runs.get(row[0]), cover([row]))
                story.runs.pop(row[0], None)
        for what, missing in (("request", story.requests.keys() - there), ("run", story.runs.keys())):
            if missing:
                raise BrokenChain(f"{self.path}: {what} {min(missing)} is in the history and no longer in the ledger")
        return head

    def check(self, requests: Iterable[int]) -> None:
        """The same for a few requests, by their own entries alone: it takes no longer in a long history."""
        with self.reading():
            for id in requests:
                story = Story()
                for entry in story.follow(self.history(id)):
                    check_entry(entry, str(self.path))
                [(request, covered)] = self._covered(id, id)
                self._compare(f"request {id}", story.requests.get(id), covered, request[1:5])

    def _cover(self, request: int) -> str:
        [(_, covered)] = self._covered(request, request)
        return covered

    def _covered(self, first: int = -LARGEST, last: int = LARGEST) -> Iterator[tuple[tuple[Any, ...], str]]:
        """Each request's row, and what covers all that the ledger has of it."""
        parts = [self._connection.execute(query, [first, last]) for query in COVERED]
        for _, rows in groupby(heapq.merge(*parts, key=itemgetter(0)), itemgetter(0)):
            whole = [*rows]
            yield whole[0], cover(whole)

    def _compare(self, what: str, told: Told | None, covered: str, facts: tuple[Any, ...] = ()) -> None:
        """What stands in the tables with what the history says."""
        if told is not None and told.facts == facts and told.covers in (None, covered):
            return
        where = ""
        if told is not None:
            [row] = self.ask("SELECT * FROM history WHERE number = ?", [told.number])
            where = f" in {Entry(*row)}"
        raise BrokenChain(f"{self.path}: {what} is not as its history says{where}: it was changed beside it; {RESTORE}")


def _check_new(path: Path, key: Path) -> None:
    """Refuse to begin anew where a ledger was lost: its key is still there, and no other process is making one now."""
    if not path.parent.is_dir():
        raise BadFile(path, f"there is no folder {path.parent}: make it first")
    check_writable(path)
    until = monotonic() + MAKING
    while key.exists() and not path.exists():
        if monotonic() > until:
            lost = f"there is no such ledger, and the key {key} of one"
            raise BadFile(path, f"{lost}: {RESTORE}, or move the key away to begin anew")
        sleep(0.05)


def _request(row: tuple[Any, ...]) -> Request:
    id, received, due, basis, state, run = row
    try:
        return Request(id, date.fromisoformat(received), date.fromisoformat(due), basis, State(state), run)
    except ValueError as error:
        raise BrokenChain(f"request {id} was changed beside its history: {error}") from error
