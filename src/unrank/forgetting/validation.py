"""Validation: refuse what cannot be done, make the student, and identify the run, before any work is done."""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import asdict
from typing import Any, get_args

from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.engine.checkpoint import digest
from unrank.engine.tokens import TokenStore
from unrank.errors import BadFile, UnknownName, UnrankError
from unrank.evaluation.scorecard import MOST_QUERIES
from unrank.forgetting.options import ForgetOptions, Freeze
from unrank.forgetting.previous_requests import union
from unrank.forgetting.target import check_target
from unrank.forgetting.workspace import Workspace
from unrank.methods.base import Method
from unrank.rankers import base_hash, create_ranker
from unrank.rankers.base import Ranker
from unrank.rankers.layers import Layers, read_layers, train_layers_of
from unrank.record import Record, versions


def check_request(
    workspace: Workspace, ranker: Ranker, method: Method, options: ForgetOptions, reference: Ranker | None
) -> None:
    """Refuse a target, a reference or options that do not fit the ranker, the method or the collection."""
    check_freeze(options.freeze, ranker, method)
    check_target(options.target, workspace.collection, workspace.partition, reference is not None)
    if reference is not None and reference.kind != ranker.kind:
        raise UnrankError(f"the reference is a {reference.kind}, the ranker a {ranker.kind}: they cannot be compared")
    if method.run_kind != "steered" and (options.check_every or options.minutes):
        raise UnrankError(f"{method.name} has no target to stop at: it takes no --check-every and no --minutes")


def check_freeze(freeze: Freeze | None, ranker: Ranker | type[Ranker], method: Method) -> None:
    """Refuse to freeze documents if the ranker stores no vectors of them or the method starts again."""
    if freeze is None:
        return
    if freeze not in get_args(Freeze):
        raise UnknownName("side to freeze", freeze, get_args(Freeze))
    if method.start != "original":
        raise UnrankError(f"{method.name} starts again, so it cannot keep the documents' vectors: leave --freeze out")
    if not ranker.separable:
        raise UnrankError(f"a {ranker.kind} stores no vectors of documents, so there are none to --freeze")


def check_base(kind: str, given: str | None) -> None:
    """Refuse a base that cannot be loaded, whether the method needs it or only the record names it."""
    if given is not None:
        create_ranker(kind, given, 0)


def find_base(ranker: Ranker, method: Method, given: str | None, record: Record | None) -> str | None:
    """Return the model that the ranker was trained from: as given, or else as its record names it."""
    recorded = record.base if record else None
    if given or not method.needs_base:
        return given or recorded
    needed = f"{method.name} needs the model that the ranker was trained from"
    if not recorded:
        raise UnrankError(f"{needed}: name it with --base")
    try:
        create_ranker(ranker.kind, recorded, 0)
    except BadFile as error:
        raise UnrankError(
            f"{needed}; {recorded!r}, as its record calls it, is not here: say where with --base"
        ) from error
    return recorded


def layers_of(options: ForgetOptions) -> Layers | None:
    """Return the choice of layers; `None` for all."""
    return read_layers(str(options.train_layers)) if options.train_layers is not None else None


def make_student(ranker: Ranker, method: Method, base: str | None, options: ForgetOptions) -> Ranker:
    """Return the model that the method changes, with only the chosen layers trainable."""
    fresh = method.start != "original"
    student = create_ranker(ranker.kind, base, options.seed, ranker.fast) if fresh else copy.deepcopy(ranker)
    restrict(student, options)
    return student


def restrict(student: Ranker, options: ForgetOptions) -> None:
    """Make only the chosen side and layers of a student trainable."""
    freeze_side(student, options.freeze)
    if (layers := layers_of(options)) is not None:
        train_layers_of(student, layers)


def freeze_side(student: Ranker, freeze: Freeze | None) -> None:
    """Train the query side alone, if that is asked for."""
    if freeze is not None:
        student.freeze_documents()


def keep_frozen(store: TokenStore, original: Ranker, student: Ranker, freeze: Freeze | None) -> None:
    """Encode each document once if documents are frozen: the student's vectors are the original's."""
    if freeze is not None:
        store.keep("document", original, student)


def encoded_sides(ranker: Ranker, freeze: Freeze | None) -> tuple[int, ...]:
    """Return the sides of a pair (0 the query, 1 the document) whose texts the student encodes on their own."""
    if not ranker.separable:
        return ()
    return (0,) if freeze is not None else (0, 1)


def fingerprint(
    job: str, ranker: Ranker, collection: Collection, removal: Removal | None, method: Method, seed: int, **more: Any
) -> dict[str, Any]:
    """Return everything that the final weights follow from, by the names that users know; files by their hashes.

    A checkpoint may be resumed by a run with the same fingerprint, and by no other.
    """
    facts = {
        "job": job,
        "ranker": ranker.kind,
        "weights": weights_hash(ranker),
        "collection": collection.fingerprint,
        "removal": removal_hash(removal) if removal is not None else None,
        "method": method.name,
        **asdict(method),
        "seed": seed,
        **more,
        **versions(),
    }
    as_stored: dict[str, Any] = json.loads(json.dumps(facts))
    return as_stored


def run_fingerprint(
    workspace: Workspace,
    ranker: Ranker,
    method: Method,
    options: ForgetOptions,
    base: str | None,
    reference: Ranker | None,
) -> dict[str, Any]:
    """Return the fingerprint of a run that forgets."""
    return fingerprint(
        *("forget", ranker, workspace.collection, workspace.removal, method, options.seed),
        base=base_hash(ranker.kind, base) if method.needs_base else None,
        target=str(options.target),
        reference=weights_hash(reference) if reference is not None else None,
        earlier=removal_hash(union(workspace.previous)),
        train_layers=layers_of(options),
        freeze=options.freeze,
        check_every=options.check_every,
        minutes=options.minutes,
        watch=options.watch,
        measure=MOST_QUERIES if options.measure is None else options.measure,
    )


def weights_hash(ranker: Ranker) -> str:
    return digest(dict(ranker.named_parameters()))


def removal_hash(removal: Removal) -> str:
    return hashlib.sha256(json.dumps(asdict(removal)).encode()).hexdigest()
