"""Judges: prepared proxies that may judge a ranker, pair by pair.

A proxy that had a share in the run does not judge it: the ranker was made to agree with that one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unrank.audit.context import AuditedRanker, Judge, Marks
from unrank.collection.collection import Collection, Pairs
from unrank.collection.removal import Removal
from unrank.engine.checkpoint import digest
from unrank.engine.teacher import Teacher
from unrank.forgetting.proxies import check_proxies, check_sealed, proxy_folders, read_proxy, unseen_pairs
from unrank.forgetting.target import OF_REFERENCE
from unrank.forgetting.workspace import Workspace
from unrank.rankers import load_ranker
from unrank.record import Record, reserved_in


@dataclass(frozen=True)
class Judges:
    """The proxies that judge, and the number of those that may not."""

    proxies: tuple[Judge, ...] = ()
    steered: int = 0
    """The number of proxies that were left out because they had a share in the run."""


def steered_by(record: Record | None) -> frozenset[str]:
    """Return hashes of the weights of the rankers that gave a run its places or its target."""
    if record is None:
        return frozenset()
    found = set(record.places.by) if record.places else set()
    if record.target_name in OF_REFERENCE and record.agreement and record.agreement.weights:
        found.add(record.agreement.weights)
    return frozenset(found)


def load_judges(
    folders: Sequence[Path], audited: AuditedRanker, removal: Removal, base_digest: str | None, steered: frozenset[str]
) -> Judges:
    """Load the proxies of some folders; refuse one of another kind, base or collection."""
    workspace, ranker = audited.workspace, audited.ranker
    facts = (ranker.kind, base_digest, workspace.collection.fingerprint)
    found, left_out = list[Judge](), 0
    for folder in folders:
        check_proxies(folder, *facts)
        for place in proxy_folders(folder):
            record = read_proxy(place, *facts)
            check_sealed(place)
            loaded = load_ranker(place, ranker.fast).to(workspace.runtime.device).requires_grad_(False)
            if digest(loaded.state_dict()) in steered:
                left_out += 1
                continue
            teacher = Teacher(loaded, workspace.collection, workspace.store, workspace.runtime)
            reserves = bool(reserved_in(record, workspace.collection.fingerprint))
            found.append(Judge(teacher.scores, marker(workspace, removal, record), reserves))
    return Judges(tuple(found), left_out)


def marker(workspace: Workspace, removal: Removal, record: Record) -> Callable[[Pairs], Marks]:
    """Return a function that marks the pairs that a proxy never saw, as if a request like the removal named them."""

    def marks(pairs: Pairs) -> Marks:
        here = replace(workspace.partition, forget=pairs)
        named = like(removal, workspace.collection, pairs)
        return unseen_pairs(replace(workspace, partition=here, removal=named), record)

    return marks


def like(removal: Removal, collection: Collection, pairs: Pairs) -> Removal:
    """Return the removal of some pairs by what the given one names most: queries, documents, or pairs."""
    named = {name: len(getattr(removal, name)) for name in ("documents", "queries", "pairs")}
    most = max(named, key=lambda name: named[name])
    if most == "queries":
        return Removal(queries=collection.queries.ids(pairs[:, 0]))
    if most == "documents":
        return Removal(documents=collection.documents.ids(pairs[:, 1]))
    return Removal(pairs=collection.pair_ids(pairs))
