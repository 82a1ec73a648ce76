"""pgvector: an index in a table of PostgreSQL.

The connection is that of libpq: `PGHOST`, `PGUSER`, `PGDATABASE`, `PGSERVICE` and the password file, so that no secret
is on the command line. The table `unrank_index` holds the facts of each index. The points of an index are in the table
of its name, those that are put aside in the table with `_aside` after it. A search compares all vectors, unless the
owner of the table gives it an index of pgvector.
"""

from __future__ import annotations

import re
from collections.abc import Collection as Some
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np

from unrank.errors import UnrankError
from unrank.index.store import Header, Hit, Points, Store, Vectors, missing_extra
from unrank.parse import WrongValue, parse

BLOCK = 4_096
NAME = re.compile(r"[a-z_][a-z0-9_]{0,47}")
FACTS = "unrank_index"
OPERATORS = {"dot": "<#>", "euclidean": "<->"}
"""The distances of pgvector, each the less the nearer; the first is the negative dot product."""


class PgvectorStore(Store):
    """An index in a table."""

    def __init__(self, place: str) -> None:
        if not NAME.fullmatch(place) or place == FACTS:
            raise UnrankError(f"pgvector:{place}: the name of a table has small letters, digits and _ only, at most 48")
        self.table, self.aside = place, f"{place}_aside"
        self.name = f"pgvector:{place}"

    @cached_property
    def _connection(self) -> Any:
        """The connection to the database that libpq's variables name, with its tables made."""
        psycopg, register_vector = _packages()
        try:
            connection = psycopg.connect("", autocommit=True, application_name="unrank")
            connection.execute("SET client_min_messages = warning")
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute(f"CREATE TABLE IF NOT EXISTS {FACTS} (name text PRIMARY KEY, facts jsonb NOT NULL)")
            register_vector(connection)
        except psycopg.Error as error:
            raise UnrankError(f"{self.name}: {error}; set PGHOST, PGUSER and PGDATABASE as for psql") from error
        return connection

    def _run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows. It is made of names that were checked, and of operators."""
        psycopg, _ = _packages()
        try:
            done = self._connection.execute(statement.encode(), values)
            return done.fetchall() if done.description else []
        except psycopg.Error as error:
            raise UnrankError(f"{self.name}: {error}") from error

    @contextmanager
    def writing(self) -> Iterator[None]:
        if not self._run("SELECT pg_try_advisory_lock(hashtext(%s))", f"unrank {self.table}")[0][0]:
            raise UnrankError(f"another job is at work on {self.name}: wait for it, or stop it")
        try:
            yield
        finally:
            self._run("SELECT pg_advisory_unlock(hashtext(%s))", f"unrank {self.table}")

    def _exists(self, table: str) -> bool:
        return bool(self._run("SELECT to_regclass(%s) IS NOT NULL", table)[0][0])

    def header(self) -> Header | None:
        found = self._run(f"SELECT facts FROM {FACTS} WHERE name = %s", self.table)
        if not found or not self._exists(self.table):
            return None
        try:
            header: Header = parse(Header, found[0][0])
        except WrongValue as error:
            raise UnrankError(f"{self.name}: damaged: {error}; build the index again") from error
        return header

    def points(self) -> Points:
        return self._points(self.table)

    def put_aside(self) -> Points:
        return self._points(self.aside)

    def _points(self, table: str) -> Points:
        rows = self._run(f"SELECT id, text, model FROM {table} ORDER BY place") if self._exists(table) else []
        return Points(*map(list, zip(*rows, strict=True))) if rows else Points()

    def put(self, header: Header, points: Points, vectors: Vectors) -> None:
        psycopg, _ = _packages()
        try:
            with self._connection.transaction():
                self._make(self.aside, header.width)
                columns = f"COPY {self.aside} (id, text, model, vector) FROM STDIN WITH (FORMAT BINARY)"
                with self._connection.cursor() as cursor, cursor.copy(columns.encode()) as copy:
                    copy.set_types(["text", "text", "text", "vector"])
                    for row in zip(points.ids, points.texts, points.models, vectors, strict=True):
                        copy.write_row(row)
        except psycopg.Error as error:
            raise UnrankError(f"{self.name}: {error}") from error

    def _make(self, table: str, width: int) -> None:
        """Make a table of points. One that is put aside gets the indexes that the current one has."""
        if self._exists(table):
            return
        if table == self.aside and self._width(self.table) == width:
            self._run(f"CREATE TABLE {table} (LIKE {self.table} INCLUDING ALL)")
        else:
            self._run(
                f"CREATE TABLE {table} (place bigint GENERATED ALWAYS AS IDENTITY, id text PRIMARY KEY, "
                f"text text NOT NULL, model text NOT NULL, vector vector({int(width)}) NOT NULL)"
            )

    def _width(self, table: str) -> int | None:
        """Return the width of a table's vectors; `None` if there is no such table."""
        column = "SELECT atttypmod FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = 'vector'"
        found = self._run(column, table)
        return int(found[0][0]) if found else None

    def drop(self, ids: Some[str]) -> None:
        if self._exists(self.aside):
            self._run(f"DELETE FROM {self.aside} WHERE id = ANY(%s)", list(ids))
            if not self._run(f"SELECT 1 FROM {self.aside} LIMIT 1"):
                self._run(f"DROP TABLE {self.aside}")

    def delete(self, ids: Some[str]) -> None:
        if ids and self._exists(self.table):
            self._run(f"DELETE FROM {self.table} WHERE id = ANY(%s)", list(ids))
            self._run(f"VACUUM {self.table}")

    def switch(self, header: Header, keep: bool) -> None:
        with self._connection.transaction():
            self._make(self.aside, header.width)
            if keep and self._exists(self.table):
                self._run(f"DELETE FROM {self.table} WHERE id IN (SELECT id FROM {self.aside})")
                chosen = f"SELECT id, text, model, vector FROM {self.aside} ORDER BY place"
                self._run(f"INSERT INTO {self.table} (id, text, model, vector) {chosen}")
                self._run(f"DROP TABLE {self.aside}")
            else:
                self._run(f"DROP TABLE IF EXISTS {self.table}")
                self._run(f"ALTER TABLE {self.aside} RENAME TO {self.table}")
            again = "ON CONFLICT (name) DO UPDATE SET facts = EXCLUDED.facts"
            self._run(f"INSERT INTO {FACTS} VALUES (%s, %s) {again}", self.table, _jsonb(asdict(header)))
        self._run(f"VACUUM {self.table}")

    def blocks(self) -> Iterator[tuple[Sequence[str], Vectors]]:
        if not self._exists(self.table):
            return
        with self._connection.transaction(), self._connection.cursor("unrank_blocks", binary=True) as cursor:
            cursor.execute(f"SELECT id, vector FROM {self.table} ORDER BY place".encode())
            while rows := cursor.fetchmany(BLOCK):
                yield [id for id, _ in rows], np.stack([_numbers(vector) for _, vector in rows])

    def search(self, queries: Vectors, most: int) -> list[list[Hit]]:
        header = self.header()
        if header is None:
            return [[] for _ in queries]
        distance = f"vector {OPERATORS[header.similarity]} %s"
        statement = f"SELECT id, {distance} FROM {self.table} ORDER BY {distance} LIMIT %s"
        return [
            [Hit(id, -float(far)) for id, far in self._run(statement, query, query, most)]
            for query in np.asarray(queries, np.float32)
        ]


def _packages() -> tuple[Any, Any]:
    """Return psycopg, and the function that makes a connection read and write vectors."""
    try:
        import psycopg
        from pgvector.psycopg import register_vector
    except ImportError as error:
        raise missing_extra("psycopg or pgvector", "pgvector") from error
    return psycopg, register_vector


def _numbers(vector: Any) -> Vectors:
    """Return a vector as numbers; releases of pgvector's package differ in what they give."""
    return np.asarray(vector.to_numpy() if hasattr(vector, "to_numpy") else vector, np.float32)


def _jsonb(value: object) -> Any:
    from psycopg.types.json import Jsonb

    return Jsonb(value)
