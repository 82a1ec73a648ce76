"""The tables of a ledger, and how a ledger of an earlier version becomes one of the present version.

`MIGRATIONS[n]` leads from version n to n + 1. A published version is never changed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from functools import cache

QUOTE = '"'

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

ADAPTERS = """
CREATE TABLE new_request (
    id INTEGER PRIMARY KEY,
    received TEXT NOT NULL,
    due TEXT NOT NULL,
    basis TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN (
        'open', 'not forgotten', 'forgotten while the adapter is on', 'forgotten, not verifiable',
        'forgotten, weights not cleared', 'forgotten', 'nothing to forget', 'fulfilled', 'closed', 'withdrawn',
        'refused'
    )),
    run INTEGER REFERENCES run
) STRICT;
INSERT INTO new_request SELECT id, received, due, basis, state, run FROM request;
DROP TABLE request;
ALTER TABLE new_request RENAME TO request;
CREATE INDEX request_by_state ON request (state, due);
"""
"""One more state of a request: a run wrote an adapter apart."""

SUBSTITUTES = """
CREATE TABLE substitute (
    request INTEGER NOT NULL REFERENCES request,
    document TEXT NOT NULL,
    substitute TEXT NOT NULL,
    substitute_text TEXT NOT NULL,
    salt TEXT NOT NULL,
    PRIMARY KEY (request, document)
) STRICT, WITHOUT ROWID;
"""
"""The documents that take the place of those that pending requests name."""

MIGRATIONS = (TABLES, INDEXES, COVERED, STATES, ADAPTERS, SUBSTITUTES)
VERSION = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection) -> None:
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


def schema_in(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """Return the definition of everything in a file. How it quotes names depends on the version of SQLite."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
    return {
        (kind, name): f"{table}: {' '.join((sql or '').replace(QUOTE, '').split())}" for kind, name, table, sql in rows
    }


@cache
def made_schema(version: int) -> Mapping[tuple[str, str], str]:
    """Return the definitions that our migrations produce."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript("".join(MIGRATIONS[:version]))
        return schema_in(connection)
    finally:
        connection.close()


def roll_back(connection: sqlite3.Connection) -> None:
    """Undo a transaction. After some errors, a full disk among them, SQLite has already done so itself."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _statements(script: str) -> Iterator[str]:
    """Yield one statement at a time: `executescript` would end the transaction."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
