"""How a ledger lies in SQLite, and how an older one becomes a newer one.

`MIGRATIONS[n]` leads from version n to n + 1; a version is never changed once it was published.
"""

from __future__ import annotations

APPLICATION = 0x756E726B
"""By which a ledger is told from any other SQLite file."""

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
"""The history covers what a request names. The salt goes with it, so that nobody can test a guess by the history."""

MIGRATIONS = (TABLES, INDEXES, COVERED)
VERSION = len(MIGRATIONS)
