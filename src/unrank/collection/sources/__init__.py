"""The sources of collections. Each is one file with one reader; `SOURCES` names them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from unrank.collection.sources.source import Raw, watched
from unrank.disk import exists
from unrank.errors import UnknownName, UnrankError
from unrank.plugins import Catalogue, summary_of

Reader = Callable[[str, str | None], Raw]


@dataclass(frozen=True)
class Source:
    """A reader, imported when it is first used, and the line that `unrank list sources` prints."""

    module: str
    reader: str
    summary: str
    takes_location: bool = True
    alias: str = ""

    def read(self, location: str, test_split: str | None) -> Raw:
        """Open a location for reading; `test_split` is the split to test on, if one is named."""
        return cast(Reader, getattr(importlib.import_module(self.module), self.reader))(location, test_split)


_HERE = "unrank.collection.sources"
SOURCES: dict[str, Source] = {
    "beir": Source(f"{_HERE}.beir", "read_beir", "a BEIR folder: corpus.jsonl, queries.jsonl, qrels/*.tsv"),
    "trec": Source(
        f"{_HERE}.trec", "read_trec", "a folder of queries and documents (TSV or JSONL), qrels, an optional run file"
    ),
    "triples": Source(
        f"{_HERE}.triples", "read_triples", "sentence-transformers' training columns: JSONL, TSV, CSV or Parquet"
    ),
    "irds": Source(f"{_HERE}.irds", "read_irds", "any dataset id of ir_datasets"),
    "pydocs": Source(
        f"{_HERE}.pydocs", "read_pydocs", "the documentation that comes with every Python; nothing to download", False
    ),
}


def _adopt(name: str, found: Any) -> Source:
    """Return the entry of a source of another package: a reader, or an entry that the package made."""
    if isinstance(found, FunctionType):
        found = Source(found.__module__, found.__name__, summary_of(found))
    if not isinstance(found, Source):
        raise UnrankError("its entry point names neither a function that reads nor a Source")
    return replace(found, alias="")


CATALOGUE = Catalogue("source", SOURCES, _adopt)
"""All sources that can be named: unrank's own, and those of installed packages."""


def read_source(source: str, test_split: str | None = None) -> Raw:
    """Open `kind:location` for reading."""
    kind, location = parse_source(source)
    entry = CATALOGUE.find(kind)[1]
    if CATALOGUE.package_of(kind) is None:
        return entry.read(location, test_split)
    watch = partial(CATALOGUE.blamed, kind)
    with watch():
        return watched(entry.read(location, test_split), watch)


def parse_source(source: str) -> tuple[str, str]:
    """Return the kind and the location of a source, or raise an error that says what is wrong with them."""
    kind, _, location = source.partition(":")
    if kind not in CATALOGUE.names() and exists(Path(source)):
        raise UnrankError(_suggestion(Path(source)))
    try:
        kind, entry = CATALOGUE.find(kind)
    except UnknownName as error:
        raise UnrankError(f"{error}; a source is written KIND:LOCATION, such as beir:PATH") from error
    if entry.takes_location and not location:
        raise UnrankError(f"the source {kind!r} needs a location, such as {kind}:PATH")
    return kind, location


def _suggestion(path: Path) -> str:
    """Say how to import a file or a folder that was given without its kind."""
    from unrank.collection.sources.files import ENDINGS

    names = {each.name for each in path.iterdir()} if path.is_dir() else {path.name}
    stems = {name.partition(".")[0] for name in names}
    if "collection.json" in names:
        return f"{path} is a collection already: use it as it is"
    if "corpus.jsonl" in names:
        kind = "beir"
    elif path.is_dir() and {"queries", "qrels"} <= stems:
        kind = "trec"
    elif any(Path(name).suffix in ENDINGS for name in names):
        kind = "triples"
    else:
        kinds = "beir, trec or triples" if path.is_dir() else "triples"
        return f"{path} has no kind, and its files do not show one: write KIND:{path} with the kind {kinds}"
    return f"{path} has no kind: did you mean {kind}:{path}? 'unrank list sources' names the kinds"
