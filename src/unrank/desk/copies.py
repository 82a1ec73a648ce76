"""Copies on disk of what is to be forgotten: collections, rankers, caches, and files with its texts.

A ranker is a copy if its record says that it was trained on the collection and has not forgotten the items since. A
ranker whose document side was frozen holds the original's encoder of documents. Files are searched for the plain texts,
and for the texts as JSON or CSV writes them, in UTF-8, UTF-16 and Latin-1. Compressed files are listed, not searched.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from unrank.collection.collection import Collection, open_collection
from unrank.collection.folds import held_part
from unrank.collection.normalisation import EDGES, normalised
from unrank.collection.removal import Removal
from unrank.desk.paths import safe_path
from unrank.desk.request import Item, items_of, removal_of
from unrank.disk import CHECKPOINT, NOT_REGULAR, PLACES_FILE, open_regular, whole_path
from unrank.errors import UnrankError
from unrank.forgetting.previous_requests import recognised_among
from unrank.owner import kept_folders
from unrank.rankers.allow_list import ADAPTER_CONFIG, DESCRIPTION
from unrank.record import RECORD, Record, forgotten_requests

NEEDLE = 200
"""The most characters of a text to search for."""
LEAST_HALF = 20
"""The fewest characters of half a text that identify it."""
OF_LEDGER = ("", "-wal", "-shm")
"""The endings of the ledger's files: closing a request erases its items from them."""
DATA = (".jsonl", ".tsv", ".csv", ".log", ".xml", ".trec")
"""The endings of files with texts that no ranker and no collection of ours has."""
WEIGHTS = (".safetensors", ".bin", ".pt", ".onnx")
OTHER_COLLECTION = "has a record of another collection, so it is not known whether it was trained on what is named"


CopyKind = Literal["collection", "ranker", "adapter", "proxy", "cache", "file", "checkpoint", "index"]


class CollectionLike(Protocol):
    """A collection, or the name of one that may be gone."""

    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...


COMPRESSED = {
    b"\x1f\x8b": "a gzip file", b"PK\x03\x04": "a zip file", b"\x28\xb5\x2f\xfd": "a zstd file",
    b"BZh": "a bzip2 file", b"\xfd7zXZ\x00": "an xz file", b"7z\xbc\xaf\x27\x1c": "a 7z file",
    b"\x04\x22\x4d\x18": "an lz4 file", b"Rar!": "a rar file", b"PAR1": "a Parquet file", b"ARROW1": "an Arrow file",
    b"ORC": "an ORC file", b"%PDF": "a PDF file",
}  # fmt: skip
"""The first bytes of files whose texts are compressed, or may be."""
COMPRESSED_NAMES = (".br", ".lzma", ".sz", ".snappy", ".z")
UTF_16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
"""The encodings of files that begin with these bytes."""


@dataclass(frozen=True)
class Copy:
    """A place that must be deleted, or must forget too."""

    kind: CopyKind
    path: str
    why: str


def find_copies(places: Sequence[Path], items: Sequence[Item], collection: CollectionLike, ledger: Path) -> list[Copy]:
    """Find all copies of the items below these places, except the ledger itself."""
    needles = _needles(items)
    own = {str(ledger.resolve()) + end for end in OF_LEDGER}
    found: dict[str, Copy] = {}
    for place in places:
        for copy in _below(whole_path(place), list(items), needles, collection):
            if str(Path(copy.path).resolve()) not in own:
                found.setdefault(copy.path, copy)
    return [found[path] for path in sorted(found)]


def adapters_beside(places: Sequence[Path]) -> list[Path]:
    """Return the folders of adapters beside these places: less its adapter, a merged ranker is the original again."""
    parents = dict.fromkeys(whole_path(place).parent for place in places)
    found = [path.parent for parent in parents for path in sorted(parent.glob(f"*/{ADAPTER_CONFIG}"))]
    return [folder for folder in found if folder not in places]


def in_collection(collection: Collection, items: Sequence[Item]) -> list[bool]:
    """Tell for each item whether a collection holds it, under its id and with its text."""
    known = {(item.query, item.document): item for item in _present(collection, items)}
    return [_same(item, known.get((item.query, item.document))) for item in items]


def without_names(found: Sequence[Copy], items: Sequence[Item]) -> list[Copy]:
    """Replace each path that names an item by a parent folder that does not."""
    safe = [(copy, safe_path(copy.path, items)) for copy in found]
    return [
        copy
        if path == copy.path
        else Copy(copy.kind, path, f"{copy.why}; it is below this folder under a name not kept")
        for copy, path in safe
    ]


