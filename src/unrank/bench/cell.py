"""A cell: one run of one method; and the original, the trained ranker that it begins with.

Each has a name on disk, a hash of all that it depends on. Where a collection lies, how it and the base are called and
how the grid spelled a method make no difference to a result, so they are not in the hash.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import unrank
from unrank.collection.removal import Kind
from unrank.forgetting.freezing import Freeze
from unrank.forgetting.run import Pace
from unrank.forgetting.target import OF_REFERENCE
from unrank.methods.base import Method
from unrank.methods.retrain import Retrain
from unrank.rankers.layers import Layers
from unrank.record import CELL_FORMAT

NAME_LENGTH = 20
UNWATCHED = Pace(watch=0)
"""The pace of a method that is not steered."""


@dataclass(frozen=True)
class Original:
    """A ranker, trained on a whole collection."""

    folder: Path
    collection: str
    fingerprint: str
    ranker: str
    base: str | None
    base_name: str
    base_sha256: str
    training: Retrain
    seed: int

    def identity(self) -> dict[str, Any]:
        return {
            "format": CELL_FORMAT,
            "unrank": unrank.__version__,
            "fingerprint": self.fingerprint,
            "ranker": self.ranker,
            "base_sha256": self.base_sha256,
            "training": asdict(self.training),
            "seed": self.seed,
        }

    @cached_property
    def name(self) -> str:
        return _hash(self.identity())

    def __str__(self) -> str:
        return f"{self.collection}, {self.ranker}, seed {self.seed}"


@dataclass(frozen=True)
class Cell:
    """One run of one method."""

    original: Original
    removal: Kind
    share: float
    removal_seed: int
    method: Method
    preset: str | None
    label: str
    target: str | None
    pace: Pace
    recovery: bool
    train_layers: Layers | None = None
    freeze: Freeze | None = None

    def identity(self) -> dict[str, Any]:
        return self.original.identity() | {
            "removal": self.removal,
            "share": self.share,
            "removal_seed": self.removal_seed,
            "method": self.method.name,
            "settings": asdict(self.method) | self._kept_still(),
            "target": self.target,
            **asdict(self.pace),
            "recovery": self.recovery,
        }

    def _kept_still(self) -> dict[str, Any]:
        """What may not move, where anything may not."""
        told = {"train_layers": self.train_layers, "freeze": self.freeze}
        return {name: value for name, value in told.items() if value is not None}

    @cached_property
    def name(self) -> str:
        return _hash(self.identity())

    @cached_property
    def yardstick(self) -> Cell | None:
        """The retrained ranker that the destination is measured on."""
        if self.target not in OF_REFERENCE:
            return None
        training = self.original.training
        whole = replace(self, train_layers=None, freeze=None)
        return replace(whole, method=training, preset=None, label=training.name, target=None, pace=UNWATCHED)

    def describe(self) -> dict[str, Any]:
        """What the cell is, for people and for the report."""
        names = {"collection": self.original.collection, "base": self.original.base_name}
        return names | {"label": self.label, "preset": self.preset} | self.identity()

    def __str__(self) -> str:
        aim = f" to {self.target}" if self.target else ""
        return (
            f"{self.original.collection}, {self.original.ranker}, {100 * self.share:g} % of {self.removal}, "
            f"{self.label}{aim}, seed {self.original.seed}"
        )


def _hash(identity: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:NAME_LENGTH]
