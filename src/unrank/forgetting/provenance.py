"""Provenance: what shows that a ranker never saw what is removed.

The record of `unrank train --removal` or of the method `retrain` shows it, on three conditions: it is of the same
collection, this owner sealed it, and every file is as it was then. A name or a claim shows nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.disk import exists, sha256_once
from unrank.errors import UnrankError
from unrank.forgetting.previous_requests import check_references, was_trained_on
from unrank.rankers import base_hash, folder_of, ranker_class, record_of
from unrank.rankers.base import Ranker
from unrank.rankers.encoder import find_encoder, find_model
from unrank.record import RETRAIN, Record, sealed_by_owner

WEIGHTS = ".safetensors"
NAME_BASE = "name with --base the model that the ranker was trained from"


@dataclass(frozen=True)
class Reference:
    """A ranker to compare with, if there is one."""

    ranker: Ranker | None = None
    known: bool = False
    """Whether its provenance is known: its record shows that it never saw what is removed."""
    record: Record | None = None

    @classmethod
    def of(cls, value: Ranker | Reference | None) -> Reference:
        """Return a reference; a ranker alone is one of unknown provenance."""
        return value if isinstance(value, Reference) else cls(value)


def unknown_provenance(
    name: str, collection: Collection, removal: Removal, original: Record | None, base: str | None
) -> str:
    """Return why nobody knows what a reference was trained on; empty if its record shows that it never saw a removal.

    Refuse a reference whose record shows that it saw it. It must have the base of the ranker that has to forget, by
    that one's record (`original`) or as given: from another base it may have begun with anything, even with the ranker.
    """
    folder = folder_of(name)
    record = Record.read(folder)
    if record is None:
        return "it has no record"
    check_references([name], collection, removal)
    if record.held_out is not None:
        return f"it is a proxy of {record.epochs:g} epochs, not a ranker that was retrained in full"
    if record.method != RETRAIN:
        return f"it was made with {record.method}, not trained without what is removed"
    if record.collection.fingerprint != collection.fingerprint:
        return "its record is of another collection"
    if not sealed_by_owner(folder):
        return "its record does not have this owner's seal, or a file was changed since"
    digest = original.base_digest if original else None
    if digest is None and base is not None:
        digest = base_hash(record.ranker, base)
    if digest is None:
        return "the base of the ranker is unknown, so nobody knows what the reference began with: name it with --base"
    return "" if record.base_digest == digest else "it was not trained from the base of the ranker"


def check_retrain_base(kind: str, base: str | None, ranker: str, collection: Collection, removal: Removal) -> None:
    """Refuse to retrain from the ranker itself, or from a model whose record shows that it saw what is removed."""
    if base_saw(base, collection, removal):
        raise UnrankError(f"--base {base} was trained on what is removed, as its record says: {NAME_BASE}")
    check_other_weights(kind, base, ranker)


def check_other_weights(kind: str, base: str | None, ranker: str) -> None:
    """Refuse a base that is the ranker itself: what begins from it has seen what is removed.

    `ranker` is the folder of the ranker; empty if it was made in memory.
    """
    if not ranker:
        return
    theirs = {sha256_once(path) for path in ranker_class(kind).base_files(base) if path.suffix == WEIGHTS}
    own = {sha256_once(path) for path in find_model(ranker).rglob(f"*{WEIGHTS}")}
    if theirs and theirs <= own:
        raise UnrankError(f"--base {base} holds the weights of {ranker} itself, which it has to forget: {NAME_BASE}")


def base_saw(base: str | None, collection: Collection, removal: Removal) -> bool | None:
    """Return whether a base was trained on what is removed; `None` if its record does not say, or if there is no base.

    A base without a record, as most have none, counts as one that was not.
    """
    if base is None:
        return None
    known = base_record(base)
    return was_trained_on(collection, known, removal) if known else False


def base_record(base: str) -> Record | None:
    """Return the record of a base, which may be a ranker of unrank; most bases have none, the default one too."""
    if not (exists(Path(base)) or "/" in base):
        return None
    try:
        return record_of(base if exists(Path(base)) else find_encoder(base))
    except UnrankError:  # it is loaded later, and refused then
        return None
