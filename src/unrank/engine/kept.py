"""The kept state: what every request on a collection needs again, in the owner's state folder.

It is a cache with a folder for each collection: tokens, scores of rankers that do not change and, of dual encoders, the
vectors of texts and the states of frozen layers. `unrank proxies` begins it; a request uses it and adds to it. What a
request removes is left out of what it adds, and erased from the rest when it has run, and again when it is closed. It
never ships with a ranker.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unrank.collection.collection import Collection, open_collection
from unrank.collection.removal import Removal
from unrank.collection.texts import Rows, Texts
from unrank.disk import read_json, replace_json, several_processes
from unrank.engine.checkpoint import ENDING, Arrays, Cache
from unrank.errors import UnrankError
from unrank.owner import KEPT, kept_folders, state_folder

ABOUT = "about.json"
MOST_BYTES = 4 << 30
"""The most bytes that are kept of a collection. The files that were not used for longest go first."""
BY_TOKEN = ("ids", "states")
"""The arrays with a row for each token of a text."""
NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True)
class NamedRows:
    """The rows of a collection that a removal names."""

    documents: int
    """The number of documents in the collection, by which the keys of pairs are read."""
    query: Rows = field(default_factory=NO_ROWS.copy)
    document: Rows = field(default_factory=NO_ROWS.copy)
    pairs: Rows = field(default_factory=NO_ROWS.copy)
    """The keys of single pairs."""

    @classmethod
    def of(cls, collection: Collection, removal: Removal) -> NamedRows:
        """Find what a removal names in a collection, as far as it is there."""
        queries, documents = collection.queries, collection.documents
        both = (
            _rows(queries, [pair[0] for pair in removal.pairs]),
            _rows(documents, [pair[1] for pair in removal.pairs]),
        )
        pairs = np.stack(both, axis=1)
        keys = collection.pair_keys(pairs[(pairs >= 0).all(1)])
        named = [_rows(queries, removal.queries), _rows(documents, removal.documents)]
        query, document = (rows[rows >= 0] for rows in named)
        return cls(len(documents), query, document, keys)

    def others(self, name: str, index: Arrays) -> NDArray[np.bool_]:
        """Mark what a kept file has besides these rows; `index` has its `rows` or, of scores, its `keys`."""
        kind, _, rest = name.partition("-")
        if kind != "scores":
            return ~np.isin(index["rows"], getattr(self, rest.partition("-")[0]))
        queries, documents = np.divmod(index["keys"], self.documents)
        named = np.isin(queries, self.query) | np.isin(documents, self.document)
        return ~(named | np.isin(index["keys"], self.pairs))

    def left_of(self, name: str, arrays: Arrays) -> Arrays:
        """Return the arrays of a kept file without these rows; the same object if it has none of them."""
        keep = self.others(name, arrays)
        if keep.all():
            return arrays
        each = np.repeat(keep, arrays["lengths"]) if "lengths" in arrays else keep
        return {key: array[each if key in BY_TOKEN else keep] for key, array in arrays.items()}


def _rows(texts: Texts, ids: Sequence[str]) -> Rows:
    """Return the rows of ids, -1 for an unknown one."""
    return texts.find(pa.array(ids, pa.string())) if len(ids) else NO_ROWS


@dataclass(frozen=True)
class KeptState(Cache):
    """The kept state of a collection."""

    vectors: bool = True
    erased: int = 0
    """How often something was erased from it before it was opened."""
    gone: NamedRows = field(default_factory=lambda: NamedRows(1))
    """What is left out of all that is added."""

    @classmethod
    def open(cls, collection: Collection, make: bool = False) -> KeptState | None:
        """Open the kept state of a collection; `None` if there is none, and none is to be made or none can be.

        Several processes on one job use none: each would have to read the same.
        """
        state = state_folder()
        if state is None or several_processes():
            return None
        folder, about = state / KEPT / collection.fingerprint, None
        with suppress(OSError, UnrankError):
            if make and not (folder / ABOUT).exists():
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                _write_about(folder, str(collection.folder.resolve()), 0)
            about = _read_about(folder)
        if about is None:
            return None
        return cls(folder, erased=about[1], gone=NamedRows(len(collection.documents)))

    def leaving_out(self, collection: Collection, removal: Removal) -> KeptState:
        """Return this state, to which nothing is added of what a removal names."""
        return replace(self, gone=NamedRows.of(collection, removal))

    def load(self, name: str) -> Arrays | None:
        with suppress(OSError):
            os.utime(self.path(name))
        return super().load(name)

    def write(self, name: str, arrays: Arrays) -> None:
        """Replace a file, unless something was erased since this state was opened: the arrays may still hold it."""
        if not self._is_current():
            return
        super().write(name, self.gone.left_of(name, arrays))
        if not self._is_current():
            self.path(name).unlink(missing_ok=True)
        self._prune()

    def rows_in(self, name: str) -> int:
        """Return the number of texts in a file."""
        index = self.index(name)
        return 0 if index is None else len(index.get("rows", ()))

    def _is_current(self) -> bool:
        about = _read_about(self.folder)
        return about is not None and about[1] == self.erased

    def _prune(self) -> None:
        """Delete the files that were not used for longest, if all are too large together."""
        files = [(path, path.stat()) for path in self.folder.glob(f"*{ENDING}")]
        total = 0
        for path, about in sorted(files, key=lambda file: -file[1].st_mtime_ns):
            total += about.st_size
            if total > MOST_BYTES:
                path.unlink(missing_ok=True)

    def erase(self, rows: NamedRows | None = None) -> list[Path]:
        """Erase rows from every file, by default those that are left out; return the files for which that failed.

        A file whose index names none of them stays as it is. One that cannot be read or written is deleted: it can be
        made again.
        """
        rows, failed = rows or self.gone, []
        if (about := _read_about(self.folder)) is not None:
            _write_about(self.folder, about[0], about[1] + 1)  # jobs that have read it write nothing now
        for left in self.folder.glob(".*"):  # of jobs that were killed
            shutil.rmtree(left, ignore_errors=True)
        for path in sorted(self.folder.glob(f"*{ENDING}")):
            name = path.name.removesuffix(ENDING)
            try:
                if not self._erase_from(name, rows):
                    path.unlink(missing_ok=True)
            except OSError:
                failed.append(path)
        return failed

    def _erase_from(self, name: str, rows: NamedRows) -> bool:
        """Erase rows from a file; return whether that was possible."""
        try:
            if (index := self.index(name)) is None:
                return False
            if rows.others(name, index).all():
                return True
            if (found := super().load(name)) is None:
                return False
            left = rows.left_of(name, found)
            if left is not found:
                super().write(name, left)
        except (KeyError, ValueError, AttributeError, UnrankError):
            return False
        return True


def erase_from_kept(removal: Removal) -> list[Path]:
    """Erase what a removal names from the kept state of all collections; return the files for which that failed.

    If the collection is gone or has changed, all of its state is deleted: nothing could use it.
    """
    failed = list[Path]()
    for folder in kept_folders():
        collection = _collection_of(folder)
        if collection is None:
            shutil.rmtree(folder, ignore_errors=True)
            failed += [path for path in folder.glob("*") if path.exists()]
            continue
        try:
            failed += KeptState(folder).erase(NamedRows.of(collection, removal))
        except (OSError, UnrankError):
            failed.append(folder)
    return failed


def _collection_of(folder: Path) -> Collection | None:
    """Return the collection that a folder of kept state is of; `None` if it is not where it was, or has changed."""
    about = _read_about(folder)
    try:
        collection = open_collection(about[0]) if about is not None else None
    except UnrankError:
        return None
    return collection if collection is not None and collection.fingerprint == folder.name else None


def _write_about(folder: Path, collection: str, erased: int) -> None:
    replace_json(folder / ABOUT, {"collection": collection, "erased": erased})


def _read_about(folder: Path) -> tuple[str, int] | None:
    """Return where the collection is, and how often something was erased; `None` if that cannot be read."""
    try:
        about = read_json(folder / ABOUT)
        return str(about["collection"]), int(about["erased"])
    except (UnrankError, KeyError, TypeError, ValueError):
        return None
