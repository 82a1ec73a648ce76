"""Proxies: rankers that never saw a request, trained cheaply, to find out where its pairs belong.

A proxy starts from the base of the original, and learns kept pairs for a few epochs. Its own rankings are worse than
the original's. But it ranks what it never saw much as a retrained ranker does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from unrank.collection.collection import Pairs
from unrank.collection.folds import held_part
from unrank.collection.partition import Partition, named, reserved_documents, reserved_queries
from unrank.collection.removal import Removal
from unrank.disk import exists
from unrank.engine.checkpoint import digest
from unrank.engine.loop import fit
from unrank.errors import UnrankError, count
from unrank.forgetting.previous_requests import recognised_among
from unrank.forgetting.provenance import Reference
from unrank.forgetting.train import Recipe
from unrank.forgetting.validation import Base
from unrank.forgetting.workspace import Workspace
from unrank.methods.task import no_base
from unrank.owner import recall, recall_all, remember
from unrank.rankers import create_ranker, load_ranker
from unrank.rankers.base import Ranker
from unrank.record import RECORD, RETRAIN, Check, Record, requests_of, reserved_in, sealed_by_owner

OutOfTime = Callable[[float], bool]
"""Decides whether a run has no time left; it is given the seconds since the last pause."""
PROXY_EPOCHS, LONGER = 2, 4
"""The epochs that a proxy is trained for, and those of a prepared one or of one for a small request: its places are
nearer to those of retrained rankers, and few forgetting steps leave the time for it."""
SMALL_SHARE = 0.05
"""The largest share of the training pairs that a small request removes."""
NEVER = 1.0
"""An MRR on training queries that ends no training early."""
MOST_KEPT = 20_000
"""The most kept pairs that a proxy is trained on when it is made for one request."""
STEERING = 2
"""The most remembered proxies that say where a pair belongs; more are left to judge the run."""
STATE_KIND = "proxies"
"""The kind of the fact, in the owner's state folder, that says where proxies are."""


@dataclass(frozen=True)
class Proxy:
    """A ranker that never saw some of the forget pairs."""

    ranker: Ranker
    never_saw: NDArray[np.bool_]
    """For each forget pair, in the order of the partition."""
    source: Literal["made", "prepared", "reference"]
    epochs: int
    """The number of epochs that it was trained for; 0 if that is not known."""
    reserves: bool = True
    """Whether it never saw the reserved queries either."""

    @property
    def retrained(self) -> bool:
        """Whether it was trained for longer than a proxy is, so that its margins need no calibration."""
        return self.source == "reference" and not 0 < self.epochs <= PROXY_EPOCHS


def usual_epochs(partition: Partition) -> int:
    """Return the epochs of a proxy that is made for a request."""
    removed = len(partition.forget)
    return LONGER if removed <= SMALL_SHARE * (removed + len(partition.retain)) else PROXY_EPOCHS


def make_proxy(
    workspace: Workspace,
    ranker: Ranker,
    base: str | None,
    seed: int,
    epochs: int = PROXY_EPOCHS,
    out_of_time: OutOfTime | None = None,
    record: Record | None = None,
) -> Proxy:
    """Train a proxy of a ranker on kept pairs of the workspace, from the base that the ranker was trained from.

    It is trained as the ranker was, if `record` is the ranker's and says so.
    """
    if base is None:
        no_base("initial")
    proxy, recipe = untrained(ranker, base, seed), proxy_recipe(ranker.kind, record, epochs)
    train_proxy(proxy, workspace, sample_kept(workspace.partition, MOST_KEPT, seed), seed, recipe, out_of_time)
    return Proxy(proxy, np.ones(len(workspace.partition.forget), bool), "made", epochs)


def untrained(ranker: Ranker, base: str | None, seed: int) -> Ranker:
    """Return a new ranker of the same kind from a base; refuse a base that is the ranker itself."""
    created = create_ranker(ranker.kind, base, seed, ranker.fast)
    if digest(created.state_dict()) == digest(ranker.state_dict()):
        raise UnrankError(f"{base} is the ranker itself: name the model that it was trained from with --base")
    return created


