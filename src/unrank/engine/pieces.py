"""Tables that are made in pieces, by any number of workers that share nothing but a folder.

A piece is made by itself, so its bits do not depend on which worker makes it, or when. Pieces are written whole or not
at all: a stopped worker continues with those that are missing. Once all are there, they become one Arrow file, in the
order of their names. In memory there is one piece at a time.

Every Arrow file bears a digest of what its table depends on. A file without it is refused as a table or a piece, and
is not deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from logging import CRITICAL, getLogger
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import pyarrow as pa

from unrank.disk import check_regular, flush, read_json, replace_json
from unrank.engine.runtime import Progress, Silence
from unrank.errors import BadFile, UnrankError, count

MARK = b"unrank"
"""The key of the digest in an Arrow file."""


class Table(Protocol):
    """A table that can be made in pieces."""

    @property
    def name(self) -> str:
        """What its rows are, such as `vectors`, in its file's name and in messages."""

    @property
    def pieces(self) -> int:
        """The number of its pieces."""

    def manifest(self) -> Mapping[str, object]:
        """Return what the table depends on, as JSON. Every worker must find the same."""

    def make(self, piece: int) -> pa.RecordBatch:
        """Return a piece."""


class Job(Protocol):
    """What a worker elsewhere needs to open a table. It is sent by pickle."""

    def open(self, progress: Progress) -> Pieces:
        """Open the table, and the folder of its pieces."""


@dataclass(frozen=True)
class Made:
    """What a worker did, in numbers of pieces."""

    pieces: int
    """Of the whole table."""
    made: int
    missing: int
    """Pieces of other workers that are not there yet."""

    def in_words(self, what: str, file: Path) -> str:
        """Return it in one line."""
        made = f"{count(self.made, 'piece')} made of {self.pieces:,}"
        if self.missing:
            return f"{made}; {self.missing:,} of other workers are missing in {file.parent}"
        return f"{made}; all {what} are in {file}"


@dataclass(frozen=True)
class Pieces:
    """A table in a folder."""

    out: Path
    table: Table

    @property
    def file(self) -> Path:
        return self.out / f"{self.table.name}.arrow"

    @property
    def folder(self) -> Path:
        """The folder of the pieces until they are joined."""
        return self.out / f"pieces-{self.table.name}"

    @cached_property
    def _manifest(self) -> Mapping[str, object]:
        return self.table.manifest()

    @cached_property
    def _mark(self) -> bytes:
        facts = json.dumps([self.table.name, self._manifest], sort_keys=True)
        return hashlib.sha256(facts.encode()).hexdigest()[:32].encode()

    def run(self, number: int, of: int, progress: Progress) -> Made:
        """Make the pieces of one shard that are missing; join all pieces if those were the last."""
        self._begin()
        if self._is_done():
            return Made(self.table.pieces, 0, 0)
        own = [piece for piece in range(self.table.pieces) if piece % of == number - 1]
        progress.begin(f"making pieces of {self.table.name}", len(own))
        made = 0
        for done, piece in enumerate(own, 1):
            made += self.make(piece)
            progress.advance(1)
            progress.done(done / len(own))
        return self._end(made, progress)

    def run_on_ray(self, job: Job, workers: int, resources: Mapping[str, object], progress: Progress) -> Made:
        """Let workers in a Ray cluster make the pieces that are missing, and join them."""
        self._begin()
        if self._is_done():
            return Made(self.table.pieces, 0, 0)
        missing = self._missing()
        if missing:
            progress.begin(f"making pieces of {self.table.name}", len(missing))
            _on_ray(missing, job, workers, resources)
        return self._end(len(missing), progress)

    def make(self, piece: int) -> bool:
        """Write a piece if it is missing; return whether it was."""
        if self.file.exists() or self._is_made(piece):
            return False
        batch = self.table.make(piece).replace_schema_metadata({MARK: self._mark})
        try:
            _write(self._path(piece), iter([batch]))
        except FileNotFoundError:
            if not self.file.exists():
                raise
            return False  # other workers made it too, and joined all pieces
        return True

    def read(self) -> pa.Table:
        """Return the whole table, without reading it."""
        with _reading(self.file):
            return self._open(self.file).read_all()

    def _open(self, path: Path) -> Any:
        """Open a file of this table, without reading it; refuse any other."""
        with _reading(path):
            check_regular(path)
            reader = pa.ipc.open_file(pa.memory_map(str(path)))
        if (reader.schema.metadata or {}).get(MARK) != self._mark:
            raise BadFile(path, f"not made as {self._json.name} says; move it elsewhere, and run this again")
        return reader

    @property
    def _json(self) -> Path:
        return self.out / f"{self.table.name}.json"

    def _begin(self) -> None:
        """Write the manifest, or compare it with the one that is there."""
        path, manifest = self._json, self._manifest
        left = self.file.exists() or any(self._path(piece).exists() for piece in range(self.table.pieces))
        if not path.exists():
            if left:  # looked for before the manifest, which workers write first
                raise UnrankError(
                    f"{self.out} holds {self.table.name} without the {path.name} that says how they were made: "
                    "put it back, or choose another folder"
                )
            self._make_folder()
            replace_json(path, manifest)
        found = read_json(path)
        if not isinstance(found, dict):
            raise BadFile(path, "damaged: not a JSON object; choose another folder")
        if differ := [name for name, value in manifest.items() if found.get(name) != value]:
            raise UnrankError(
                f"{self.out} holds {self.table.name} that were made otherwise: {', '.join(differ)} differ; "
                "choose another folder"
            )
        if not self.file.exists():
            self._make_folder()

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnrankError(f"cannot write to {self.folder}: {error.strerror}") from error

    def _is_done(self) -> bool:
        """Return whether the table is there, and sweep if it is. A table that cannot be opened is refused."""
        try:
            self.read()
        except FileNotFoundError:
            return False
        self._sweep()
        return True

    def _sweep(self) -> None:
        """Delete the pieces, and what killed workers left half written. All other files stay."""
        for path in map(self._path, range(self.table.pieces)):
            with suppress(OSError, UnrankError):
                self._open(path)
                path.unlink()
        partial = re.compile(rf"\.({re.escape(self.table.name)}|[0-9]{{8,}})\.arrow\.[0-9a-f]{{12}}")
        for folder in (self.out, self.folder):
            with suppress(OSError):
                for path in [*folder.iterdir()]:
                    if partial.fullmatch(path.name):
                        path.unlink()
        with suppress(OSError):  # not there, or not empty
            self.folder.rmdir()

    def _is_made(self, piece: int) -> bool:
        """Return whether a piece is there; refuse one that is not of this table."""
        try:
            self._open(self._path(piece))
        except FileNotFoundError:
            return False
        return True

    def _missing(self) -> list[int]:
        return [piece for piece in range(self.table.pieces) if not self._is_made(piece)]

    def _path(self, piece: int) -> Path:
        return self.folder / f"{piece:08}.arrow"

    def _end(self, made: int, progress: Progress) -> Made:
        """Join all pieces if none is missing."""
        missing = len(self._missing())
        if not missing:
            progress.begin("joining the pieces", 0)
            self._join()
        return Made(self.table.pieces, made, 0 if self._is_done() else missing)

    def _join(self) -> None:
        """Write all pieces to one file."""
        pieces = (self._open(self._path(piece)).get_batch(0) for piece in range(self.table.pieces))
        try:
            _write(self.file, pieces)
        except (OSError, pa.ArrowException) as error:
            if not self.file.exists():  # no other worker was quicker
                raise UnrankError(f"{self.folder}: the pieces cannot be joined: {error}") from error


