"""Where collections come from. One reader a file; `SOURCES` names them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from unrank.collection.sources.source import Raw
from unrank.errors import UnknownName, UnrankError

Reader = Callable[[str, str | None], Raw]


@dataclass(frozen=True)
class Source:
    """A reader, imported when it is first used, and the line that `unrank list sources` prints."""

    module: str
    reader: str
    summary: str
    takes_location: bool = True

    def read(self, location: str, test_split: str | None) -> Raw:
        module = importlib.import_module(f"unrank.collection.sources.{self.module}")
        return cast(Reader, getattr(module, self.reader))(location, test_split)


SOURCES: dict[str, Source] = {
    "beir": Source("beir", "read_beir", "a BEIR folder: corpus.jsonl, queries.jsonl, qrels/*.tsv"),
    "trec": Source(
        "trec", "read_trec", "a folder of queries and documents (TSV or JSONL), qrels, an optional run file"
    ),
    "triples": Source("triples", "read_triples", "sentence-transformers' training columns: JSONL, TSV, CSV or Parquet"),
    "irds": Source("irds", "read_irds", "any dataset id of ir_datasets"),
    "pydocs": Source(
        "pydocs", "read_pydocs", "the documentation that comes with every Python; nothing to download", False
    ),
}


def read_source(source: str, test_split: str | None = None) -> Raw:
    """Open `kind:location` for reading."""
    kind, location = parse_source(source)
    return SOURCES[kind].read(location, test_split)


def parse_source(source: str) -> tuple[str, str]:
    """The kind and the location of a source, or an error that says what is wrong with them."""
    kind, _, location = source.partition(":")
    if kind not in SOURCES:
        raise UnknownName("source", kind, SOURCES)
    if SOURCES[kind].takes_location and not location:
        raise UnrankError(f"the source {kind!r} needs a location, such as {kind}:PATH")
    return kind, location