def proxy_recipe(kind: str, record: Record | None = None, epochs: int = PROXY_EPOCHS) -> Recipe:
    """Return how a proxy of a ranker is trained: as the ranker was, for a few epochs at twice the rate, which falls."""
    recipe = Recipe.of(kind, record)
    rate = recipe.method.learning_rate * (1 if recipe.method.falls else 2)
    return replace(recipe, method=replace(recipe.method, epochs=epochs, learning_rate=rate, falls=True, enough=NEVER))


def train_proxy(
    proxy: Ranker,
    workspace: Workspace,
    partition: Partition,
    seed: int,
    recipe: Recipe,
    out_of_time: OutOfTime | None = None,
) -> list[Check]:
    """Train a new ranker in place on the kept pairs of a partition; return the history.

    If time is up before its last step, the run is refused: what is half trained knows no places. States of frozen
    layers stay, because they serve its scores too.
    """
    proxy.to(workspace.runtime.device)
    recipe.freeze(proxy, workspace)
    method = recipe.method
    task = replace(workspace, partition=partition, cache=None).task(proxy)  # no teacher is asked
    schedule, history = replace(method.schedule(seed), over=out_of_time), list[Check]()
    for each in fit(proxy, method.plan(task), schedule, workspace.store, workspace.runtime):
        history.append(Check(each.epochs, each.seconds, losses=each.losses))
        if each.epochs < method.epochs and out_of_time is not None and out_of_time(0.0):
            raise UnrankError(
                f"time was up when {each.epochs / method.epochs:.0%} of the proxy was trained, so nothing was "
                "forgotten: give more --minutes, prepare proxies with 'unrank proxies', or give another --target"
            )
    proxy.requires_grad_(False)
    return history


def sample_kept(partition: Partition, most: int, seed: int) -> Partition:
    """Return the partition with at most this many kept pairs: entangled ones first, then disjoint ones by seed."""
    entangled = _sample(partition.entangled, most, seed)
    return replace(partition, entangled=entangled, disjoint=_sample(partition.disjoint, most - len(entangled), seed))


def _sample(pairs: Pairs, most: int, seed: int) -> Pairs:
    """Return at most this many pairs, in their order."""
    if len(pairs) <= most:
        return pairs
    return pairs[np.sort(np.random.default_rng(seed).permutation(len(pairs))[:most])]


def proxy_of(reference: Reference, workspace: Workspace) -> Proxy | None:
    """Return a retrained reference as a proxy; `None` if nobody knows what it was trained on."""
    if reference.ranker is None or not reference.known:
        return None
    record, forget = reference.record, workspace.partition.forget
    reserves = bool(reserved_in(record, workspace.collection.fingerprint))
    epochs = round(record.epochs) if record else 0
    ranker = reference.ranker.to(workspace.runtime.device)
    return Proxy(ranker, np.ones(len(forget), bool), "reference", epochs, reserves)


def tells_places(references: int, base: Base) -> bool:
    """Return whether the first of some retrained references should tell the places, and not judge the run.

    It should if two others are left to judge, or if no proxy can be made.
    """
    return references > 2 or base.place is None


def gather_proxies(
    workspace: Workspace,
    ranker: Ranker,
    base: Base,
    seed: int,
    *,
    reference: Reference | None = None,
    given: Path | None = None,
    epochs: int | None = None,
    out_of_time: OutOfTime | None = None,
    record: Record | None = None,
) -> list[Proxy]:
    """Return proxies of which each forget pair has one that never saw it: the reference, or prepared ones.

    If the prepared ones saw some pair, one more is trained now, as the ranker was (`record`). If the base is not known
    then, the list is empty.
    """
    known = proxy_of(reference, workspace) if reference is not None else None
    if known is not None and given is None:
        return [known]
    found = find_proxies(workspace, ranker, base.digest, given)
    if found and np.any([proxy.never_saw for proxy in found], axis=0).all():
        return found
    if base.place is None:
        return []
    epochs = epochs or usual_epochs(workspace.partition)
    return [*found, make_proxy(workspace, ranker, base.place, seed, epochs, out_of_time, record)]


