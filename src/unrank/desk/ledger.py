"""The ledger: one SQLite file that several processes read and write at once.

The items of a request are in `named` while the request is pending; afterwards only `keyed_hash` is left of them. Every
change is one transaction together with its entry in the history, which holds a hash of the changed rows. So a process
may die at any time, and nobody can change a row unseen. The head of the history is keyed, so nobody can rebuild the
history without the key; a counter outside the ledger shows if an old copy was put back.
"""

from __future__ import annotations

import heapq
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import astuple, replace
from datetime import UTC, date, datetime
from itertools import islice
from operator import itemgetter
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Self

from unrank.collection.normalisation import NORMALISATION, Normalise, normalised, normalised_before_version_4
from unrank.desk.counter import Counter, know_at, known_at
from unrank.desk.covered_rows import COLUMNS, ITEM, LARGEST, RUN, SERVICE, CoveredRows
from unrank.desk.head import ACCEPT, Head
from unrank.desk.history_index import (
    BY,
    COPIES,
    RESTORE,
    START,
    BrokenChain,
    Entry,
    HistoryIndex,
    Json,
    check_chain,
    check_entry,
    check_person,
    hash_of_rows,
)
from unrank.desk.key import Key, finish_rotation, make_key, read_key, signing_file
from unrank.desk.ledger_file import make_file, open_file, read_file, sqlite_errors, tidy
from unrank.desk.request import PENDING, RUNNABLE, SETTLED, HashKind, Item, Request, State, counts_of, substitutes_of
from unrank.desk.schema import roll_back
from unrank.disk import check_writable
from unrank.errors import BadFile, UnrankError

OUTCOME = f"""CASE state WHEN '{State.CLOSED}' THEN (
    SELECT event FROM history
    WHERE history.request = request.id AND event IN {tuple(map(str, SETTLED))} ORDER BY number DESC LIMIT 1
) END"""
"""The state that a closed request had when it was closed, by the history."""
WRITE = "BEGIN IMMEDIATE"
NOT_NOTICED = "this machine cannot notice if an old copy is put back"
NO_COUNTER = "it has no state folder, so it cannot notice if an old copy is put back"
SALT_BYTES = 16
TRIES = 5
MAKING = 10.0
"""Seconds that another process may take to make a ledger after its key."""


