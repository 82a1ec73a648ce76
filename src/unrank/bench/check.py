"""What is bound to fail is refused before anything is trained: removals, targets and layers that cannot be."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from unrank.bench.cell import Cell
from unrank.bench.job import NO_TARGET
from unrank.collection.collection import open_collection
from unrank.collection.partition import make_partition
from unrank.collection.removal import Kind, Removal
from unrank.errors import UnrankError
from unrank.forgetting.freezing import Freeze, freeze_side
from unrank.forgetting.target import check_target
from unrank.rankers import create_ranker
from unrank.rankers.layers import Layers, train_layers_of


def check_cells(cells: Iterable[Cell]) -> None:
    """Ask of every cell what would be asked when it is run, each thing once."""
    check_removal, check_still = cache(_check_removal), cache(_check_still)
    for cell in cells:
        original = cell.original
        try:
            check_removal(original.folder, cell.removal, cell.share, cell.removal_seed, cell.target)
            if cell.train_layers is not None or cell.freeze is not None:
                check_still(original.ranker, original.base, cell.train_layers, cell.freeze)
        except UnrankError as error:
            raise UnrankError(f"'{cell}' cannot be run: {error}") from error


def _check_removal(folder: Path, kind: Kind, share: float, seed: int, target: str | None) -> None:
    collection = open_collection(folder)
    partition = make_partition(collection, Removal.sample(collection, kind, share, seed))
    check_target(target or NO_TARGET, collection, partition, has_reference=True)


def _check_still(kind: str, base: str | None, layers: Layers | None, freeze: Freeze | None) -> None:
    """Whether a ranker on this base can be kept still there: tried on a fresh one."""
    ranker = create_ranker(kind, base, seed=0)
    freeze_side(ranker, freeze)
    if layers is not None:
        train_layers_of(ranker, layers)
