"""The SQLite file of a ledger: how it is made, and opened to write to it or only to read it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Literal

from unrank.desk.history_index import RESTORE, START, BrokenChain
from unrank.desk.key import Key
from unrank.desk.schema import VERSION, made_schema, migrate, schema_in
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
WHY = {
    "SQLITE_FULL": "the disk is full: free some space and try again",
    "SQLITE_IOERR_SHMSIZE": "its log cannot be opened, perhaps because the disk is full",
    "SQLITE_IOERR_WRITE": "it cannot be written, perhaps because the disk is full",
    "SQLITE_INTERRUPT": "reading it takes too long",
    "SQLITE_READONLY": "this file or its folder cannot be written to",
    "SQLITE_READONLY_DIRECTORY": "its folder cannot be written to",
    "SQLITE_CANTOPEN": "this file or its folder cannot be opened, or not for writing",
}
"""Errors of SQLite in words."""


def open_file(path: Path) -> sqlite3.Connection:
    """Open a ledger for writing, and bring it to the present version."""
    with sqlite_errors(path):
        connection = _connect(path)
        try:
            _check_file(path, connection)
            migrate(connection)
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
                migrate(connection)
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
    try:
        with sqlite_errors(path), closing(_connect(partial)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            migrate(connection)
            about = {"key": key.fingerprint, "public_key": key.public, "unscrubbed": "0", "head": key.of_head(0, START)}
            connection.executemany("INSERT INTO about VALUES (?, ?)", about.items())
        path.hardlink_to(partial)
    except FileExistsError:
        pass
    finally:
        for end in ("", "-wal", "-shm", "-journal"):
            partial.with_name(partial.name + end).unlink(missing_ok=True)


def tidy(path: Path) -> None:
    """Delete the empty log that a reader leaves: SQLite does it when the last connection with write access closes."""
    log = path.with_name(f"{path.name}-wal")
    with suppress(FileNotFoundError, sqlite3.Error):  # it may be deleted meanwhile
        if not log.stat().st_size:
            _connect(path).close()


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Report an error of SQLite in one line."""
    try:
        yield
    except (sqlite3.Error, OverflowError) as error:
        why = WHY.get(getattr(error, "sqlite_errorname", ""), str(error))
        raise BadFile(path, f"the ledger cannot be used: {why}") from error


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
    try:
        for pragma in ("foreign_keys = ON", "secure_delete = ON", "temp_store = MEMORY", "trusted_schema = OFF"):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("SELECT count(*) FROM sqlite_master")  # reads the file
    except UnicodeDecodeError as error:  # SQLite's own message quotes the file
        raise sqlite3.DatabaseError(f"it is damaged; {RESTORE}") from error


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
    expected, found = made_schema(version), schema_in(connection)
    if strange := sorted(found.items() ^ expected.items()):
        (kind, name), _ = strange[0]
        raise BrokenChain(f"{path}: its {kind} {name!r} is missing, or not the one that unrank makes; {RESTORE}")
    return int(version)