def not_searched(places: Sequence[Path]) -> list[Copy]:
    """Return what was not searched below these places: compressed files, closed folders, links that lead elsewhere."""
    closed: list[OSError] = []
    files = [path for place in places for path in _files(whole_path(place), closed.append)]
    found = {str(path): f"is {kind}" for path in files if (kind := _compressed(path))}
    found |= {str(error.filename): "cannot be read" for error in closed}
    found |= {str(link): "is a link to a folder elsewhere" for place in places for link in _links(whole_path(place))}
    return [Copy("file", path, f"{found[path]}, so it was not searched") for path in sorted(found)]


def of_other_collections(places: Sequence[Path], collections: Sequence[CollectionLike]) -> list[Copy]:
    """Return the rankers below these places whose records name none of these collections.

    A record names the last collection alone. That may be another import of the same texts, or one on which a ranker
    forgot after it was trained on one of these.
    """
    found: dict[str, Copy] = {}
    for place in places:
        for folder, inner, names in os.walk(whole_path(place)):
            if "collection.json" in names or _is_ranker(names):
                inner.clear()
            record = _record_in(Path(folder)) if RECORD in names else None
            if record is not None and not any(_is_of(record, collection) for collection in collections):
                found.setdefault(folder, Copy(_kind(record), folder, OTHER_COLLECTION))
    return [found[path] for path in sorted(found)]


def _files(place: Path, on_error: Callable[[OSError], None]) -> Iterator[Path]:
    """Yield the files that are searched for texts: not those of collections and rankers."""
    if place.is_file():
        yield place
    for folder, inner, names in os.walk(place, onerror=on_error):
        if "collection.json" in names or _is_ranker(names):
            inner.clear()
        else:
            yield from (Path(folder) / name for name in names)


def _links(place: Path) -> Iterator[Path]:
    """Yield the links below a place that lead to a folder outside it; no search follows them."""
    for folder, inner, _ in os.walk(place):
        for path in (Path(folder) / name for name in inner):
            if path.is_symlink() and not path.resolve().is_relative_to(place.resolve()):
                yield path


def _compressed(path: Path) -> str | None:
    """Return why the texts of a file cannot be searched, by its first bytes or its name; `None` if they can be."""
    try:
        with open_regular(path) as file:
            start = file.read(8) or b""  # a file of the system may have nothing to read yet
    except FileNotFoundError:  # it is gone, or a link to nowhere
        return None
    except OSError as error:
        return error.strerror if error.errno == NOT_REGULAR else "not readable"
    by_start = next((kind for magic, kind in COMPRESSED.items() if start.startswith(magic)), None)
    return by_start or (f"a {path.suffix} file" if path.suffix.lower() in COMPRESSED_NAMES else None)


def _is_ranker(names: Sequence[str]) -> bool:
    """Tell by its file names whether a folder is a ranker's."""
    described = "config.json" in names or ADAPTER_CONFIG in names
    return RECORD in names or "modules.json" in names or (described and _has_weights(names))


