"""Previous requests: what earlier runs removed from a ranker, and whether it stays forgotten.

A record names removed ids only as hashes under the owner's key; in version 1, as salted hashes. The ids of a collection
are hashed in the same way and compared.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from unrank.collection.collection import Collection, Pairs
from unrank.collection.folds import held_part
from unrank.collection.partition import NO_PAIRS, Partition, named, reserved_documents, reserved_queries
from unrank.collection.removal import Removal
from unrank.collection.texts import Rows
from unrank.errors import UnrankError, listed
from unrank.evaluation.measure import Floats
from unrank.evaluation.scorecard import Evaluator, Scorer, SetMetrics
from unrank.forgetting.target import PLACES, tolerance
from unrank.methods.base import Method
from unrank.owner import OwnerKey, owner_key
from unrank.rankers import record_of
from unrank.record import (
    CAME_BACK,
    HashedIds,
    PreviousMrr,
    PreviousRequest,
    Record,
    RemovedHashes,
    requests_of,
    reserved_in,
)

if TYPE_CHECKING:
    from unrank.forgetting.workspace import Workspace

Kind = Literal["queries", "documents", "pairs"]
KINDS: tuple[Kind, ...] = get_args(Kind)
DIGITS = 32
"""The length of a hash in a record."""
AT_ONCE = 65_536
"""The number of ids that are hashed at a time."""
SWAY = 0.3
"""The most that a run may raise a previous request's MRR, times the square root of its queries."""


def hashed(removal: Removal) -> RemovedHashes:
    """Return a removal as counts and hashes of its ids under the owner's key; as counts alone if there is no key."""
    name, owner = secrets.token_hex(16), owner_key(make=True)

    def hashes(kind: Kind) -> HashedIds:
        items: Sequence[object] = getattr(removal, kind)
        keyed = owner.macs(f"removed {kind}") if owner else None
        return HashedIds(len(items), tuple(sorted(keyed(_written(item))[:DIGITS] for item in items)) if keyed else ())

    queries, documents, pairs = map(hashes, KINDS)
    return RemovedHashes(name, queries, documents, pairs, owner.name if owner else "")


def recognised(collection: Collection, removed: Sequence[RemovedHashes]) -> Removal:
    """Return the queries, documents and pairs of a collection whose hashes are in these records."""
    return Removal.union(recognised_of_each(collection, removed))


def recognised_of_each(collection: Collection, removed: Sequence[RemovedHashes]) -> list[Removal]:
    """Return what `recognised` does, separately for each removal."""
    queries, documents, pairs = collection.queries, collection.documents, collection.pairs
    found = (
        _found(removed, "queries", queries.ids, len(queries)),
        _found(removed, "documents", documents.ids, len(documents)),
        _found(removed, "pairs", lambda rows: collection.pair_ids(pairs[rows]), len(pairs)),
    )
    return [Removal(*kinds) for kinds in zip(*found, strict=True)]


def recognised_among(removal: Removal, removed: Sequence[RemovedHashes]) -> Removal:
    """Return what a removal names and these records hold hashes of. This needs no collection."""

    def found(kind: Kind) -> list[Any]:
        items: Sequence[Any] = getattr(removal, kind)
        return [
            item for run in _found(removed, kind, lambda rows: [items[row] for row in rows], len(items)) for item in run
        ]

    queries, documents, pairs = map(found, KINDS)
    return Removal(queries, documents, pairs)


def not_recognised(record: Record | None) -> str | None:
    """Say in one line that earlier requests of a ranker cannot be recognised here; `None` if all can be."""
    owner = owner_key()
    removed = [run for run in requests_of(record) if not _is_known(run, owner)]
    if not removed:
        return None
    what = "what this ranker forgot before cannot be recognised here, so it may come back"
    if keys := sorted({run.key for run in removed if run.key}):
        return (
            f"{what}: it was recorded with the owner's key {listed(keys)}; set UNRANK_STATE to the folder that has it"
        )
    return f"{what}: its record was written without an owner's key and holds counts alone"


def _is_known(run: RemovedHashes, owner: OwnerKey | None) -> bool:
    """Return whether ids can be compared with the hashes of a removal."""
    return run.hashed and (not run.key or (owner is not None and owner.name == run.key))


