"""Finished cells as JSON: in the folder of a bench, or packed in one file, a cell on each line.

A packed file (`.jsonl.gz`) holds the cells of a published table whole. The same cells always give the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unrank.disk import fits, json_of, new_file, open_regular, read_json
from unrank.errors import BadFile, UnrankError, count
from unrank.record import CELL, FORGET_LISTS, RANKS, RECORD

PACKED = ".jsonl.gz"
LONGEST_LINE = 64 * 2**20
"""The most bytes of one cell; those of a million queries fit."""
MOST_BYTES = 4 * 2**30
"""The most bytes of all cells of a file, unpacked."""
NAME_LENGTH = 20
IDENTITY = (
    *("format", "unrank", "fingerprint", "ranker", "base_sha256", "training", "training_source", "seed", "reserve"),
    *("removal", "share", "removal_seed", "method", "method_source", "settings", "target"),
    *("check_every", "minutes", "watch", "recovery"),
)
"""The keys of `cell.json` that a cell's result depends on. A hash of them is its name."""
LINE = {"name": str, "cell": dict, "record": dict, "ranks": dict}


@dataclass(frozen=True)
class StoredCell:
    """A finished cell as JSON, and where it was read."""

    name: str
    path: Path
    """Its folder; if it is packed, the file and the cell's name."""
    cell: Any
    """What the cell is, and how it was run."""
    record: Any
    ranks: Any
    forget: Any = None
    """The scores and lists of the forget set; `None` in cells of earlier versions."""

    def to_json(self) -> dict[str, Any]:
        found = {"name": self.name, "cell": self.cell, "record": self.record, "ranks": self.ranks}
        return found if self.forget is None else found | {"forget": self.forget}


def hash_of(identity: Mapping[str, object]) -> str:
    """Return the name of a job: a hash of everything that its result depends on."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:NAME_LENGTH]


def is_packed(path: Path) -> bool:
    """Return whether a path names a packed file."""
    return path.name.endswith(PACKED)


def read_cells(source: Path) -> list[StoredCell]:
    """Return all finished cells of a bench, which is a folder or a packed file, by name."""
    if is_packed(source):
        return sorted(_packed_cells(source), key=lambda cell: cell.name)
    folders = sorted(path.parent for path in (source / "cells").glob(f"[!.]*/{CELL}"))
    if not folders:
        raise UnrankError(f"{source / 'cells'} holds no finished cell: run 'unrank bench' first")
    return [read_cell_folder(folder) for folder in folders]


def read_cell_folder(folder: Path) -> StoredCell:
    """Return the cell of a folder, as JSON that is not checked yet."""
    cell, record, ranks = (read_part(folder, name) for name in (CELL, RECORD, RANKS))
    forget = read_part(folder, FORGET_LISTS) if (folder / FORGET_LISTS).is_file() else None
    return StoredCell(folder.name, folder, cell, record, ranks, forget)


def read_part(folder: Path, name: str) -> Any:
    """Return the JSON of one file of a cell; if it is missing or damaged, the error says what to do."""
    try:
        return read_json(folder / name)
    except BadFile as error:
        raise UnrankError(f"{error}; {_advice(folder)}") from error


def _advice(folder: Path) -> str:
    return f"restore it from a copy, or remove the folder {folder}, and the same bench runs its cell again"


def find_cell(where: Path) -> StoredCell:
    """Return one cell: a folder of a bench, a packed file with one cell, or `FILE/NAME` for a cell of a packed file."""
    packed = where if is_packed(where) else where.parent
    if not is_packed(packed):
        if not (where / CELL).is_file():
            raise BadFile(where, f"not a cell: name a folder with a {CELL}, or FILE{PACKED}/NAME for a packed one")
        return replace(read_cell_folder(where), name=where.resolve().name)
    cells = {cell.name: cell for cell in read_cells(packed)}
    if packed == where and len(cells) == 1:
        return next(iter(cells.values()))
    if packed == where or where.name not in cells:
        some = next(iter(cells))
        raise UnrankError(f"{packed} holds {count(len(cells), 'cell')}: name one of them, such as {packed / some}")
    return cells[where.name]


def check_name(name: str, described: Mapping[str, object], path: Path) -> None:
    """Refuse a cell whose name is not the hash of its description, which has all of `IDENTITY`."""
    if (found := hash_of({key: described[key] for key in IDENTITY})) != name:
        raise BadFile(path, f"its name is not {found}, the hash of its description: one of the two was changed")


def pack_benches(sources: Sequence[Path], out: Path) -> int:
    """Write the finished cells of one or more benches to a new file, each once, and return their number."""
    cells: dict[str, StoredCell] = {}
    for cell in (cell for source in sources for cell in read_cells(source)):
        twin = cells.setdefault(cell.name, cell)
        if twin.ranks != cell.ranks:
            raise UnrankError(f"{twin.path} and {cell.path} are one cell with other results: take one of them away")
    write_packed(cells.values(), out)
    return len(cells)


def write_packed(cells: Iterable[StoredCell], out: Path) -> None:
    """Write cells to a new file, in the order of their names and without the time of writing."""
    if not is_packed(out):
        raise UnrankError(f"{out} does not end with {PACKED}: choose a name that does")
    ordered = sorted(cells, key=lambda cell: cell.name)
    values = [cell.to_json() for cell in ordered]
    for cell, value in zip(ordered, values, strict=True):
        if not fits(value, LINE):
            damaged = f"damaged: {CELL}, {RECORD} or {RANKS} holds no JSON object"
            raise BadFile(cell.path, f"{damaged}; {_advice(cell.path)}")
    lines = [json.dumps(value, separators=(",", ":"), ensure_ascii=False) for value in values]
    with new_file(out) as partial, partial.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write("".join(f"{line}\n" for line in lines).encode())


def _packed_cells(path: Path) -> Iterator[StoredCell]:
    seen: set[str] = set()
    for number, line in enumerate(_lines(path), 1):
        value = json_of(line, path, number)
        if not fits(value, LINE):
            raise BadFile(path, "not a cell, as 'unrank pack' writes it", number)
        name = value["name"]
        if name in seen:
            raise BadFile(path, f"the cell {name} is there twice", number)
        seen.add(name)
        yield StoredCell(name, path / name, value["cell"], value["record"], value["ranks"], value.get("forget"))
    if not seen:
        raise BadFile(path, "no cell in it")


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a compressed file; refuse one that grows beyond every bench."""
    left = MOST_BYTES
    try:
        with open_regular(path) as file, gzip.GzipFile(fileobj=file) as lines:
            while line := lines.readline(LONGEST_LINE):
                left -= len(line)
                if left < 0 or len(line) == LONGEST_LINE:
                    raise BadFile(path, "too large: no bench has cells of that size")
                yield line
    except FileNotFoundError as error:
        raise BadFile(path, "no such file") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BadFile(path, f"damaged, or not compressed by gzip: {error}") from error
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error
