"""The file of a ledger: made whole, opened, and brought to the present version."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unrank.desk.key import Key
from unrank.desk.schema import APPLICATION, MIGRATIONS, VERSION
from unrank.errors import BadFile

WAIT = 60.0
"""Seconds to wait for another process to finish writing."""


def open_file(path: Path) -> sqlite3.Connection:
    with told(path):
        connection = _connect(path)
        try:
            _check_version(path, connection)
            _migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection


def make_file(path: Path, key: Key) -> None:
    """Make an empty ledger beside its place and link it there: of several processes one succeeds."""
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_CREAT, 0o600))  # SQLite gives the files beside it the same mode
    with told(path):
        connection = _connect(partial)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        _migrate(connection)
        about = {"key": key.fingerprint, "public_key": key.public, "unscrubbed": "0"}
        connection.executemany("INSERT INTO about VALUES (?, ?)", about.items())
        connection.close()
    try:
        path.hardlink_to(partial)
    except FileExistsError:
        pass
    finally:
        partial.unlink()


@contextmanager
def told(path: Path) -> Iterator[None]:
    """What SQLite cannot do, in one line."""
    try:
        yield
    except (sqlite3.Error, OverflowError) as error:
        hint = "; even to be read it needs write access, to its folder too" if "readonly" in str(error) else ""
        raise BadFile(path, f"the ledger cannot be used: {error}{hint}") from error


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=WAIT, isolation_level=None)
    # What is deleted is overwritten, and no copy of the data ever goes to a temporary file.
    for pragma in ("foreign_keys = ON", "secure_delete = ON", "temp_store = MEMORY"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _check_version(path: Path, connection: sqlite3.Connection) -> None:
    [[application]], [[version]] = (
        connection.execute(f"PRAGMA {name}").fetchall() for name in ("application_id", "user_version")
    )
    if application != APPLICATION:
        raise BadFile(path, "not a ledger that unrank made")
    if version > VERSION:
        raise BadFile(path, f"a ledger of version {version}; this unrank knows versions up to {VERSION}: update unrank")


def _migrate(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA user_version").fetchone()[0] == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        [version] = connection.execute("PRAGMA user_version").fetchone()
        for script in MIGRATIONS[version:]:
            for statement in _statements(script):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _statements(script: str) -> Iterator[str]:
    """One at a time: `executescript` would end the transaction."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