def _found(
    removed: Sequence[RemovedHashes], kind: Kind, items_of: Callable[[Rows], Sequence[Any]], size: int
) -> list[list[Any]]:
    """Return, for each removal, the items whose hashes it has. Each item is hashed once for all removals of a key."""
    owner = owner_key()
    runs_of: dict[str, dict[str, list[int]]] = {}
    """For each key or salt, and each hash, the removals that have it."""
    hash_of: dict[str, Callable[[bytes], str]] = {}
    for number, run in enumerate(removed):
        if _is_known(run, owner):
            name = run.key or run.salt
            hash_of[name] = owner.macs(f"removed {kind}") if owner and run.key else partial(_salted, _start(run.salt))
            for hashed in getattr(run, kind).hashes:
                runs_of.setdefault(name, {}).setdefault(hashed, []).append(number)
    found: list[list[Any]] = [[] for _ in removed]
    for start in range(0, size if runs_of else 0, AT_ONCE):
        items = items_of(np.arange(start, min(start + AT_ONCE, size)))
        written = [_written(item) for item in items]
        for name, runs in runs_of.items():
            hash = hash_of[name]
            for item, text in zip(items, written, strict=True):
                for number in runs.get(hash(text)[:DIGITS], ()):
                    found[number].append(item)
    return found


def _written(item: object) -> bytes:
    return json.dumps(item).encode()


def _start(salt: str) -> hashlib._Hash:
    return hashlib.sha256(f"{salt}:".encode())


def _salted(start: hashlib._Hash, written: bytes) -> str:
    """Return the hash of an item as records of version 1 hold it."""
    whole = start.copy()
    whole.update(written)
    return whole.hexdigest()


@dataclass(frozen=True)
class PreviousRemoval:
    """The ids that an earlier run removed, and its request as the record names it."""

    removal: Removal
    request: PreviousRequest


def previous_removals(collection: Collection, record: Record | None) -> list[PreviousRemoval]:
    """Return the requests in a ranker's record, with the ids of this collection that they removed."""
    requests = requests_of(record)
    return [PreviousRemoval(*each) for each in zip(recognised_of_each(collection, requests), requests, strict=True)]


def union(previous: Iterable[PreviousRemoval]) -> Removal:
    return Removal.union(each.removal for each in previous)


def was_trained_on(collection: Collection, record: Record | None, removal: Removal) -> bool | None:
    """Return whether a ranker with this record was trained on part of a removal; `None` if the record does not say.

    It was not trained on what training left out, and a proxy not on what it held out. It saw no pair whose query or
    document it never saw.
    """
    if record is None or record.collection.fingerprint != collection.fingerprint or not_recognised(record):
        return None
    without = union(each for each in previous_removals(collection, record) if each.request.never_seen)
    if reserved_in(record, collection.fingerprint):
        without |= Removal(
            collection.queries.ids(reserved_queries(collection)),
            collection.documents.ids(reserved_documents(collection)),
        )
    without |= held_part(removal, record.held_out)
    queries, documents = {*without.queries}, {*without.documents}
    seen_pairs = [pair for pair in removal.pairs if pair[0] not in queries and pair[1] not in documents]
    return (without | replace(removal, pairs=seen_pairs)) != without


def check_references(names: Iterable[str], collection: Collection, removal: Removal) -> None:
    """Refuse a reference whose record says that it was trained on what is removed."""
    for name in names:
        if was_trained_on(collection, record_of(name), removal):
            raise UnrankError(f"{name} was trained on what is removed, as its record says: it cannot be a reference")


def fulfilled_goal(
    workspace: Workspace,
    method: Method,
    target: str,
    goal: float,
    now: SetMetrics,
    missed: int | None = None,
    apart: bool = False,
) -> float | None:
    """Return the goal to which every pair was brought before; `None` if some was not, or not to that degree.

    `goal` is the target as a number, `now` the metrics of the forget set. A target that depends on the ranker's own MRR
    counts as the number that the earlier run was brought to. A "training" method asks for a ranker that never saw the
    pairs. `missed` is the number of pairs that miss a goal of their own; `None` if the target is a mean. Places differ
    a little from run to run, so pairs that an earlier run brought to theirs are at them until their mean comes back;
    but not if some pairs are judged by themselves (`apart`), whom a mean does not help.
    """
    previous, removed_by = workspace.previous, partial(covers, workspace)
    if missed is not None and (target != PLACES or not missed):
        return goal if not missed and removed_by(previous) else None
    never_seen = removed_by(each for each in previous if each.request.never_seen)
    if never_seen or method.run_kind == "training":
        return goal if never_seen else None
    alike = [each for each in previous if each.request.target and each.request.target_name == target]
    least = goal
    if removed_by(alike):
        least = max(goal, min(each.request.target or goal for each in alike))
    if missed is not None:
        still = not apart and removed_by(each for each in alike if each.request.reached and not each.request.missed)
        return goal if still and now.mean <= least + CAME_BACK else None
    return least if removed_by(previous) and now.mean <= least + tolerance(len(now.queries)) else None


