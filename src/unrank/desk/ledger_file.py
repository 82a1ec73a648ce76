"""The SQLite file of a ledger: its tables, and how it is made, opened and migrated.

`MIGRATIONS[n]` leads from version n to n + 1. A published version is never changed.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Literal

from unrank.desk.history_index import RESTORE, START, BrokenChain
from unrank.desk.key import Key
from unrank.errors import BadFile

WAIT = 60.0
"""Seconds to wait while another process writes."""
APPLICATION = 0x756E726B
"""The application id of a ledger; other SQLite files have another one."""
READ_SECONDS = 600.0
"""The longest time that a reader has a ledger open."""
STEPS = 100_000
"""How often that is checked, in steps of SQLite."""
LONGEST = 1 << 28
"""The most bytes of one value that a reader accepts."""
QUOTE = '"'
WHY = {
    "SQLITE_FULL": "the disk is full: free some space and try again",
    "SQLITE_INTERRUPT": "reading it takes too long",
    "SQLITE_READONLY": "this file or its folder cannot be written to",
    "SQLITE_READONLY_DIRECTORY": "its folder cannot be written to",
    "SQLITE_CANTOPEN": "this file or its folder cannot be opened, or not for writing",
}
"""Errors of SQLite in words."""

TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('begun', 'passed', 'failed', 'abandoned')),
    out TEXT NOT NULL,
    asked TEXT NOT NULL,
    result TEXT
) STRICT;
CREATE TABLE request (
    id INTEGER PRIMARY KEY,
    received TEXT NOT NULL,
    due TEXT NOT NULL,
    basis TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'fulfilled', 'closed', 'withdrawn', 'refused')),
    run INTEGER REFERENCES run
) STRICT;
CREATE TABLE named (
    request INTEGER NOT NULL REFERENCES request,
    query TEXT,
    document TEXT,
    query_text TEXT,
    document_text TEXT,
    CHECK (query IS NOT NULL OR document IS NOT NULL)
) STRICT;
CREATE TABLE keyed_hash (
    hash BLOB NOT NULL,
    request INTEGER NOT NULL REFERENCES request,
    kind TEXT NOT NULL CHECK (kind IN ('query', 'document', 'pair', 'in pair')),
    PRIMARY KEY (hash, request)
) STRICT, WITHOUT ROWID;
CREATE TABLE history (
    number INTEGER PRIMARY KEY,
    request INTEGER REFERENCES request,
    at TEXT NOT NULL,
    event TEXT NOT NULL,
    details TEXT NOT NULL,
    before TEXT NOT NULL,
    hash TEXT NOT NULL
) STRICT;
CREATE TRIGGER history_is_not_changed BEFORE UPDATE ON history
BEGIN SELECT RAISE(ABORT, 'history is only added to'); END;
CREATE TRIGGER history_is_not_deleted BEFORE DELETE ON history
BEGIN SELECT RAISE(ABORT, 'history is only added to'); END;
"""

INDEXES = """
CREATE INDEX request_by_state ON request (state, due);
CREATE INDEX named_by_request ON named (request);
CREATE INDEX keyed_hash_by_request ON keyed_hash (request);
CREATE INDEX history_by_request ON history (request);
"""

COVERED = """
ALTER TABLE named ADD COLUMN salt TEXT;
DROP INDEX keyed_hash_by_request;
CREATE INDEX keyed_hash_by_request ON keyed_hash (request, hash, kind);
"""
"""The history covers the items of a request. The salt is erased with them: then nobody can test a guess."""

STATES = """
CREATE TABLE new_request (
    id INTEGER PRIMARY KEY,
    received TEXT NOT NULL,
    due TEXT NOT NULL,
    basis TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN (
        'open', 'not forgotten', 'forgotten, not verifiable', 'forgotten, weights not cleared', 'forgotten',
        'nothing to forget', 'fulfilled', 'closed', 'withdrawn', 'refused'
    )),
    run INTEGER REFERENCES run
) STRICT;
INSERT INTO new_request SELECT id, received, due, basis, state, run FROM request;
DROP TABLE request;
ALTER TABLE new_request RENAME TO request;
CREATE INDEX request_by_state ON request (state, due);
CREATE TABLE service_ranker (
    name TEXT PRIMARY KEY,
    role TEXT NOT NULL CHECK (role IN ('retriever', 'reranker')),
    ranker TEXT NOT NULL,
    collection TEXT NOT NULL,
    indexes TEXT NOT NULL,
    since TEXT,
    run INTEGER REFERENCES run,
    before TEXT
) STRICT;
CREATE TABLE state_by_ranker (
    request INTEGER NOT NULL REFERENCES request,
    ranker TEXT NOT NULL,
    state TEXT NOT NULL,
    run INTEGER REFERENCES run,
    PRIMARY KEY (request, ranker)
) STRICT, WITHOUT ROWID;
"""
"""More states of a request (SQLite cannot change a CHECK, so the table is made anew), and the rankers of a service."""

MIGRATIONS = (TABLES, INDEXES, COVERED, STATES)
VERSION = len(MIGRATIONS)


