"""The plan of a grid: its cells, in the order in which they are run. Cells of one original follow each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import cast

from unrank.bench.cell import UNWATCHED, Cell, Original, SampledRemoval
from unrank.bench.grid import Section
from unrank.bench.method_spec import (
    NONE_TUNED,
    PRESET,
    MethodSpec,
    Tuned,
    read_method_spec,
    split_settings,
    tuned_settings,
)
from unrank.bench.runner import NO_TARGET
from unrank.bench.splits import check_split, split_hash
from unrank.collection.collection import Collection, open_collection
from unrank.collection.partition import make_partition
from unrank.collection.removal import Kind
from unrank.errors import UnknownName, UnrankError
from unrank.forgetting.options import Freeze, Pace
from unrank.forgetting.target import check_target
from unrank.forgetting.train import recipe_of
from unrank.forgetting.validation import freeze_side
from unrank.methods import read_settings
from unrank.rankers import base_hash, create_ranker, public_name, ranker_kind, reads_words
from unrank.rankers.layers import Layers, train_layers_of
from unrank.record import Said

MOST_CELLS = 100_000

OpenCollection = Callable[[str], Collection]
HashBase = Callable[[str, str | None], str]


def plan_cells(sections: Mapping[str, Section]) -> list[Cell]:
    """Return the cells of a grid and the retrained rankers that they need. Raise an error if a table would
    show two cells alike, or if one is certain to fail."""
    opened, hashed = cache(open_collection), cache(base_hash)
    cells: dict[str, Cell] = {}
    described: dict[str, Cell] = {}
    labels: dict[Hashable, str] = {}
    for name, section in sections.items():
        if prod(map(len, section.lists)) > MOST_CELLS:
            raise UnrankError(
                f"the section {name!r} of the grid has more than {MOST_CELLS:,} cells: divide it into several grids"
            )
        for cell in _cells(section, opened, hashed):
            if twin := cells.get(cell.name):
                raise UnrankError(f"two cells of the grid are the same: '{twin}' and '{cell}'; take one out")
            _check_description(described, cell)
            _check_label(labels, cell)
            cells[cell.name] = cell
    references = {cell.reference.name: cell.reference for cell in cells.values() if cell.reference is not None}
    for cell in references.values():
        _check_description(described, cell)
    planned = _by_original([*(cells | references).values()])
    check_cells(planned)
    _check_primary(cells.values())
    return planned


def shard_cells(cells: Sequence[Cell], number: int, of: int) -> list[Cell]:
    """Return the cells of one shard, the first being 1, by a hash of what they are, and their retrained rankers'."""
    chosen = [cell for cell in cells if int(cell.name, 16) % of == number - 1]
    names = {name for cell in chosen for name in (cell.name, cell.retrained.name)}
    return [cell for cell in cells if cell.name in names]


def _check_primary(cells: Iterable[Cell]) -> None:
    """Refuse a primary method that no table would compare."""
    there = [cell for cell in cells if cell.method.run_kind != "training"]
    several = len({cell.target for cell in there if cell.target is not None}) > 1
    names = {f"{cell.label} → {cell.target}" if several and cell.target else cell.label for cell in there}
    for primary in {cell.said.primary for cell in there if cell.said.primary} - names:
        raise UnknownName("primary method", primary, sorted(names))


def _check_description(described: dict[str, Cell], cell: Cell) -> None:
    """Raise an error if a table would show this cell and another one alike."""
    other = described.setdefault(str(cell), cell)
    if other.name != cell.name:
        ours, theirs = cell.identity(), other.identity()
        differ = [key for key in ours if ours[key] != theirs[key]]
        raise UnrankError(
            f"two cells of the grid, '{cell}', differ in nothing that a table shows, but in {', '.join(differ)}: give "
            "all sections of the grid the same value, or make two grids"
        )


