"""FAISS: an index in a folder, searched in this process.

`index.json` names the folder of the current points: `vectors.faiss`, a flat index that compares all vectors, and
`points.arrow`, whose row i describes vector i. Every change writes a new folder and then replaces `index.json`. Points
that are put aside are files of `aside/`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection as Some
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unrank.disk import flush, new_folder, read_json, replace_json, sole_user
from unrank.errors import BadFile
from unrank.index.store import Header, Hit, Points, Store, Vectors, missing_extra
from unrank.parse import WrongValue, parse

FORMAT = 1
MANIFEST = "index.json"
ASIDE = "aside"
BLOCK = 8_192
COLUMNS = ("id", "text", "model")
FOLDER = re.compile(r"points-[0-9]{1,18}")
"""The name of a folder of points."""
FILES = ("vectors.faiss", "points.arrow")
"""What is in it."""
HALF_WRITTEN = re.compile(r"\.points-[0-9]{1,18}\.partial-\w+")
SET_ASIDE = re.compile(r"[0-9]{6,}\.arrow")


@dataclass(frozen=True)
class Manifest:
    """The entries of `index.json`."""

    format: int
    points: str
    """The folder of the current points."""
    header: Header


class FaissStore(Store):
    """An index in a folder."""

    folder: Path

    def __init__(self, place: str) -> None:
        self.folder = Path(place)
        self.name = f"faiss:{place}"
        _faiss()

    @contextmanager
    def writing(self) -> Iterator[None]:
        with sole_user(self.folder, f"another job is at work on {self.name}: wait for it, or stop it"):
            self._sweep()
            yield

    def _sweep(self) -> None:
        """Delete folders that killed jobs left, and points that are in no index any more. All other files stay."""
        manifest = self._manifest()
        current = manifest.points if manifest else None
        for path in [*self.folder.iterdir()]:
            if path.name != current and _is_folder(path, FOLDER):
                _delete_points(path)
            elif _is_folder(path, HALF_WRITTEN):
                shutil.rmtree(path)
        for path in (self.folder / ASIDE).glob("*.partial"):
            if SET_ASIDE.fullmatch(path.stem):
                path.unlink()

    def _manifest(self) -> Manifest | None:
        path = self.folder / MANIFEST
        if not path.is_file():
            if self.folder.exists() and not self._is_ours():
                raise BadFile(self.folder, "not an index, and not empty: choose another folder")
            return None
        value = read_json(path)
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise BadFile(path, f"not an index of format {FORMAT}: build it again")
        try:
            manifest: Manifest = parse(Manifest, value)
        except WrongValue as error:
            raise BadFile(path, f"damaged: {error}; build the index again") from error
        if not FOLDER.fullmatch(manifest.points):
            raise BadFile(path, f"damaged: {manifest.points!r} is no folder of points; build the index again")
        return manifest

    def _is_ours(self) -> bool:
        """Return whether a folder without a manifest holds nothing but an unfinished index."""
        known = (ASIDE, ".lock")
        return self.folder.is_dir() and all(
            path.name in known
            or path.name.startswith(f".{MANIFEST}.partial-")
            or _is_folder(path, HALF_WRITTEN)
            or (_is_folder(path, FOLDER) and {each.name for each in path.iterdir()} <= {*FILES})
            for path in self.folder.iterdir()
        )

    def _aside(self) -> list[Path]:
        """Return the files of points that are put aside, in order."""
        return sorted(path for path in (self.folder / ASIDE).glob("*.arrow") if SET_ASIDE.fullmatch(path.name))

    def header(self) -> Header | None:
        manifest = self._manifest()
        return manifest.header if manifest else None

    def points(self) -> Points:
        manifest = self._manifest()
        return _points(_read(self.folder / manifest.points / "points.arrow")) if manifest else Points()

    def put_aside(self) -> Points:
        return _points(self._aside_table())

    def put(self, header: Header, points: Points, vectors: Vectors) -> None:
        aside = self.folder / ASIDE
        aside.mkdir(parents=True, exist_ok=True)
        number = max((int(path.stem) for path in self._aside()), default=0) + 1
        _write(aside / f"{number:06}.arrow", _table(points, vectors))

    def drop(self, ids: Some[str]) -> None:
        gone = pa.array(sorted(ids), pa.string())
        for path in self._aside() if len(gone) else ():
            table = _read(path)
            kept = table.filter(pc.invert(pc.is_in(table["id"], value_set=gone)))
            if not len(kept):
                path.unlink()
            elif len(kept) < len(table):
                _write(path, kept)

    def delete(self, ids: Some[str]) -> None:
        manifest = self._manifest()
        if manifest is None or not ids:
            return
        points, vectors = self._current(manifest)
        kept = _without(points, set(ids))
        if len(kept) < len(points):
            self._become(manifest.header, _chosen(points, kept), vectors[kept])

    def switch(self, header: Header, keep: bool) -> None:
        aside = self._aside_table()
        points, vectors = _points(aside), _vectors(aside, header.width)
        manifest = self._manifest()
        if keep and manifest is not None:
            old, stored = self._current(manifest)
            kept = _without(old, set(points.ids))
            points, vectors = _joined(_chosen(old, kept), points), np.concatenate([stored[kept], vectors])
        self._become(header, points, vectors)
        with suppress(OSError):  # a folder that is not there, or not empty
            for path in self._aside():
                path.unlink()
            (self.folder / ASIDE).rmdir()

    def _become(self, header: Header, points: Points, vectors: Vectors) -> None:
        """Make these points the whole index."""
        old = self._manifest()
        number = int(old.points.removeprefix("points-")) + 1 if old else 1
        while os.path.lexists(self.folder / f"points-{number}"):  # a file of another program
            number += 1
        with new_folder(self.folder / f"points-{number}") as folder:
            faiss = _faiss()
            flat = (faiss.IndexFlatIP if header.similarity == "dot" else faiss.IndexFlatL2)(header.width)
            flat.add(np.ascontiguousarray(vectors, np.float32))
            faiss.write_index(flat, str(folder / "vectors.faiss"))
            _write(folder / "points.arrow", _table(points))
        replace_json(self.folder / MANIFEST, asdict(Manifest(FORMAT, f"points-{number}", header)))
        if old is not None:
            with suppress(OSError):  # the next job sweeps
                _delete_points(self.folder / old.points)

    def blocks(self) -> Iterator[tuple[Sequence[str], Vectors]]:
        if (manifest := self._manifest()) is not None:
            points, vectors = self._current(manifest)
            for start in range(0, len(points), BLOCK):
                yield points.ids[start : start + BLOCK], vectors[start : start + BLOCK]

    def search(self, queries: Vectors, most: int) -> list[list[Hit]]:
        manifest = self._manifest()
        if manifest is None:
            return [[] for _ in queries]
        points = self.points()
        flat = self._flat(manifest, len(points))
        found, rows = flat.search(np.ascontiguousarray(queries, np.float32), max(1, min(most, len(points))))
        scores = found if manifest.header.similarity == "dot" else -np.sqrt(np.maximum(found, 0))
        return [
            [Hit(points.ids[row], float(score)) for row, score in zip(line, values, strict=True) if row >= 0]
            for line, values in zip(rows, scores, strict=True)
        ]

    def _current(self, manifest: Manifest) -> tuple[Points, Vectors]:
        points = self.points()
        flat = self._flat(manifest, len(points))
        vectors = flat.reconstruct_n(0, len(points)) if len(points) else np.empty((0, manifest.header.width))
        return points, np.asarray(vectors, np.float32)

    def _flat(self, manifest: Manifest, points: int) -> Any:
        path = self.folder / manifest.points / "vectors.faiss"
        try:
            flat = _faiss().read_index(str(path))
        except (RuntimeError, MemoryError) as error:
            raise BadFile(path, "damaged: FAISS cannot read it; build the index again") from error
        if flat.d != manifest.header.width or flat.ntotal != points:
            raise BadFile(path, "damaged: it does not hold one vector for each point; build the index again")
        return flat

    def _aside_table(self) -> pa.Table:
        paths = self._aside()
        pieces = [_read(path) for path in paths]
        for path, piece in zip(paths, pieces, strict=True):
            if not _has_vectors(piece) or piece.schema != pieces[0].schema:
                raise BadFile(path, "damaged: it does not hold one vector for each point; build the index again")
        return pa.concat_tables(pieces) if pieces else _table(Points(), np.empty((0, 1), np.float32))


def _is_folder(path: Path, name: re.Pattern[str]) -> bool:
    """Return whether a path is a folder of such a name, and no link to one."""
    return name.fullmatch(path.name) is not None and path.is_dir() and not path.is_symlink()


def _delete_points(folder: Path) -> None:
    """Delete a folder of points; what others put into it stays."""
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # not empty
        folder.rmdir()


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise missing_extra("FAISS", "faiss") from error
    return faiss


def _table(points: Points, vectors: Vectors | None = None) -> pa.Table:
    columns = dict(zip(COLUMNS, (points.ids, points.texts, points.models), strict=True))
    arrays = {name: pa.array(list(values), pa.string()) for name, values in columns.items()}
    if vectors is not None:
        flat = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
        arrays["vector"] = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    return pa.table(arrays)


def _vectors(table: pa.Table, width: int) -> Vectors:
    chunks = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in table["vector"].chunks]
    return np.concatenate([np.empty(0, np.float32), *chunks]).reshape(-1, width)


def _points(table: pa.Table) -> Points:
    return Points(*(table[name].to_pylist() for name in COLUMNS))


def _without(points: Points, gone: set[str]) -> list[int]:
    return [row for row, id in enumerate(points.ids) if id not in gone]


def _chosen(points: Points, rows: Sequence[int]) -> Points:
    return Points(*([column[row] for row in rows] for column in (points.ids, points.texts, points.models)))


def _joined(first: Points, second: Points) -> Points:
    return Points([*first.ids, *second.ids], [*first.texts, *second.texts], [*first.models, *second.models])


def _write(path: Path, table: pa.Table) -> None:
    """Write a table, in place of the one that is there, whole or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    with pa.OSFile(str(partial), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    flush(partial)
    partial.replace(path)
    flush(path.parent)


def _read(path: Path) -> pa.Table:
    """Return a table of points; refuse one that is damaged."""
    try:
        with pa.OSFile(str(path), "rb") as file:
            table = pa.ipc.open_file(file).read_all()
        table.validate(full=True)
        columns = [table[name] for name in COLUMNS]
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise BadFile(path, f"not a readable table ({error}); build the index again") from error
    if any(column.type != pa.string() or column.null_count for column in columns):
        raise BadFile(path, f"damaged: {', '.join(COLUMNS)} are not all texts; build the index again")
    return table


def _has_vectors(table: pa.Table) -> bool:
    """Return whether a table of points holds a vector for each."""
    if "vector" not in table.column_names:
        return False
    column = table["vector"]
    return pa.types.is_fixed_size_list(column.type) and column.type.value_type == pa.float32() and not column.null_count
