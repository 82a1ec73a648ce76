"""Validation: refuse what cannot be done, make the student, and identify the run, before any work is done."""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import get_args

from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.collection.texts import Rows
from unrank.disk import exists
from unrank.engine.checkpoint import Facts, digest
from unrank.engine.tokens import TokenStore
from unrank.errors import BadFile, UnknownName, UnrankError
from unrank.evaluation.scorecard import MOST_QUERIES
from unrank.forgetting.options import ForgetOptions, Freeze
from unrank.forgetting.previous_requests import union
from unrank.forgetting.target import PLACES, beyond_of, check_target
from unrank.forgetting.workspace import Workspace
from unrank.methods.base import Method
from unrank.owner import recall, remember
from unrank.rankers import base_hash, create_ranker, public_name, ranker_class
from unrank.rankers.adapter_folder import check_apart
from unrank.rankers.base import Ranker
from unrank.rankers.layers import Layers, read_layers, train_layers_of
from unrank.rankers.lora import add_adapter, share_weights
from unrank.record import AdapterOf, Record, versions


def check_request(
    workspace: Workspace, ranker: Ranker, method: Method, options: ForgetOptions, reference: Ranker | None
) -> None:
    """Refuse a target, a reference or options that do not fit the ranker, the method or the collection."""
    check_freeze(options.freeze, ranker, method)
    check_adapt(options, ranker, method)
    if method.needs_substitutes and not workspace.partition.substitutes:
        raise UnrankError(
            f'{method.name} needs substitutes: name them in the file of --removal, as "substitutes": {{"old": "new"}}'
        )
    if method.needs_substitutes and not workspace.partition.substitute_pairs[1].any():
        raise UnrankError(
            f"{method.name} has nothing to raise: no removed document with a substitute answers a training query that "
            "is to be forgotten; use cocol"
        )
    check_target(options.target, workspace.collection, workspace.partition, reference is not None)
    if reference is not None and reference.kind != ranker.kind:
        raise UnrankError(f"the reference is a {reference.kind}, the ranker a {ranker.kind}: they cannot be compared")
    if method.run_kind != "steered" and beyond_of(options.target) is not None:
        raise UnrankError(f"{method.name} has no target to stop at, so it takes no {options.target}: use cocol")
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


def check_adapt(options: ForgetOptions, ranker: Ranker, method: Method) -> None:
    """Refuse an adapter for a method that trains none, and one apart whose ranker could not be found again."""
    if options.adapt is None:
        return
    if method.start != "original" or method.run_kind != "steered":
        raise UnrankError(
            f"{method.name} takes no steps from the ranker to a target, so it takes no --adapt: use cocol"
        )
    if options.saved_as == "merged":
        return
    if options.freeze is not None:
        raise UnrankError("--as adapter takes no --freeze: an adapter changes both sides; use --as merged")
    check_apart(ranker)


def check_base(kind: str, given: str | None) -> None:
    """Refuse a base that cannot be loaded, whether the method needs it or only the record names it."""
    if given is not None:
        create_ranker(kind, given, 0)


@dataclass(frozen=True)
class Base:
    """The model that a ranker was trained from."""

    name: str | None = None
    """Its public name, as records have it."""
    digest: str | None = None
    """A hash of its files."""
    place: str | None = None
    """A folder, a file or a name by which it can be loaded; `None` if it is not known."""
    warning: str | None = None
    """One line that says why it is not known, if it was once."""

    def is_named_by(self, record: Record | None) -> bool:
        """Return whether a record names this model by its hash."""
        return record is not None and self.digest is not None and self.digest == record.base_digest


def find_base(ranker: Ranker, method: Method, given: str | None, record: Record | None) -> Base:
    """Return the model that the ranker was trained from.

    It is the one that is given, the one that this owner remembers, or the one that its record names. A place whose
    files have changed is not used.
    """
    if given:
        digest = base_hash(ranker.kind, given)
        if record and record.base_digest not in (None, digest):
            raise UnrankError(
                f"--base {given} is not the model that the ranker was trained from: its files are not those of "
                f"{record.base}, as the record has them; name that model, or leave --base out"
            )
        return Base(public_name(ranker.kind, given), digest, given)
    base = remembered_base(ranker.kind, record) if record else Base()
    if base.place or not method.needs_base:
        return base
    needed = f"{method.name} needs the model that the ranker was trained from"
    if base.warning:
        raise UnrankError(f"{needed}; {base.warning}")
    if not base.name:
        raise UnrankError(f"{needed}: name it with --base")
    try:
        create_ranker(ranker.kind, base.name, 0)
    except BadFile as error:
        raise UnrankError(
            f"{needed}; {base.name!r}, as its record calls it, is not here: say where with --base"
        ) from error
    return replace(base, place=base.name)


def remembered_base(kind: str, record: Record) -> Base:
    """Return the base of a record, with its place if its files are there and as they were.

    A record of an earlier version has no digest: then only the default base is looked for.
    """
    base = Base(record.base, record.base_digest)
    place = recall("base", base.digest) if base.digest else None
    for tried in filter(None, (place, base.name)):
        try:
            is_default = tried == ranker_class(kind).default_base
            if tried == place or is_default:
                found = base_hash(kind, None if is_default else tried)
                if base.digest in (None, found):
                    return replace(base, digest=found, place=tried)
        except UnrankError:
            continue
    warning = f"its base was at {place}, which is gone or has changed: say where it is with --base" if place else None
    return replace(base, warning=warning)