def covers(workspace: Workspace, previous: Iterable[PreviousRemoval]) -> bool:
    """Return whether these requests removed every pair to forget."""
    collection, keys = workspace.collection, workspace.collection.pair_keys
    gone = collection.pairs[named(collection, union(previous))[0]]
    return bool(np.isin(keys(workspace.partition.forget), keys(gone)).all())


@dataclass(frozen=True)
class RequestRanks:
    """The ranks of the pairs that a previous request brought to a target."""

    pairs: Pairs
    target: float
    reciprocal: Floats
    """The reciprocal rank of each query that has one of the pairs, in the order of their rows."""

    @property
    def above(self) -> float:
        """The distance of the MRR above the target; negative below it."""
        return float(self.reciprocal.mean()) - self.target

    @property
    def risen(self) -> Pairs:
        """The highest pairs that have to fall so that the MRR is below its target by the most a run may raise it."""
        most = len(self.reciprocal) * (self.above + SWAY / len(self.reciprocal) ** 0.5)
        highest = np.argsort(-self.reciprocal, kind="stable")
        before = np.cumsum(self.reciprocal[highest]) - self.reciprocal[highest]
        falling = np.unique(self.pairs[:, 0])[highest[before < most]]
        return self.pairs[np.isin(self.pairs[:, 0], falling)]


@dataclass(frozen=True)
class PreviousRanks:
    """The ranks that a ranker gives to everything that was forgotten before."""

    mrr: float | None
    """The MRR of all of it; `None` if nothing was forgotten before."""
    requests: Sequence[RequestRanks]
    """The ranks for each request that was brought to a target."""

    @classmethod
    def measure(
        cls, score: Scorer, previous: Iterable[PreviousRemoval], collection: Collection, evaluator: Evaluator
    ) -> PreviousRanks:
        """Rank the pairs with these scores. A request counts unless all of its pairs are asked for now."""
        earlier, keys = evaluator.partition.previous, collection.pair_keys
        if not len(earlier):
            return cls(None, [])
        removed = [
            (collection.pairs[named(collection, each.removal)[0]], each.request.target)
            for each in previous
            if each.request.target and each.request.reached
        ]
        counted = [(pairs, target) for pairs, target in removed if np.isin(keys(pairs), keys(earlier)).any()]
        sets = [earlier, *(pairs for pairs, _ in counted)]
        whole, *each_set = evaluator.reciprocals_of_each(score, sets, forget=True)
        ranks = [RequestRanks(*one, reciprocal) for one, reciprocal in zip(counted, each_set, strict=True)]
        return cls(float(whole.mean()), ranks)

    @property
    def above(self) -> float | None:
        """The largest distance of a request above its target."""
        return max((request.above for request in self.requests), default=None)

    def with_risen(self, partition: Partition, collection: Collection, placed: Pairs = NO_PAIRS) -> Partition:
        """Return the partition with the pairs that have to fall again separate from those that may stay.

        A request whose pairs have places (`placed`) has none: they are pulled to their places.
        """
        keys = collection.pair_keys
        by_mean = [each.risen for each in self.requests if not np.isin(keys(each.pairs), keys(placed)).any()]
        falls = np.isin(keys(partition.previous), keys(np.concatenate([NO_PAIRS, *by_mean])))
        return replace(partition, previous=partition.previous[~falls], risen=partition.previous[falls])

    def change_to(self, after: PreviousRanks) -> PreviousMrr | None:
        """Return the record's line: the MRR before and after a run, and the largest distance above a target."""
        if self.mrr is None or after.mrr is None:
            return None
        return PreviousMrr(self.mrr, after.mrr, after.above)
