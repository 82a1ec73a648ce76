"""A removal: the request to forget queries, documents, single pairs, or any mix of them.

A removed document may have a substitute: another document of the collection that should take its place. A removal
consists of ids, so it can be written without opening a collection.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Literal

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.sources.files import read_lines
from unrank.collection.texts import hashed_order
from unrank.disk import read_json, write_new
from unrank.errors import BadFile, UnrankError

Kind = Literal["queries", "documents"]
FORM = '{"queries": [...], "documents": [...], "pairs": [...]}'
KEYS = ("queries", "documents", "pairs", "substitutes")


def _id(value: object) -> str:
    """Return an id as text; refuse what is neither a text nor a whole number."""
    if isinstance(value, str | Integral) and not isinstance(value, bool):
        return str(value)
    raise UnrankError(f"an id is a text or a whole number, not {value!r}")


def _pair(value: object) -> tuple[str, str]:
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise UnrankError(f"a pair is (query, document), not {value!r}")
    return _id(value[0]), _id(value[1])


@dataclass(frozen=True)
class Removal:
    """Ids to forget, each kind sorted and without repetition."""

    queries: Sequence[str] = ()
    documents: Sequence[str] = ()
    pairs: Sequence[tuple[str, str]] = ()
    substitutes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """For removed documents the document that takes their place."""

    def __post_init__(self) -> None:
        for kind in ("queries", "documents", "pairs"):
            given = getattr(self, kind)
            if isinstance(given, str):
                raise UnrankError(f"{kind} must be a list, not one text: [{given!r}]")
            if not isinstance(given, Iterable):
                raise UnrankError(f"{kind} must be a list, not {given!r}")
            read = _pair if kind == "pairs" else _id
            object.__setattr__(self, kind, tuple(sorted({read(each) for each in given})))
        object.__setattr__(self, "substitutes", {_id(old): _id(new) for old, new in sorted(self.substitutes.items())})
        self._check_substitutes()

    def _check_substitutes(self) -> None:
        removed = {*self.documents, *(document for _, document in self.pairs)}
        for old, new in self.substitutes.items():
            if old not in removed:
                raise UnrankError(f"{old!r} has a substitute but is not removed: add it to the documents")
            if new in removed:
                raise UnrankError(f"the substitute {new!r} of {old!r} is removed too: name another one")

    def __bool__(self) -> bool:
        return bool(self.queries or self.documents or self.pairs)

    def __or__(self, other: Removal) -> Removal:
        for old in self.substitutes.keys() & other.substitutes.keys():
            if self.substitutes[old] != other.substitutes[old]:
                raise UnrankError(f"{old!r} has two substitutes: keep one")
        return Removal(
            [*self.queries, *other.queries],
            [*self.documents, *other.documents],
            [*self.pairs, *other.pairs],
            {**self.substitutes, **other.substitutes},
        )

    @classmethod
    def union(cls, removals: Iterable[Removal]) -> Removal:
        """Return one removal that names everything that the given ones name."""
        whole = cls()
        for removal in removals:
            whole |= removal
        return whole

    def with_substitutes(self, more: Mapping[str, str]) -> Removal:
        """Return the removal with more substitutes of what it names."""
        return self | Removal(self.queries, self.documents, self.pairs, more)

    @property
    def counts(self) -> dict[str, int]:
        return {"queries": len(self.queries), "documents": len(self.documents), "pairs": len(self.pairs)}

    @classmethod
    def load(cls, path: str | Path) -> Removal:
        """Read a removal.json: `{"queries": [...], "documents": [...], "pairs": [[query, document], ...]}`.

        It may also have `"substitutes": {old: new}`, by the ids of documents.
        """
        path = Path(path)
        value = read_json(path)
        if not isinstance(value, dict):
            raise BadFile(path, f"not a removal: expected {FORM}")
        if unknown := set(value) - {*KEYS}:
            known = "queries, documents, pairs and substitutes"
            raise BadFile(path, f"unknown key {sorted(unknown)[0]!r}: a removal has {known}")
        for key in ("queries", "documents"):
            if not _all_ids(value.get(key, [])):
                raise BadFile(path, f"{key!r} must be a list of ids, each a string or a whole number")
        pairs = value.get("pairs", [])
        if not isinstance(pairs, list) or not all(_all_ids(pair) and len(pair) == 2 for pair in pairs):
            raise BadFile(path, "'pairs' must be a list of [query id, document id]")
        substitutes = value.get("substitutes", {})
        if not isinstance(substitutes, dict) or not all(map(_is_id, substitutes.values())):
            raise BadFile(path, "'substitutes' must name a document id for each id of a removed document")
        try:
            removal = cls(value.get("queries", []), value.get("documents", []), [(q, d) for q, d in pairs], substitutes)
        except UnrankError as error:
            raise BadFile(path, str(error)) from error
        if not removal:
            raise BadFile(path, "an empty removal: it names no query, no document and no pair")
        return removal

    @classmethod
    def load_ids(cls, path: str | Path, kind: Kind) -> Removal:
        """Read a text file with one id on each line."""
        path = Path(path)
        ids = [line.strip() for _, line in read_lines(path) if line.strip()]
        if not ids:
            raise BadFile(path, "an empty removal: the file names no id")
        return cls(queries=ids) if kind == "queries" else cls(documents=ids)

    @classmethod
    def sample(cls, collection: Collection, kind: Kind, share: float, seed: int = 0) -> Removal:
        """Sample queries or documents that together hold about this share of the relevant training pairs.

        They are taken in the order of a hash of seed and id, so a seed gives the same removal on every machine.
        """
        if not 0 < share < 1:
            raise UnrankError(f"a share of {share:g} cannot be removed: give one between 0 and 1, such as 0.05")
        pairs = collection.pairs
        texts, column = (collection.queries, 0) if kind == "queries" else (collection.documents, 1)
        rows, counts = np.unique(pairs[:, column], return_counts=True)
        ids = texts.ids(rows)
        order = hashed_order(ids, f"{seed}:{kind}")
        covered = np.cumsum(counts[order])
        taken = int(np.argmin(np.abs(covered - share * len(pairs)))) + 1 if len(order) else 0
        if taken == 0 or covered[taken - 1] == len(pairs):
            raise UnrankError(
                f"the collection is too small to remove {share:g} of its {len(pairs)} pairs and keep some"
            )
        chosen = [ids[i] for i in order[:taken]]
        return cls(queries=chosen) if kind == "queries" else cls(documents=chosen)

    def save(self, path: str | Path) -> None:
        """Write a removal.json that does not exist yet."""
        value = {name: getattr(self, name) for name in KEYS}
        write_new(Path(path), json.dumps({k: v for k, v in value.items() if v}, indent=1, ensure_ascii=False) + "\n")


def _all_ids(value: object) -> bool:
    return isinstance(value, list) and all(_is_id(item) for item in value)


def _is_id(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
