"""Orders: how a run is to forget, and what it must show."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from unrank.audit.context import Thoroughness
from unrank.collection.collection import Collection
from unrank.desk.batch import Batch
from unrank.disk import exists, sha256, whole_path
from unrank.engine.runtime import Device


@dataclass(frozen=True)
class Orders:
    """How a run is to forget, and what it must show."""

    ranker: str
    collection: Path
    method: str = "cocol"
    settings: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None
    """By default where the first reference is, if its record says that it never saw what is removed; else `unseen`."""
    base: str | None = None
    references: tuple[str, ...] = ()
    keep_at_least: float | None = None
    strict: bool = False
    audit_queries: int = Thoroughness.queries
    seed: int = 0
    device: Device = "auto"
    look: tuple[Path, ...] = ()
    fast: bool = True
    """Whether encoders use their faster passes."""

    def from_anywhere(self) -> Orders:
        """The same with whole paths, which mean the same in every working directory."""
        return replace(
            self,
            ranker=_named(self.ranker),
            collection=whole_path(self.collection),
            base=self.base and _named(self.base),
            references=tuple(map(_named, self.references)),
            look=tuple(map(whole_path, self.look)),
        )

    def asked(self, batch: Batch, collection: Collection) -> dict[str, Any]:
        """All that the result follows from, by which an interrupted run is known again."""
        told = asdict(self) | {"collection": str(self.collection)}
        if self.fast:
            del told["fast"]  # runs of before had no choice
        del told["look"]  # where copies were looked for, which may be named like what is removed
        return {
            **told,
            "references": list(self.references),
            "ranker_files": folder_hash(Path(self.ranker)),
            "collection_fingerprint": collection.fingerprint,
            "requests": [request.id for request in batch.requests],
            "removed": batch.removal.counts,
        }


def _named(name: str) -> str:
    """A folder by its whole path, a hub id as it is."""
    return str(whole_path(Path(name))) if exists(Path(name)) else name


def folder_hash(folder: Path) -> str | None:
    """One hash for all files of a ranker's folder; None for a hub id."""
    if not folder.is_dir():
        return None
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    told = [[str(path.relative_to(folder)), sha256(path)] for path in files]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