def _check_label(labels: dict[Hashable, str], cell: Cell) -> None:
    """Raise an error if one method has two labels: a table would show it as two methods."""
    key = (cell.original.ranker, cell.method, cell.spec.train_layers, cell.spec.freeze)
    other = labels.setdefault(key, cell.label)
    if other != cell.label:
        raise UnrankError(f"{other!r} and {cell.label!r} are the same method with the same settings: use one of them")


def _by_original(cells: Sequence[Cell]) -> list[Cell]:
    """Order cells by original, in the order of the grid, and put retrained rankers first, since others need them."""
    place = {name: number for number, name in enumerate(dict.fromkeys(cell.original.name for cell in cells))}
    return sorted(cells, key=lambda cell: (place[cell.original.name], cell.method.run_kind != "training"))


def _cells(section: Section, opened: OpenCollection, hashed: HashBase) -> Iterator[Cell]:
    tuned = tuned_settings(Path(section.settings_from)) if section.settings_from else NONE_TUNED
    pace, said = Pace(section.check_every, section.minutes, section.watch), Said(section.primary, section.margin)
    for folder, ranker, seed in product(section.collections, section.rankers, section.seeds):
        original = _original(section, opened(folder), ranker_kind(ranker), seed, hashed)
        how = (original.ranker, original.training, section.epochs, tuned)
        specs = [read_method_spec(text, *how) for text in section.methods]
        _check_tuned(specs, original, tuned)
        for kind, share, draw, spec in product(section.removals, section.shares, section.removal_seeds, specs):
            removal = SampledRemoval(cast(Kind, kind), share, draw)
            for target in section.destinations if spec.steered else (None,):
                yield Cell(original, removal, spec, target, pace if spec.steered else UNWATCHED, section.recovery, said)


def _check_tuned(specs: Iterable[MethodSpec], original: Original, tuned: Tuned) -> None:
    """Refuse to report on the collection that settings were chosen on."""
    for spec in specs:
        if spec.preset == PRESET:
            found = tuned[spec.method.name, original.ranker]
            if found.fingerprint == original.fingerprint:
                raise UnrankError(
                    f"the settings of {spec.label} were chosen on {original.collection}: run it on another collection"
                )


def _original(section: Section, collection: Collection, kind: str, seed: int, hashed: HashBase) -> Original:
    base = section.words if reads_words(kind) else section.base
    return Original(
        collection.folder,
        collection.name,
        collection.fingerprint,
        kind,
        base,
        public_name(kind, base),
        hashed(kind, base),
        recipe_of(kind, read_settings(split_settings(section.training))),
        seed,
        section.reserve,
    )


def check_cells(cells: Iterable[Cell]) -> None:
    """Raise the error that a cell would raise when it is run, before anything is trained: removals, targets and layers
    that are not possible. Each is checked once."""
    check_removal, check_frozen = cache(_check_removal), cache(_check_frozen)
    for cell in cells:
        original, spec = cell.original, cell.spec
        try:
            check_removal(original.folder, cell.removal, cell.target)
            if spec.train_layers is not None or spec.freeze is not None:
                check_frozen(original.ranker, original.base, spec.train_layers, spec.freeze)
        except UnrankError as error:
            raise UnrankError(f"'{cell}' cannot be run: {error}") from error


def _check_removal(folder: Path, removal: SampledRemoval, target: str | None) -> None:
    collection = open_collection(folder)
    removed = removal.sample(collection)
    check_split((collection.fingerprint, removal.kind, removal.share, removal.seed), split_hash(removed))
    partition = make_partition(collection, removed)
    check_target(target or NO_TARGET, collection, partition, has_reference=True)


def _check_frozen(kind: str, base: str | None, layers: Layers | None, freeze: Freeze | None) -> None:
    """Try on a new ranker whether these parts of it can be frozen."""
    ranker = create_ranker(kind, base, seed=0)
    freeze_side(ranker, freeze)
    if layers is not None:
        train_layers_of(ranker, layers)