@dataclass(frozen=True)
class Foreseen:
    """The proxies that a run would use. Without any, places are estimated."""

    prepared: int = 0
    made: bool = False
    """Whether one would be trained."""
    reference: bool = False
    """Whether a retrained reference would serve as the proxy."""

    @property
    def number(self) -> int:
        return self.prepared + self.made + self.reference

    def __str__(self) -> str:
        if not self.number:
            return "places can only be estimated: the base of the ranker is not known; name it with --base"
        prepared = [f"{count(self.prepared, 'prepared proxy')}"] if self.prepared else []
        made = ["a proxy that is trained first, without what is removed"] if self.made else []
        return f"places are those of {' and '.join([*prepared, *made]) or 'the reference'}"


def foresee_proxies(
    workspace: Workspace, kind: str, base: Base, *, given: Path | None = None, known_reference: bool = False
) -> Foreseen:
    """Return the proxies that `gather_proxies` would return, by their records alone."""
    if known_reference and given is None:
        return Foreseen(reference=True)
    fingerprint, never_saw = workspace.collection.fingerprint, []
    if given is not None:
        check_proxies(given, kind, base.digest, fingerprint)
    folders = [given] if given else remembered_proxies(proxies_key(kind, base.digest, fingerprint))
    for place in (place for folder in folders for place in proxy_folders(folder)):
        with suppress(UnrankError):  # a run says why it leaves one out
            unseen = unseen_pairs(workspace, read_proxy(place, kind, base.digest, fingerprint))
            never_saw += [unseen] if unseen.any() else []
    whole = bool(never_saw) and bool(np.any(never_saw, axis=0).all())
    number = len(never_saw) if given is not None else sum(few_per_pair(never_saw))
    return Foreseen(number, made=not whole) if whole or base.place else Foreseen()


def find_proxies(
    workspace: Workspace, ranker: Ranker, base_digest: str | None, given: Path | None = None
) -> list[Proxy]:
    """Return the prepared proxies of a ranker that never saw some of the forget pairs.

    They are in the folder that is given, or in those that this owner remembers. A given one that does not fit is
    refused; a remembered one is left out, and the reason is shown. `base_digest` is that of the ranker's base.
    """
    key = proxies_key(ranker.kind, base_digest, workspace.collection.fingerprint)
    if given is not None:
        check_proxies(given, ranker.kind, base_digest, workspace.collection.fingerprint)
    places = [place for folder in ([given] if given else remembered_proxies(key)) for place in proxy_folders(folder)]
    found = []
    for place in places:
        try:
            if proxy := load_proxy(place, workspace, ranker, base_digest):
                found.append(proxy)
        except UnrankError as error:
            if given is not None:
                raise
            workspace.runtime.progress.say(f"a proxy is not used: {error}")
    if given is not None:
        remember_proxies(key, given)
        return found
    taken = few_per_pair([proxy.never_saw for proxy in found])
    return [proxy for proxy, take in zip(found, taken, strict=True) if take]


def few_per_pair(never_saw: Sequence[NDArray[np.bool_]], most: int = STEERING) -> list[bool]:
    """Choose among the pairs that each proxy never saw: a pair has at most this many, unless others need them.

    Those that are left may judge the run.

    >>> every, first = np.array([True, True]), np.array([True, False])
    >>> few_per_pair([first, every, every, first]), few_per_pair([every, every])
    ([True, True, True, False], [True, True])
    """
    number, chosen = np.zeros(len(never_saw[0]) if never_saw else 0, np.int64), []
    for marks in never_saw:
        chosen.append(bool((number[marks] < most).any()))
        number += marks & chosen[-1]
    return chosen


def load_proxy(folder: Path, workspace: Workspace, ranker: Ranker, base_digest: str | None) -> Proxy | None:
    """Return a prepared proxy that fits a ranker; `None` if it saw all of the forget pairs."""
    record = read_proxy(folder, ranker.kind, base_digest, workspace.collection.fingerprint)
    never_saw = unseen_pairs(workspace, record)
    if not never_saw.any():
        return None
    check_sealed(folder)
    loaded = load_ranker(folder, ranker.fast).to(workspace.runtime.device).requires_grad_(False)
    return Proxy(loaded, never_saw, "prepared", round(record.epochs))