def open_file(path: Path) -> sqlite3.Connection:
    """Open a ledger for writing, and bring it to the present version."""
    with sqlite_errors(path):
        connection = _connect(path)
        try:
            _check_file(path, connection)
            _migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def read_file(path: Path) -> sqlite3.Connection:
    """Open a ledger without write access. One of an older version is copied into memory and migrated there."""
    with sqlite_errors(path):
        connection = _connect(path, mode="ro")
        try:
            _limit(connection)
            version = _check_file(path, connection)
            if version < VERSION:
                copy = sqlite3.connect(":memory:", isolation_level=None)
                connection.backup(copy)
                connection.close()
                connection = copy
                _limit(connection)
                _migrate(connection)
            connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            tidy(path)
            raise
        return connection


def make_file(path: Path, key: Key) -> None:
    """Make an empty ledger in a temporary file and link it to its place. Of several processes one succeeds."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_CREAT, 0o600))  # SQLite gives its other files the same mode
    with sqlite_errors(path):
        connection = _connect(partial)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        _migrate(connection)
        about = {"key": key.fingerprint, "public_key": key.public, "unscrubbed": "0", "head": key.of_head(0, START)}
        connection.executemany("INSERT INTO about VALUES (?, ?)", about.items())
        connection.close()
    try:
        path.hardlink_to(partial)
    except FileExistsError:
        pass
    finally:
        partial.unlink()


def tidy(path: Path) -> None:
    """Delete the empty log that a reader leaves: SQLite does it when the last connection with write access closes."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and not log.stat().st_size:
        with suppress(sqlite3.Error):
            _connect(path).close()


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Report an error of SQLite in one line."""
    try:
        yield
    except (sqlite3.Error, OverflowError) as error:
        why = WHY.get(getattr(error, "sqlite_errorname", ""), str(error))
        raise BadFile(path, f"the ledger cannot be used: {why}") from error


def roll_back(connection: sqlite3.Connection) -> None:
    """Undo a transaction. After some errors, a full disk among them, SQLite has already done so itself."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _connect(path: Path, mode: Literal["rw", "ro"] = "rw") -> sqlite3.Connection:
    address = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(address, timeout=WAIT, isolation_level=None, uri=True)
    try:
        _set(connection)
    except sqlite3.OperationalError:
        connection.close()
        if mode == "rw" or path.with_name(f"{path.name}-wal").exists():
            raise
        # In a folder that cannot be written to there is no place for the log, so nobody can be writing.
        connection = sqlite3.connect(f"{address}&immutable=1", isolation_level=None, uri=True)
        _set(connection)
    return connection


def _set(connection: sqlite3.Connection) -> None:
    # Deleted data is overwritten, and no copy of the data goes to a temporary file. No schema can call functions.
    for pragma in ("foreign_keys = ON", "secure_delete = ON", "temp_store = MEMORY", "trusted_schema = OFF"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("SELECT count(*) FROM sqlite_master")  # reads the file


def _limit(connection: sqlite3.Connection) -> None:
    """Limit the time of a reader, and the size of a value: the file may be a stranger's."""
    until = monotonic() + READ_SECONDS
    connection.set_progress_handler(lambda: monotonic() > until, STEPS)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)


def _check_file(path: Path, connection: sqlite3.Connection) -> int:
    """Return the version of a ledger; refuse a file whose tables, indexes and triggers are not exactly ours."""
    [[application]], [[version]] = (
        connection.execute(f"PRAGMA {name}").fetchall() for name in ("application_id", "user_version")
    )
    if application != APPLICATION:
        raise BadFile(path, "not a ledger that unrank made")
    if version > VERSION:
        raise BadFile(path, f"a ledger of version {version}; this unrank knows versions up to {VERSION}: update unrank")
    expected, found = _schema_of(version), _schema(connection)
    if strange := sorted(found.items() ^ expected.items()):
        (kind, name), _ = strange[0]
        raise BrokenChain(f"{path}: its {kind} {name!r} is missing, or not the one that unrank makes; {RESTORE}")
    return int(version)


def _schema(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """Return the definition of everything in a file. How it quotes names depends on the version of SQLite."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    return {
        (kind, name): f"{table}: {' '.join((sql or '').replace(QUOTE, '').split())}" for kind, name, table, sql in rows
    }


def _schema_of(version: int) -> dict[tuple[str, str], str]:
    """Return the definitions that our migrations produce."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript("".join(MIGRATIONS[:version]))
        return _schema(connection)
    finally:
        connection.close()


def _migrate(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA user_version").fetchone()[0] == VERSION:
        return
    connection.execute("PRAGMA foreign_keys = OFF")  # a table that others refer to is made anew
    connection.execute("BEGIN IMMEDIATE")
    try:
        [version] = connection.execute("PRAGMA user_version").fetchone()
        for script in MIGRATIONS[version:]:
            for statement in _statements(script):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise
    connection.execute("PRAGMA foreign_keys = ON")


def _statements(script: str) -> Iterator[str]:
    """Yield one statement at a time: `executescript` would end the transaction."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
