"""Freezing: forgetting that leaves the document side as it is, so that an index of stored vectors outlives it."""

from __future__ import annotations

from typing import Literal, get_args

from unrank.engine.tokens import TokenStore
from unrank.errors import UnknownName, UnrankError
from unrank.methods.base import Method
from unrank.rankers.base import Ranker

Freeze = Literal["documents"]


def check_freeze(freeze: Freeze | None, ranker: Ranker | type[Ranker], method: Method) -> None:
    """Refuse what cannot be frozen before any work is done."""
    if freeze is None:
        return
    if freeze not in get_args(Freeze):
        raise UnknownName("side to freeze", freeze, get_args(Freeze))
    if method.start != "original":
        raise UnrankError(f"{method.name} begins anew, so it cannot keep the documents' vectors: leave --freeze out")
    if not ranker.separable:
        raise UnrankError(f"a {ranker.kind} stores no vectors of documents, so there are none to --freeze")


def freeze_side(student: Ranker, freeze: Freeze | None) -> None:
    """Let queries alone move, if that is asked for."""
    if freeze is not None:
        student.freeze_documents()


def keep_frozen(store: TokenStore, original: Ranker, student: Ranker, freeze: Freeze | None) -> None:
    """Encode no document twice: what is frozen is the original's, for both."""
    if freeze is not None:
        store.keep("document", original, student)


def encoded_sides(ranker: Ranker, freeze: Freeze | None) -> tuple[int, ...]:
    """The sides of a pair (0 the query, 1 the document) whose texts are encoded apart from each other, and anew."""
    if not ranker.separable:
        return ()
    return (0,) if freeze is not None else (0, 1)


def index_stays_valid(ranker: Ranker, freeze: Freeze | None, moved: bool) -> bool | None:
    """Whether document vectors that were stored with the original serve the student too; None where none are."""
    return (freeze is not None or not moved) if ranker.separable else None
