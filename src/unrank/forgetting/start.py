"""Before a run begins: what cannot be is refused, and the model that the method begins with is made."""

from __future__ import annotations

import copy

from unrank.collection.collection import Collection
from unrank.collection.partition import Partition
from unrank.errors import BadFile, UnrankError
from unrank.forgetting.run import Pace
from unrank.forgetting.target import check_target
from unrank.methods.base import Method
from unrank.rankers import create_ranker
from unrank.rankers.base import Ranker
from unrank.record import Record


def check_request(
    ranker: Ranker,
    reference: Ranker | None,
    method: Method,
    target: float | str,
    pace: Pace,
    collection: Collection,
    partition: Partition,
) -> None:
    """Refuse what cannot be, before any work is done for it."""
    check_target(target, collection, partition, reference is not None)
    if reference is not None and reference.kind != ranker.kind:
        raise UnrankError(f"the reference is a {reference.kind}, the ranker a {ranker.kind}: they cannot be compared")
    if method.run_kind != "steered" and (pace.check_every or pace.minutes):
        raise UnrankError(f"{method.name} has no target to be steered to: it takes no --check-every and no --minutes")


def check_base(kind: str, given: str | None) -> None:
    """Refuse a model to start from that is none, whether the method needs it or only the record tells of it."""
    if given is not None:
        create_ranker(kind, given, 0)


def find_base(ranker: Ranker, method: Method, given: str | None, record: Record | None) -> str | None:
    """What the ranker was trained from: as it was given, or else as its record names it."""
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


def make_student(ranker: Ranker, method: Method, base: str | None, seed: int) -> Ranker:
    """The model that a method begins with."""
    if method.start == "original":
        return copy.deepcopy(ranker)
    return create_ranker(ranker.kind, base, seed, ranker.fast)