class _Worker:
    """A worker in a Ray cluster."""

    def __init__(self, folder: Path, job: Job) -> None:
        os.chdir(folder)
        self._pieces = job.open(Silence())

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        for piece in batch["item"]:
            self._pieces.make(int(piece))
        return batch


BLOCKS = 16
"""The parts for each worker into which the pieces are divided. Ray gives a worker one at a time."""


def _on_ray(pieces: list[int], job: Job, workers: int, resources: Mapping[str, object]) -> None:
    """Make pieces with Ray Data, on the cluster that RAY_ADDRESS names or that runs here, else on this machine."""
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # a failure is said in one line, below
    try:
        ray, data = import_module("ray"), import_module("ray.data")
    except ImportError as error:
        raise UnrankError(f"--on ray needs {error.name}: pip install 'unrank[ray]'") from error
    getLogger("ray.data").setLevel(CRITICAL)
    try:
        ray.init(ignore_reinit_error=True, log_to_driver=False, logging_level="ERROR")
        data.DataContext.get_current().enable_progress_bars = False
        workers = min(workers, len(pieces))
        rows = data.from_items(pieces, override_num_blocks=min(len(pieces), BLOCKS * workers))
        pool = data.ActorPoolStrategy(size=workers)
        given = {"fn_constructor_args": (Path.cwd(), job), "batch_size": 1, "compute": pool, **resources}
        rows.map_batches(_Worker, **given).materialize()
    except Exception as error:  # Ray raises many kinds
        raise UnrankError(f"a worker of Ray failed: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """Return the last line of an error that may hold a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Say in one line that a file cannot be read. A file that is not there raises FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise BadFile(path, f"cannot be read: {error}; if it is damaged, delete it and run this again") from error


def _write(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    """Write batches as they come, whole or not at all."""
    partial = path.with_name(f".{path.name}.{uuid4().hex[:12]}")
    try:
        first = next(batches)
        with pa.OSFile(str(partial), "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
            writer.write_batch(first)
            for batch in batches:
                writer.write_batch(batch)
        flush(partial)
        partial.replace(path)
        flush(path.parent)
    finally:
        partial.unlink(missing_ok=True)
