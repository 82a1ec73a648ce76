"""A removal: the request to forget queries, documents, single pairs, or any mix of them.

It consists of ids, so it can be written without opening a collection.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from unrank.collection.collection import Collection
from unrank.collection.sources.files import read_lines
from unrank.collection.texts import hashed_order
from unrank.disk import read_json, write_new
from unrank.errors import BadFile, UnrankError

Kind = Literal["queries", "documents"]


@dataclass(frozen=True)
class Removal:
    """Ids to forget, each kind sorted and without repetition."""

    queries: Sequence[str] = ()
    documents: Sequence[str] = ()
    pairs: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        for field in ("queries", "documents"):
            if isinstance(getattr(self, field), str):
                raise UnrankError(f"{field} must be a list of ids, not one text: [{getattr(self, field)!r}]")
            object.__setattr__(self, field, tuple(sorted(set(map(str, getattr(self, field))))))
        object.__setattr__(
            self, "pairs", tuple(sorted({(str(query), str(document)) for query, document in self.pairs}))
        )

    def __bool__(self) -> bool:
        return bool(self.queries or self.documents or self.pairs)

    def __or__(self, other: Removal) -> Removal:
        return Removal(
            [*self.queries, *other.queries], [*self.documents, *other.documents], [*self.pairs, *other.pairs]
        )

    @classmethod
    def union(cls, removals: Iterable[Removal]) -> Removal:
        """Return one removal that names everything that the given ones name."""
        whole = cls()
        for removal in removals:
            whole |= removal
        return whole

    @property
    def counts(self) -> dict[str, int]:
        return {"queries": len(self.queries), "documents": len(self.documents), "pairs": len(self.pairs)}

    @classmethod
    def load(cls, path: str | Path) -> Removal:
        """Read a removal.json: `{"queries": [...], "documents": [...], "pairs": [[query, document], ...]}`."""
        path = Path(path)
        value = read_json(path)
        if not isinstance(value, dict):
            raise BadFile(path, 'not a removal: expected {"queries": [...], "documents": [...], "pairs": [...]}')
        if unknown := set(value) - {"queries", "documents", "pairs"}:
            raise BadFile(path, f"unknown key {sorted(unknown)[0]!r}: a removal has queries, documents and pairs")
        for key in ("queries", "documents"):
            if not _all_ids(value.get(key, [])):
                raise BadFile(path, f"{key!r} must be a list of ids, each a string or a whole number")
        pairs = value.get("pairs", [])
        if not isinstance(pairs, list) or not all(_all_ids(pair) and len(pair) == 2 for pair in pairs):
            raise BadFile(path, "'pairs' must be a list of [query id, document id]")
        removal = cls(value.get("queries", []), value.get("documents", []), [(q, d) for q, d in pairs])
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
        value = {"queries": self.queries, "documents": self.documents, "pairs": self.pairs}
        write_new(Path(path), json.dumps({k: v for k, v in value.items() if v}, indent=1, ensure_ascii=False) + "\n")


def _all_ids(value: object) -> bool:
    return isinstance(value, list) and all(_is_id(item) for item in value)


def _is_id(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))