class Ledger:
    """An open ledger. Make or open one with `Ledger.open`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, writable: bool) -> None:
        self.path = path
        self.notes: list[str] = []
        """Warnings about this ledger, for the user."""
        self._connection = connection
        self._writable = writable
        self._head = Head(path, self.ask)
        self._rows = CoveredRows(path, connection)
        self._key: Key | None = None
        self._by: str | None = None
        self._verified: int | None = None

    @classmethod
    def open(cls, path: Path, make_with: Path | None = None, by: str | None = None) -> Self:
        """Open a ledger; if there is none and a place for its key is given, make one.

        `by` is the name of the person who writes to it, for the history.
        """
        if make_with is not None and not path.exists():
            _check_new(path, make_with)
            key = make_key(make_with)
            make_file(path, key)
            Counter(0, START).keep(key.fingerprint)
            know_at(path, key.fingerprint)
        _check_there(path)
        opened = cls(path, open_file(path), writable=True)
        return opened.written_by(by)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Open a ledger without write access, perhaps a stranger's."""
        _check_there(path)
        return cls(path, read_file(path), writable=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        if not self._writable:
            tidy(self.path)

    def written_by(self, person: str | None) -> Self:
        """Name the person who writes from now on, for the history."""
        if person is not None:
            check_person(person)
        self._by = person
        return self

    def transaction(self) -> AbstractContextManager[None]:
        """Write everything inside together or not at all."""
        return self._together(WRITE)

    def snapshot(self) -> AbstractContextManager[None]:
        """Read everything inside as of one moment."""
        return self._together("BEGIN")

    @contextmanager
    def _together(self, begin: str) -> Iterator[None]:
        if self._connection.in_transaction:
            yield
            return
        with sqlite_errors(self.path):
            self._connection.execute(begin)
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                roll_back(self._connection)
                raise
        if self._key is not None and begin == WRITE:
            self._keep_counter(self._key)

    def _keep_counter(self, key: Key) -> None:
        """Move the counter of this machine to the last entry; say so if it has one that cannot be moved."""
        if not self._head.keep_counter(key) and Counter.read(key.fingerprint) is not None:
            self.notes.append(f"{self.path}: its counter in the state folder cannot be written: {NOT_NOTICED}")

    def ask(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with sqlite_errors(self.path):
            return self._connection.execute(query, values).fetchall()

    def key(self, path: Path, new_here: bool = True) -> Key:
        """Read the key, and check the head of the history with it; refuse a key of another ledger.

        A ledger that this machine does not know gets a counter, unless `new_here` is false.
        """
        key = self._own_key(path)
        if known_at(self.path) not in (None, key.fingerprint):
            raise BrokenChain(f"{self.path}: another ledger, with another key, was here before; {RESTORE}, or {ACCEPT}")
        counter = Counter.read(key.fingerprint)  # before the ledger is read: it may only be behind
        with self.snapshot():
            self._head.check(key)
            self._head.check_counter(counter)
        self._key = key
        if not self._head.is_keyed:
            self._without_key()
        if counter is not None:
            self._keep_counter(key)
            know_at(self.path, key.fingerprint)
        elif not new_here:
            self.notes.append(f"{self.path}: unknown to this machine, so it cannot know whether this is an old copy")
        else:
            seen = "from now on it notices if an old copy is put back"
            kept = self._head.keep_counter(key)
            know_at(self.path, key.fingerprint)
            self.notes.append(f"{self.path}: new to this machine; {seen if kept else NO_COUNTER}")
        return key

    def check_signer(self, key: Key) -> None:
        """Refuse to sign what is read now with a key that another process has replaced since it was read."""
        if key.public != self.about("public_key"):
            raise UnrankError(f"{self.path}: its signing key was replaced just now: try again")

    def accept(self, path: Path) -> int | None:
        """Accept a ledger that was restored from a backup, and record it in the history.

        Return the number of the last entry that this machine had seen; `None` if the ledger still holds it.
        """
        key = self._own_key(path)
        self._head.check(key)
        counter = Counter.read(key.fingerprint)
        know_at(self.path, key.fingerprint)
        try:
            self._head.check_counter(counter)
            return None
        except BrokenChain:
            assert counter is not None
        self._key = key
        with self.transaction():
            self.write("restored", seen=astuple(counter))
        Counter(*self.head()).replace(key.fingerprint)
        return counter.number

    def _own_key(self, path: Path) -> Key:
        """Read the key; refuse one of another ledger. A ledger of an earlier version derives its signing key."""
        for _ in range(TRIES):
            finish_rotation(path, self.about("public_key"))
            key = read_key(path)
            if key.fingerprint != self.about("key"):
                raise BadFile(path, f"not the key of {self.path}: restore the right one from a backup")
            signing = key if key.seed is not None else replace(key, seed=key.derived_seed)
            if signing.public == self.about("public_key"):
                return signing
            sleep(0.02)  # another process may be replacing the signing key
        if key.seed is not None:
            raise BadFile(signing_file(path), f"not the signing key of {self.path}: restore it from a backup")
        return key

    def _without_key(self) -> None:
        """Key the history of an earlier version; without write access, only say that it is not keyed."""
        number, key = self.head()[0], self._key
        self.notes.append(f"{self.path}: entries 1 to {number} are of an earlier version, and could have been rebuilt")
        if self._writable and key is not None:
            with self.transaction():
                if not self._head.is_keyed:
                    self._head.write(key)
                    self.write("keyed", entries=number)

    def about(self, name: str) -> str:
        found = self.ask("SELECT value FROM about WHERE name = ?", [name])
        if not found:
            raise BrokenChain(f"{self.path}: its {name} is missing: the ledger was changed; {RESTORE}")
        return str(found[0][0])

    def write(self, event: str, request: int | None = None, **details: Any) -> Entry:
        """Add an entry to the history, in the transaction of the change that it records.

        It is never dated before the entry before it: if the clock is behind, the entry says what the clock said.
        """
        if self._key is None:
            raise UnrankError(f"{self.path}: only its key can write to it: read the key first")
        self._head.check(self._key)
        number, before = self.head()
        details |= {BY: self._by} if self._by is not None else {}
        now = datetime.now(UTC).isoformat(timespec="seconds")
        [[last]] = self.ask("SELECT coalesce(max(at), '') FROM history WHERE number = ?", [number])
        if now < last:
            details["clock"] = now
            self.notes.append(f"the clock says {now}, but the last entry of {self.path} is of {last}: set the clock")
        entry = Entry.after(number, before, request, max(now, last), event, details)
        self.ask("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(entry))
        self._head.write(self._key)
        return entry

    def head(self) -> tuple[int, str]:
        """Return the number and the hash of the last entry."""
        return self._head.last

    def add(
        self, items: Sequence[Item], received: date, due: date, basis: str, key: Key, leave_copies: bool = False
    ) -> Request:
        """Add a request; a run adds the copies of its items to it, unless they are to be left."""
        if not items:
            raise UnrankError("a request must name something: give a query, a document or a pair")
        with self.transaction():
            values = [received.isoformat(), due.isoformat(), basis]
            insert = "INSERT INTO request (received, due, basis, state) VALUES (?, ?, ?, 'open') RETURNING id"
            [[id]] = self.ask(insert, values)
            self._name(id, items, key)
            details: Json = dict(zip(("received", "due", "basis"), values, strict=True))
            details |= {"key": key.fingerprint, "public_key": self.about("public_key"), "normalisation": NORMALISATION}
            details |= {"copies": "left"} if leave_copies else {}
            details |= {"substitutes": number} if (number := len(substitutes_of(items))) else {}
            self.write("added", id, **details, names=counts_of(items), covers=self._rows.hash_of(id))
        return Request(id, received, due, basis, State.OPEN)

    def add_copies(self, id: int, items: Sequence[Item], key: Key) -> None:
        """Add copies of its items to an open request; refuse one that was ended meanwhile, and so erased."""
        with self.transaction():
            if (state := self.request(id).state) not in RUNNABLE:
                raise UnrankError(f"request {id} is {state} by now, and takes no copies: run again")
            self._name(id, items, key)
            self.write(COPIES, id, names=counts_of(items), covers=self._rows.hash_of(id))

    def _name(self, id: int, items: Sequence[Item], key: Key) -> None:
        """Store the items of a request, and their hashes."""
        for item in sorted(items, key=lambda item: item.kind == "pair"):  # a text that is removed itself counts as such
            row = [id, item.query, item.document, item.query_text, item.document_text, secrets.token_hex(SALT_BYTES)]
            self.ask("INSERT INTO named VALUES (?, ?, ?, ?, ?, ?)", row)
            if item.substitute is not None:
                new = [id, item.document, item.substitute, item.substitute_text or "", secrets.token_hex(SALT_BYTES)]
                self.ask("INSERT OR IGNORE INTO substitute VALUES (?, ?, ?, ?, ?)", new)
            for kind, hashed in key.hashes(item):
                self.ask("INSERT OR IGNORE INTO keyed_hash VALUES (?, ?, ?)", [hashed, id, kind])

    def leaves_copies(self, id: int) -> bool:
        """Return whether copies of what a request names are left in the collection, as its owner said."""
        return any(entry.event == "added" and entry.values.get("copies") == "left" for entry in self.history(id))

    def request(self, id: int) -> Request:
        found = self.ask(f"SELECT {COLUMNS}, {OUTCOME} FROM request WHERE id = ?", [max(-LARGEST, min(id, LARGEST))])
        if not found:
            raise UnrankError(f"{self.path}: there is no request {id}; 'unrank desk list --all' lists all requests")
        return _request(found[0])

    def requests(self, states: Sequence[State], most: int = -1) -> list[Request]:
        """Return at most `most` requests, -1 for all: first those that a run takes, each group by its due dates."""
        query = f"SELECT {COLUMNS}, {OUTCOME} FROM request WHERE state = ? ORDER BY due, id LIMIT ?"
        most = LARGEST if most < 0 else min(most, LARGEST)
        found: list[tuple[Any, ...]] = []
        for group in ([state for state in states if state in RUNNABLE], *([s] for s in states if s not in RUNNABLE)):
            rows = [self.ask(query, [state, most - len(found)]) for state in group]
            found += islice(heapq.merge(*rows, key=itemgetter(2, 0)), most - len(found))
        return [_request(row) for row in found]

    def counts(self) -> dict[State, int]:
        found = dict(self.ask("SELECT state, count(*) FROM request GROUP BY state"))
        return {state: found.get(state, 0) for state in State}

    def items(self, request: int) -> list[Item]:
        """Return the items of a request; none once it is closed."""
        rows = f"SELECT {ITEM}, substitute, substitute_text FROM named LEFT JOIN substitute USING (request, document)"
        return [Item(*row) for row in self.ask(f"{rows} WHERE request = ? ORDER BY named.rowid", [request])]

    def history(self, request: int) -> list[Entry]:
        return [Entry(*row) for row in self.ask("SELECT * FROM history WHERE request = ? ORDER BY number", [request])]

    def hashes(self, kind: HashKind, states: Sequence[State] = (*PENDING, State.CLOSED)) -> set[bytes]:
        """Return the keyed hashes of the items of requests in these states."""
        marks = ", ".join("?" * len(states))
        query = (
            f"SELECT hash FROM keyed_hash JOIN request ON request.id = request WHERE kind = ? AND state IN ({marks})"
        )
        return {row[0] for row in self.ask(query, [kind, *states])}

    def normalisations(self) -> list[Normalise]:
        """Return the ways in which texts were normalised before they were hashed: the present one first."""
        former = (
            "SELECT 1 FROM history WHERE event = 'added' AND json_extract(details, '$.normalisation') IS NULL LIMIT 1"
        )
        return [normalised, normalised_before_version_4] if self.ask(former) else [normalised]

    def move(self, id: int, state: State, **details: Any) -> None:
        """Change the state of a request, and record it in the history."""
        self.ask("UPDATE request SET state = ? WHERE id = ?", [state, id])
        self.write(str(state), id, **details, covers=self._rows.hash_of(id))

    def write_of_run(self, event: str, run: int, **details: Any) -> None:
        """Record the new state of a run in the history, after its row was changed."""
        self.write(f"run {event}", run=run, **details, covers=hash_of_rows(self.ask(f"{RUN} WHERE id = ?", [run])))

    def write_of_service(self, event: str, name: str, **details: Any) -> None:
        """Record a change of a ranker of the service in the history, after its row was changed or deleted."""
        rows = self.ask(f"{SERVICE} WHERE name = ?", [name])
        self.write(f"service {event}", service=name, **details, covers=hash_of_rows(rows) if rows else None)

    def verify(self) -> str:
        """Return the hash of the last entry; refuse a history that is broken, or that the tables contradict."""
        index = HistoryIndex()
        with self.snapshot():
            entries = (Entry(*row) for row in self._connection.execute("SELECT * FROM history ORDER BY number"))
            head = check_chain(index.follow(entries), str(self.path))
            if self._key is None:
                self.notes.append(f"{self.path}: without its key it cannot be known whether the history was rebuilt")
            else:
                self._head.check(self._key)
            if index.backward:
                self.notes.append(f"{self.path}: its dates do not run forward: {index.backward[0]}")
            for name, (value, number) in index.keys.items():
                if value != self.about(name):
                    where = f"{self.path}: its {name} is not the one in entry {number} of the history"
                    raise BrokenChain(f"{where}: it was changed outside the history; {RESTORE}")
            self._rows.compare(index)
        return head

    def verify_if_changed(self) -> None:
        """Verify, unless this connection did so before, and since then no other one has written to the ledger."""
        [[version]] = self.ask("PRAGMA data_version")  # changes when another connection writes
        if version != self._verified:
            self.verify()
            self._verified = version

    def check(self, requests: Iterable[int]) -> None:
        """Verify a few requests by their own entries; the time does not depend on the length of the history."""
        with self.snapshot():
            for id in requests:
                index = HistoryIndex()
                for entry in index.follow(self.history(id)):
                    check_entry(entry, str(self.path))
                self._rows.compare_request(index, id)


def _check_there(path: Path) -> None:
    if path.is_dir():
        raise BadFile(path, "a folder, not a ledger: name a file")
    if not path.is_file():
        raise BadFile(path, "no such ledger; 'unrank desk add' makes one")


def _check_new(path: Path, key: Path) -> None:
    """Refuse to make a ledger if its key is there: the ledger was lost, unless another process makes it now."""
    if not path.parent.is_dir():
        raise BadFile(path, f"there is no folder {path.parent}: make it first")
    check_writable(path)
    until = monotonic() + MAKING
    while key.exists() and not path.exists():
        if monotonic() > until:
            lost = f"there is no such ledger, but its key {key} is there"
            never = "if it never was made (the disk was full, say), or to make a new one, move the key away"
            raise BadFile(path, f"{lost}: {RESTORE}; {never}")
        sleep(0.05)


def _request(row: tuple[Any, ...]) -> Request:
    id, received, due, basis, state, run, outcome = row
    try:
        dates = date.fromisoformat(received), date.fromisoformat(due)
        return Request(id, *dates, basis, State(state), run, State(outcome) if outcome else None)
    except ValueError as error:
        raise BrokenChain(f"request {id} was changed outside its history: {error}") from error
