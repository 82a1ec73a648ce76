"""The options of an import. The flags of `unrank import` are made from these fields, without numpy or pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from unrank.errors import UnknownName, UnrankError

SEVERAL_DOCUMENTS, SHARING_DOCUMENTS = "queries-with-several-documents", "queries-sharing-documents"
CONSTRUCTIONS = (SEVERAL_DOCUMENTS, SHARING_DOCUMENTS)
"""The paper's constructions of a collection, to forget documents and to forget queries."""
SEEDS = 2**63
KEEP = (
    f"Keep only some training queries: {SEVERAL_DOCUMENTS} (to forget documents) or {SHARING_DOCUMENTS} (to forget "
    "queries). Repeatable."
)


def flag(default: Any, text: str, **more: Any) -> Any:
    """Return a field with the help text of its flag, and how the flag is read."""
    return field(default=default, metadata={"help": text, **more})


def check_whole(name: str, value: object, least: int | None = None) -> None:
    """Refuse what is no whole number, or less than `least`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UnrankError(f"{name} must be a whole number, not {value!r}")
    if least is not None and value < least:
        raise UnrankError(f"{name} must be at least {least}, not {value}")


def check_names(name: str, values: Sequence[str]) -> None:
    """Refuse one text in place of several."""
    if isinstance(values, str):
        raise UnrankError(f"{name} must be a list, not one text: [{values!r}]")


def check_seed(seed: int) -> int:
    """Refuse a number that is no seed."""
    check_whole("the seed", seed)
    if not 0 <= seed < SEEDS:
        raise UnrankError(f"the seed {seed} is out of range: give one from 0 to 2**63 - 1")
    return seed


def seed_flag() -> Any:
    """Return the field of a seed."""
    return flag(0, "The seed of every random choice.", min=0, callback=check_seed)


@dataclass(frozen=True)
class ImportOptions:
    """How a source becomes a collection."""

    candidates: int = flag(100, "Negatives in each query's list; 0 for none.")
    test_split: str | None = flag(None, "The split to test on; by default 'test', if there is another to train on.")
    test_share: float | None = flag(None, "The share of the queries to test on, instead of a split.")
    min_grade: int = flag(1, "The lowest grade that counts as relevant in training.")
    test_min_grade: int = flag(1, "The lowest grade that counts as relevant in testing.")
    relevant: int = flag(25, "Maximal number of relevant documents in a training query's list.")
    train_queries: int | None = flag(None, "Keep only this many training queries, sampled; those of --keep first.")
    test_queries: int | None = flag(None, "Keep only this many test queries, sampled.")
    seed: int = seed_flag()
    keep: Sequence[str] = flag((), KEEP, metavar="CONSTRUCTION", type=list[str] | None, read=tuple)

    def __post_init__(self) -> None:
        least = {"candidates": 0, "relevant": 1, "train_queries": 1, "test_queries": 1}
        for name in (*least, "min_grade", "test_min_grade"):
            if (value := getattr(self, name)) is not None:
                check_whole(name.replace("_", " "), value, least.get(name))
        if self.test_share is not None and not 0 < self.test_share < 1:
            raise UnrankError(f"a test share of {self.test_share:g} is not possible: give one between 0 and 1")
        if self.test_share is not None and self.test_split is not None:
            raise UnrankError("give a test split or a test share, not both")
        check_seed(self.seed)
        check_names("keep", self.keep)
        for name in self.keep:
            if name not in CONSTRUCTIONS:
                raise UnknownName("construction to keep", name, CONSTRUCTIONS)
