"""Frozen splits: the removals that published grids draw, by fingerprint, so that every bench draws the same.

`splits.json` names each draw by its collection's fingerprint, its kind, share and seed, and has a hash of the ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from unrank.collection.removal import Removal
from unrank.disk import read_json
from unrank.errors import BadFile, UnrankError
from unrank.parse import WrongValue, parse

Draw = tuple[str, str, float, int]
"""The fingerprint of a collection, what is removed, the share and the seed."""
FORMAT = 1


@dataclass(frozen=True)
class Split:
    """One draw of a removal."""

    collection: str
    fingerprint: str
    removal: str
    share: float
    seed: int
    removed: int
    """The number of queries or documents."""
    sha256: str

    @property
    def draw(self) -> Draw:
        return self.fingerprint, self.removal, float(self.share), self.seed


def split_hash(removal: Removal) -> str:
    """Return one hash of the ids of a removal.

    >>> split_hash(Removal(queries=["q2", "q1"])) == split_hash(Removal(queries=["q1", "q2"]))
    True
    >>> split_hash(Removal(queries=["a"])) == split_hash(Removal(documents=["a"]))
    False
    """
    hashed = hashlib.sha256()
    for kind in ("queries", "documents"):
        for id in getattr(removal, kind):
            hashed.update(f"{kind} {len(id.encode())} {id}\n".encode())
    return hashed.hexdigest()


def read_splits(path: Path) -> dict[Draw, Split]:
    """Return the splits of a file."""
    value = read_json(path)
    try:
        if not isinstance(value, dict) or value.get("splits_format") != FORMAT:
            raise WrongValue(f"not a file of splits of format {FORMAT}")
        splits: tuple[Split, ...] = parse(tuple[Split, ...], value.get("splits"), "splits")
    except WrongValue as error:
        raise BadFile(path, str(error)) from error
    return {split.draw: split for split in splits}


@cache
def frozen_splits() -> Mapping[Draw, Split]:
    """Return the splits of the published grids."""
    with as_file(files("unrank.bench") / "splits.json") as path:
        return read_splits(path)


def check_split(draw: Draw, found: str, splits: Mapping[Draw, Split] | None = None) -> None:
    """Raise an error if a draw that is frozen gave other ids."""
    frozen = (frozen_splits() if splits is None else splits).get(draw)
    if frozen is not None and frozen.sha256 != found:
        _, removal, share, seed = draw
        raise UnrankError(
            f"the draw of {100 * share:g} % of {removal} by seed {seed} from {frozen.collection} is not the published "
            f"one: its ids have the hash {found[:12]}, the published ones {frozen.sha256[:12]}; use the unrank that "
            "published it"
        )


def splits_to_json(splits: Iterable[Split]) -> dict[str, object]:
    """Return splits as `read_splits` reads them, in a fixed order."""
    ordered = sorted(splits, key=lambda split: (split.collection, *split.draw))
    return {"splits_format": FORMAT, "splits": [vars(split) for split in ordered]}