def looks_like_ranker(folder: Path) -> bool:
    """Tell by its file names whether a folder may be a ranker's."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:  # it cannot be read
        return False
    return _is_ranker(names) or DESCRIPTION in names


def _has_weights(names: Sequence[str]) -> bool:
    return any(name.endswith(WEIGHTS) for name in names)


def _below(place: Path, items: list[Item], needles: list[str], collection: CollectionLike) -> Iterator[Copy]:
    yield from _caches(place, collection)
    if place.is_file():
        yield from _file(place, needles)
    for folder, inner, names in os.walk(place):
        inner.sort()
        here = Path(folder)
        if any(name.startswith(CHECKPOINT) for name in names):
            yield Copy("checkpoint", str(here), "holds the weights of a run that has not ended")
        elif any(name.startswith(PLACES_FILE) for name in names):
            yield Copy("checkpoint", str(here), "holds the places of pairs that a run had to forget")
        if "collection.json" in names:
            inner.clear()
            yield from _collection(here, items)
            yield from _strange_files(here, needles)
        elif _is_ranker(names):
            inner.clear()  # do not look at its parts one by one
            yield from _ranker(here, removal_of(items), collection)
            yield from _strange_files(here, needles)
        else:
            if _has_weights(names):  # weights without a ranker: look at the other files too
                yield from _ranker(here, removal_of(items), collection)
            for name in sorted(names):
                yield from _file(here / name, needles)


def _strange_files(folder: Path, needles: list[str]) -> Iterator[Copy]:
    """Find texts in data that somebody put into the folder of a ranker or a collection."""
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in DATA:
            yield from _file(path, needles)


def _caches(place: Path, collection: CollectionLike) -> Iterator[Copy]:
    """Find caches of the collection, complete or partly written."""
    kept = {folder.resolve() for folder in kept_folders()}
    for path in [place, *sorted(place.rglob("*"))] if collection.fingerprint else []:
        if path.parent.resolve() in kept:
            continue  # closing erases from it
        if collection.fingerprint[:16] in path.name and path.name.startswith(("tokens-", "scores-")):
            yield Copy("cache", str(path), "made from this collection")


def _collection(folder: Path, items: list[Item]) -> Iterator[Copy]:
    try:
        if held := sum(in_collection(open_collection(folder), items)):
            yield Copy("collection", str(folder), f"holds {held} of {len(items)} named")
    except UnrankError:  # its message may hold a path that names an item
        yield Copy("collection", str(folder), "cannot be read, so its content is not known")


def _record_in(folder: Path) -> Record | None:
    """Return the record of a ranker; `None` if it has none that can be read."""
    try:
        return Record.read(folder)
    except UnrankError:
        return None


def _is_of(record: Record, collection: CollectionLike) -> bool:
    """Tell whether a record names a collection."""
    return record.collection.name == collection.name or record.collection.fingerprint == collection.fingerprint


def _kind(record: Record) -> CopyKind:
    if record.held_out is not None:
        return "proxy"
    return "ranker" if record.adapter is None else "adapter"


def _ranker(folder: Path, removal: Removal, collection: CollectionLike) -> Iterator[Copy]:
    record = _record_in(folder)
    if record is None:
        kind: CopyKind = "adapter" if (folder / ADAPTER_CONFIG).is_file() else "ranker"
        yield Copy(kind, str(folder), "has no record, so its training data is not known")
        return
    if not _is_of(record, collection):  # see `of_other_collections`
        return
    if record.adapter is not None:
        yield Copy("adapter", str(folder), "is an adapter: a merged ranker less its adapter is the one that remembers")
        return
    forgotten = recognised_among(removal, forgotten_requests(record)) | held_part(removal, record.held_out)
    if (forgotten | removal) != forgotten and record.held_out is not None:
        yield Copy("proxy", str(folder), "was trained on part of it; 'unrank proxies --rebuild' trains it without")
    elif (forgotten | removal) != forgotten:
        yield Copy(
            "ranker",
            str(folder),
            "was trained on this collection, and its record does not show that it forgot all of it",
        )
    elif record.settings.get("freeze") == "documents":
        yield Copy(
            "ranker", str(folder), "holds the original's document encoder, which --freeze documents left unchanged"
        )


def _file(path: Path, needles: list[str]) -> Iterator[Copy]:
    try:
        with open_regular(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            encodings = [UTF_16[content[:2]]] if content[:2] in UTF_16 else ["utf-8", "latin-1"]
            forms = {form for needle in needles for form in _encoded(needle, encodings)}
            if any(content.find(form) >= 0 for form in forms):
                yield Copy("file", str(path), "holds a text, or half of one")
    except (OSError, ValueError):  # gone, unreadable, empty, or a pipe
        return


def _encoded(needle: str, encodings: Sequence[str]) -> Iterator[bytes]:
    for encoding in encodings:
        with suppress(UnicodeEncodeError):  # Latin-1 has few letters
            yield needle.encode(encoding)


def _needles(items: Sequence[Item]) -> list[str]:
    texts = {text for item in items for text in (item.query_text, item.document_text) if text and text.strip()}
    parts = {part for text in texts for part in _parts(text.strip(EDGES) or text)}
    written = {
        form
        for part in parts
        for form in (part, json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1], part.replace('"', '""'))
    }
    return sorted(written)


def _parts(text: str) -> tuple[str, ...]:
    """Return the parts of a text to search for. A file may store the title separately, so half of a text is enough.

    >>> _parts("keys"), _parts("The windmill Mr Quixote of Dulcinea Street")
    (('keys',), ('The windmill Mr Quixo', 'te of Dulcinea Street'))
    """
    half = len(text) // 2
    return (text,) if half < LEAST_HALF else (text[:half][:NEEDLE], text[-half:][-NEEDLE:])


def _present(collection: Collection, items: Sequence[Item]) -> list[Item]:
    """Return the items whose ids a collection has, with its texts."""
    import pyarrow as pa

    def known(side: str) -> set[str]:
        ids = sorted({name for item in items if (name := getattr(item, side)) is not None})
        texts = collection.queries if side == "query" else collection.documents
        return {id for id, row in zip(ids, texts.find(pa.array(ids, pa.string())), strict=True) if row >= 0}

    queries, documents = known("query"), known("document")
    there = [
        item
        for item in items
        if (item.query is None or item.query in queries) and (item.document is None or item.document in documents)
    ]
    return items_of(removal_of(there), collection)


def _same(item: Item, other: Item | None) -> bool:
    if other is None:
        return False
    texts = ((item.query_text, other.query_text), (item.document_text, other.document_text))
    return all(normalised(here or "") == normalised(there or "") for here, there in texts)