def check_proxies(given: Path, kind: str, base_digest: str | None, fingerprint: str) -> None:
    """Refuse a folder without proxies, or with one of another kind, base or collection."""
    places = proxy_folders(given)
    if not places:
        raise UnrankError(f"--proxies {given}: no proxies are there; make some with 'unrank proxies'")
    for place in places:
        read_proxy(place, kind, base_digest, fingerprint)


def proxy_folders(folder: Path) -> list[Path]:
    """Return the folders of the proxies in a folder, in the order of their names."""
    return sorted(place for place in folder.iterdir() if (place / RECORD).is_file()) if folder.is_dir() else []


def read_proxy(folder: Path, kind: str, base_digest: str | None, fingerprint: str | None) -> Record:
    """Return the record of a proxy; refuse one of another kind, base or collection. `None` is any collection."""
    record, wrong = Record.read(folder), ""
    if record is None or not (record.held_out or requests_of(record)) or record.method != RETRAIN:
        wrong = "not a proxy: its record does not say what it never saw"
    elif record.ranker != kind:
        wrong = f"a proxy of a {record.ranker}, and the ranker is a {kind}"
    elif base_digest is None or record.base_digest != base_digest:
        wrong = "not known to have the base of the ranker; name the base with --base"
    elif fingerprint is not None and record.collection.fingerprint != fingerprint:
        wrong = "a proxy of another collection; 'unrank proxies --rebuild' trains it again"
    if wrong or record is None:
        raise UnrankError(f"{folder}: {wrong}")
    return record


def check_sealed(folder: Path) -> None:
    """Refuse a proxy whose record or files are not as this owner wrote them."""
    if not sealed_by_owner(folder):
        raise UnrankError(
            f"{folder}: its record does not have this owner's seal, or a file was changed since, so nobody knows what "
            "it never saw; remove it, and make it again with 'unrank proxies'"
        )


def unseen_pairs(workspace: Workspace, record: Record) -> NDArray[np.bool_]:
    """Mark the forget pairs of which a prepared proxy never saw what the removal names: query, document or both.

    Of a pair that is named by itself it must not have seen the query, the document or the pair.
    """
    collection, forget, removal = workspace.collection, workspace.partition.forget, workspace.removal
    assert removal is not None
    queries, documents = collection.queries, collection.documents
    asked = Removal(queries.ids(np.unique(forget[:, 0])), documents.ids(np.unique(forget[:, 1])))
    asked |= Removal(pairs=collection.pair_ids(forget))
    unseen = held_part(asked, record.held_out) | recognised_among(asked, requests_of(record))
    gone, gone_queries, gone_documents = named(collection, unseen)
    if reserved_in(record, collection.fingerprint):
        gone_queries = np.union1d(gone_queries, reserved_queries(collection))
        gone_documents = np.union1d(gone_documents, reserved_documents(collection))
    of_query = np.isin(forget[:, 0], queries.rows(removal.queries))
    of_document = np.isin(forget[:, 1], documents.rows(removal.documents))
    never_query, never_document = np.isin(forget[:, 0], gone_queries), np.isin(forget[:, 1], gone_documents)
    never_pair = never_query | np.isin(collection.pair_keys(forget), collection.pair_keys(collection.pairs[gone]))
    by_part = (~of_query | never_query) & (~of_document | never_document)
    return np.where(of_query | of_document, by_part, never_pair)


def proxies_key(kind: str, base_digest: str | None, fingerprint: str) -> str:
    """Return what proxies are remembered by. All rankers of a kind, a base and a collection have the same."""
    return f"{kind} {base_digest} {fingerprint}"


def remember_proxies(key: str, folder: Path) -> None:
    """Keep the place of proxies in the owner's state folder, beside the places that still exist."""
    places = dict.fromkeys([*map(str, remembered_proxies(key)), str(folder.resolve())])
    remember(STATE_KIND, key, "\n".join(places))


def remembered_proxies(key: str | None = None) -> list[Path]:
    """Return the remembered folders of proxies that still exist: those of a key, or all."""
    facts = recall_all(STATE_KIND) if key is None else [recall(STATE_KIND, key) or ""]
    places = dict.fromkeys(place for fact in facts for place in fact.split("\n") if place)
    return [Path(place) for place in places if exists(Path(place))]