def remember_base(kind: str, base: str | None) -> str:
    """Remember the place of a base, and return its digest. A place that is still there stays."""
    digest = base_hash(kind, base)
    place = base or ranker_class(kind).default_base
    known = recall("base", digest)
    if known is None or not exists(Path(known)):
        remember("base", digest, str(Path(place).resolve()) if exists(Path(place)) else place)
    return digest


def adapter_of(ranker: Ranker, options: ForgetOptions) -> AdapterOf | None:
    """Return the ranker that an adapter apart is for, and remember its place; `None` if a whole ranker is written."""
    if options.saved_as != "adapter" or options.rank is None:
        return None
    digest = remember_base(ranker.kind, ranker.source)
    return AdapterOf(public_name(ranker.kind, ranker.source), digest, options.rank)


def layers_of(options: ForgetOptions) -> Layers | None:
    """Return the choice of layers; `None` for all."""
    return read_layers(str(options.train_layers)) if options.train_layers is not None else None


def make_student(ranker: Ranker, method: Method, base: Base, options: ForgetOptions) -> Ranker:
    """Return the model that the method changes, with only the chosen layers trainable."""
    fresh = method.start != "original"
    if fresh:
        student = create_ranker(ranker.kind, base.place, options.seed, ranker.fast)
    else:
        student = copy.deepcopy(ranker) if options.adapt is None else share_weights(ranker)
    restrict(student, options)
    return student


def restrict(student: Ranker, options: ForgetOptions) -> None:
    """Make only the chosen side and layers of a student trainable, or an adapter on them."""
    freeze_side(student, options.freeze)
    if (layers := layers_of(options)) is not None:
        train_layers_of(student, layers)
    if options.rank is not None:
        add_adapter(student, options.rank, options.seed)


def freeze_side(student: Ranker, freeze: Freeze | None) -> None:
    """Train the query side alone, if that is asked for."""
    if freeze is not None:
        student.freeze_documents()


def keep_frozen(
    store: TokenStore, original: Ranker, student: Ranker, freeze: Freeze | None, cleared: Rows | None = None
) -> None:
    """Encode each document once if documents are frozen: the student's vectors are the original's.

    If rows of the vocabulary are cleared, those of the removed documents (`cleared`) are not.
    """
    if freeze is None:
        return
    if cleared is not None and not store.keeps_for(original):
        store.keep("document", student)
    else:
        store.keep("document", original, student, again=cleared)


def encoded_sides(ranker: Ranker, freeze: Freeze | None) -> tuple[int, ...]:
    """Return the sides of a pair (0 the query, 1 the document) whose texts the student encodes on their own."""
    if not ranker.separable:
        return ()
    return (0,) if freeze is not None else (0, 1)


def fingerprint(
    job: str,
    ranker: Ranker,
    collection: Collection,
    removal: Removal | None,
    method: Method,
    seed: int,
    more: Facts | None = None,
    weights: str | None = None,
) -> Facts:
    """Return everything that the final weights follow from, by the names that users know; files by their hashes.

    A checkpoint may be resumed by a run with the same fingerprint, and by no other. `weights` is the hash of the
    ranker's weights, if it is known.
    """
    facts = {
        "job": job,
        "ranker": ranker.kind,
        "weights": weights or weights_hash(ranker),
        "collection": collection.fingerprint,
        "removal": removal_hash(removal) if removal is not None else None,
        "method": method.name,
        **asdict(method),
        "seed": seed,
        **(more or {}),
        **versions(),
    }
    as_stored: Facts = json.loads(json.dumps(facts))
    return as_stored


def run_fingerprint(
    workspace: Workspace,
    ranker: Ranker,
    method: Method,
    options: ForgetOptions,
    base: Base,
    reference: Ranker | None,
    anchors: str | None = None,
    weights: str | None = None,
) -> Facts:
    """Return the fingerprint of a run that forgets; `anchors` is a hash of what it takes from an anchor file."""
    more = {
        "base": base.digest if base.place else None,
        "target": str(options.target),
        "reference": weights_hash(reference) if reference is not None else None,
        "earlier": removal_hash(union(workspace.previous)),
        "train_layers": layers_of(options),
        "freeze": options.freeze,
        "check_every": options.check_every,
        "minutes": options.minutes,
        "watch": options.watch,
        "measure": MOST_QUERIES if options.measure is None else options.measure,
    }
    if anchors is not None:
        more["anchors"] = anchors
    if options.rank is not None:
        more |= {"adapt": f"lora:{options.rank}", "as": options.saved_as}
    if beyond_of(options.target) is not None:
        more["keep_at_least"] = options.keep_at_least
    if options.target == PLACES:
        proxies = options.proxies and str(Path(options.proxies).resolve())
        more |= {"proxies": proxies, "proxy_epochs": options.proxy_epochs}
    of = (ranker, workspace.collection, workspace.removal, method, options.seed)
    return fingerprint("forget", *of, more, weights)


def weights_hash(ranker: Ranker) -> str:
    return digest(dict(ranker.named_parameters()))


def removal_hash(removal: Removal) -> str:
    return hashlib.sha256(json.dumps(asdict(removal)).encode()).hexdigest()
