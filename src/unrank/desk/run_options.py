"""The options of a run: how it forgets, and what it must show."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from unrank.audit.context import Thoroughness
from unrank.collection.collection import Collection
from unrank.desk.batch import Batch
from unrank.desk.history_index import Json
from unrank.disk import exists, folder_hash, whole_path
from unrank.forgetting.options import ForgetOptions

RECORDED = ("method", "settings", "base", "seed", "device")
"""The options of forgetting that a run can have."""


@dataclass(frozen=True)
class RunOptions:
    """The ranker and the collection of a run, how it forgets, and what it must show."""

    ranker: str
    collection: Path
    forget: ForgetOptions = field(default_factory=ForgetOptions)
    """How it forgets; its target is replaced by the target below."""
    target: str | None = None
    """`None` for `places`."""
    references: tuple[str, ...] = ()
    keep_at_least: float | None = None
    strict: bool = False
    audit_queries: int = Thoroughness.queries
    audit_proxies: tuple[str, ...] = ()
    """Folders of prepared proxies that judge single pairs. They must have no share in the run."""
    look: tuple[Path, ...] = ()
    fast: bool = True
    """Whether encoders use their faster passes."""

    def absolute(self) -> RunOptions:
        """Return the options with absolute paths, which mean the same in every working directory.

        Links are followed: a link may lead to another folder tomorrow, and deleting it deletes nothing.
        """
        base, proxies = (name and _absolute_name(name) for name in (self.forget.base, self.forget.proxies))
        return replace(
            self,
            ranker=_absolute_name(self.ranker),
            collection=self.collection.resolve(),
            forget=replace(self.forget, base=base, proxies=proxies),
            references=tuple(map(_absolute_name, self.references)),
            audit_proxies=tuple(map(_absolute_name, self.audit_proxies)),
            look=tuple(map(whole_path, self.look)),
        )

    @property
    def paths(self) -> list[str]:
        """The paths that the ledger keeps."""
        given = [name for name in (self.forget.base, self.forget.proxies) if name]
        return [self.ranker, str(self.collection), *self.references, *self.audit_proxies, *given]

    def asked(self, batch: Batch, collection: Collection) -> Json:
        """Return everything that the result depends on; an interrupted run is recognised by it.

        The folders to look in are left out: their names may tell what is removed.
        """
        return {
            "ranker": self.ranker,
            "collection": str(self.collection),
            **{name: getattr(self.forget, name) for name in RECORDED},
            "target": self.target,
            "references": list(self.references),
            "keep_at_least": self.keep_at_least,
            "strict": self.strict,
            "audit_queries": self.audit_queries,
            **({} if self.fast else {"fast": False}),  # earlier versions had no such options
            **({"proxies": self.forget.proxies} if self.forget.proxies else {}),
            **({"adapt": self.forget.adapt, "as": self.forget.saved_as} if self.forget.adapt else {}),
            **({"audit_proxies": list(self.audit_proxies)} if self.audit_proxies else {}),
            "ranker_files": folder_hash(Path(self.ranker)),
            "collection_fingerprint": collection.fingerprint,
            "requests": [request.id for request in batch.requests],
            "removed": batch.removal.counts,
        }


def _absolute_name(name: str) -> str:
    """Return the absolute path of a folder; a hub id unchanged."""
    return str(Path(name).resolve()) if exists(Path(name)) else name
