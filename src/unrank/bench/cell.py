"""The jobs of a bench: originals to train, and cells to run from them.

Each has a name on disk: a hash of everything that its result depends on. The folder of a collection, the names of the
collection and of the base, and the grid's spelling of a method do not change a result, so they are not in the hash.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import unrank
from unrank.bench.method_spec import MethodSpec
from unrank.bench.packed import hash_of
from unrank.collection.collection import Collection
from unrank.collection.removal import Kind, Removal
from unrank.engine.runtime import Device
from unrank.forgetting.options import ForgetOptions, Pace
from unrank.forgetting.target import OF_REFERENCE
from unrank.methods import source_hash
from unrank.methods.base import Method
from unrank.methods.retrain import Retrain
from unrank.record import CELL_FORMAT, Said

SAID = Said()
UNWATCHED = Pace(watch=0)
"""The pace of a method that has no target."""


@dataclass(frozen=True)
class Original:
    """A ranker to train on a whole collection."""

    folder: Path
    collection: str
    fingerprint: str
    ranker: str
    base: str | None
    base_name: str
    base_sha256: str
    training: Retrain
    seed: int
    reserve: bool = True
    """Whether training leaves the reserved queries out."""

    def identity(self) -> dict[str, object]:
        """Return everything that the trained ranker depends on."""
        return {
            "format": CELL_FORMAT,
            "unrank": unrank.__version__,
            "fingerprint": self.fingerprint,
            "ranker": self.ranker,
            "base_sha256": self.base_sha256,
            "training": asdict(self.training),
            "training_source": _source_hash(type(self.training)),
            "seed": self.seed,
            "reserve": self.reserve,
        }

    @cached_property
    def name(self) -> str:
        return hash_of(self.identity())

    @property
    def original(self) -> Original:
        """The original that the job needs: itself."""
        return self

    @property
    def needs(self) -> list[str]:
        """The names of the jobs that must be finished first."""
        return []

    def __str__(self) -> str:
        return f"{self.collection}, {self.ranker}, seed {self.seed}"


@dataclass(frozen=True)
class SampledRemoval:
    """A share of the training pairs to remove, sampled by seed."""

    kind: Kind
    share: float
    seed: int

    def sample(self, collection: Collection) -> Removal:
        """Return the queries or documents to remove."""
        return Removal.sample(collection, self.kind, self.share, self.seed)

    def __str__(self) -> str:
        draw = f", draw {self.seed}" if self.seed else ""
        return f"{100 * self.share:g} % of {self.kind}{draw}"


@dataclass(frozen=True)
class Cell:
    """One run of one method."""

    original: Original
    removal: SampledRemoval
    spec: MethodSpec
    target: str | None
    pace: Pace
    recovery: bool
    said: Said = SAID
    """What the grid said beforehand about the comparison of its methods. It changes no result."""

    @property
    def method(self) -> Method:
        return self.spec.method

    @property
    def label(self) -> str:
        """The method's name in the grid."""
        return self.spec.label

    def identity(self) -> dict[str, object]:
        """Return everything that the result depends on."""
        frozen = {"train_layers": self.spec.train_layers, "freeze": self.spec.freeze}
        return self.original.identity() | {
            "removal": self.removal.kind,
            "share": self.removal.share,
            "removal_seed": self.removal.seed,
            "method": self.method.name,
            "method_source": _source_hash(type(self.method)),
            "settings": asdict(self.method) | {name: value for name, value in frozen.items() if value is not None},
            "target": self.target,
            **asdict(self.pace),
            "recovery": self.recovery,
        }

    @cached_property
    def name(self) -> str:
        return hash_of(self.identity())

    @cached_property
    def retrained(self) -> Cell:
        """The retrained ranker that the cell is compared with."""
        training = self.original.training
        return replace(self, spec=MethodSpec(training, None, training.name), target=None, pace=UNWATCHED)

    @property
    def is_retrained(self) -> bool:
        return self.name == self.retrained.name

    @property
    def reference(self) -> Cell | None:
        """The retrained ranker that the target is measured on; `None` if the target needs none."""
        return self.retrained if self.target in OF_REFERENCE else None

    @property
    def needs(self) -> list[str]:
        """The names of the jobs that must be finished first."""
        return [self.original.name, *([self.reference.name] if self.reference else [])]

    def options(self, target: float | str, device: Device) -> ForgetOptions:
        """Return the options of the run; `target` is the number or name that the cell's target means."""
        return ForgetOptions(
            method=self.method,
            target=target,
            base=self.original.base,
            train_layers=self.spec.train_layers,
            freeze=self.spec.freeze,
            recovery=self.recovery,
            seed=self.original.seed,
            device=device,
        ).changed(pace=self.pace)

    def describe(self) -> dict[str, object]:
        """Return the identity with the names that people and the report use."""
        names: dict[str, object] = {"collection": self.original.collection, "base": self.original.base_name}
        names |= {"label": self.label, "preset": self.spec.preset, "said": asdict(self.said)}
        return names | self.identity()

    def __str__(self) -> str:
        target = f" to {self.target}" if self.target else ""
        original = self.original
        return f"{original.collection}, {original.ranker}, {self.removal}, {self.label}{target}, seed {original.seed}"


Job = Original | Cell
_source_hash = cache(source_hash)
