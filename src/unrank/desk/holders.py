"""What on disk still holds something that is to be forgotten: collections, rankers, caches, files with its very text.

A ranker holds it if its record says that it was trained on the collection and not that it forgot it since. Files are
searched for the texts as they stand, or as JSON or CSV writes them; what is compressed is not looked into.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from unrank.collection.collection import Collection, open_collection
from unrank.collection.removal import Removal
from unrank.desk.item import Item, items_of, normalised, removal_of
from unrank.disk import whole_path
from unrank.errors import UnrankError
from unrank.forgetting.hashes import recognised
from unrank.record import RECORD, Record, forgotten_requests

NEEDLE = 200
"""Characters of a text that are looked for at most."""
LEAST_HALF = 20
"""Characters of half a text that still tell it from others."""
OF_LEDGER = ("", "-wal", "-shm")
"""How the names of its files end: closing a request takes what it names out of them."""
WEIGHTS = (".safetensors", ".bin", ".pt", ".onnx")


@dataclass(frozen=True)
class Holder:
    """Something that must go, or must forget too."""

    kind: Literal["collection", "ranker", "cache", "file"]
    path: str
    why: str


def holders(places: Sequence[Path], items: Sequence[Item], collection: Collection, ledger: Path) -> list[Holder]:
    """All below these places that still holds any of the items, but for the ledger itself."""
    needles = _needles(items)
    own = {str(ledger.resolve()) + end for end in OF_LEDGER}
    found: dict[str, Holder] = {}
    for place in places:
        for holder in _below(whole_path(place), list(items), needles, collection):
            if str(Path(holder.path).resolve()) not in own:
                found.setdefault(holder.path, holder)
    return [found[path] for path in sorted(found)]


def holds(collection: Collection, items: Sequence[Item]) -> list[bool]:
    """Whether each of the items stands in a collection, by its id and with its text."""
    known = {(item.query, item.document): item for item in _present(collection, items)}
    return [_same(item, known.get((item.query, item.document))) for item in items]


def without_names(found: Sequence[Holder], items: Sequence[Item]) -> list[Holder]:
    """The same, with the folder in place of a path that itself tells what was removed."""
    names = [name for item in items for name in (item.query, item.document) if name is not None and len(name) > 3]

    def told(path: Path) -> Path:
        while any(name in str(path) for name in names):
            path = path.parent
        return path

    return [Holder(holder.kind, str(told(Path(holder.path))), holder.why) for holder in found]


def _is_ranker(names: Sequence[str]) -> bool:
    """Whether a folder of these files is a ranker's."""
    return RECORD in names or "modules.json" in names or ("config.json" in names and _has_weights(names))


def _has_weights(names: Sequence[str]) -> bool:
    return any(name.endswith(WEIGHTS) for name in names)


def _below(place: Path, items: list[Item], needles: list[bytes], collection: Collection) -> Iterator[Holder]:
    yield from _caches(place, collection)
    if place.is_file():
        yield from _file(place, needles)
    for folder, inner, names in os.walk(place):
        inner.sort()
        here = Path(folder)
        if "collection.json" in names:
            inner.clear()
            yield from _collection(here, items)
        elif _is_ranker(names):
            inner.clear()  # its parts are not looked at one by one
            yield from _ranker(here, removal_of(items), collection)
        else:
            if _has_weights(names):  # stray ones: what lies beside them is looked at too
                yield from _ranker(here, removal_of(items), collection)
            for name in sorted(names):
                yield from _file(here / name, needles)


def _caches(place: Path, collection: Collection) -> Iterator[Holder]:
    """Wherever they lie, whole or half written."""
    for path in [place, *sorted(place.rglob("*"))]:
        if collection.fingerprint[:16] in path.name and path.name.startswith(("tokens-", "scores-")):
            yield Holder("cache", str(path), "was made from this collection")


def _collection(folder: Path, items: list[Item]) -> Iterator[Holder]:
    try:
        if held := sum(holds(open_collection(folder), items)):
            yield Holder("collection", str(folder), f"holds {held} of {len(items)} named")
    except UnrankError:  # what it says may name a path that tells what was removed
        yield Holder("collection", str(folder), "cannot be read, so what it holds is not known")


def _ranker(folder: Path, removal: Removal, collection: Collection) -> Iterator[Holder]:
    try:
        record = Record.read(folder)
    except UnrankError:
        record = None
    if record is None:
        yield Holder("ranker", str(folder), "has no record, so what it was trained on is not known")
        return
    if record.collection.name != collection.name and record.collection.fingerprint != collection.fingerprint:
        return
    forgotten = recognised(collection, forgotten_requests(record))
    if (forgotten | removal) != forgotten:
        yield Holder("ranker", str(folder), "was trained on this collection and has not forgotten all of it")


def _file(path: Path, needles: list[bytes]) -> Iterator[Holder]:
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if any(content.find(needle) >= 0 for needle in needles):
                yield Holder("file", str(path), "holds a text as it stands, or half of one")
    except (OSError, ValueError):  # gone, unreadable, or empty
        return


def _needles(items: Sequence[Item]) -> list[bytes]:
    texts = {text for item in items for text in (item.query_text, item.document_text) if text and text.strip()}
    parts = {part for text in texts for part in _parts(text)}
    written = {
        form
        for part in parts
        for form in (part, json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1], part.replace('"', '""'))
    }
    return sorted(form.encode() for form in written)


def _parts(text: str) -> tuple[str, ...]:
    """What a text is looked for by. Where a file keeps its title apart, one half at least is not cut in two.

    >>> _parts("keys"), _parts("The windmill Mr Quixote of Dulcinea Street")
    (('keys',), ('The windmill Mr Quixo', 'te of Dulcinea Street'))
    """
    half = len(text) // 2
    return (text,) if half < LEAST_HALF else (text[:half][:NEEDLE], text[-half:][-NEEDLE:])


def _present(collection: Collection, items: Sequence[Item]) -> list[Item]:
    """Those items whose ids a collection knows, with the texts that it has for them."""
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
