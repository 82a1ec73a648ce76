"""From a grid to its cells, in the order in which they are run: what shares an original stands together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from math import prod
from typing import cast

from unrank.bench.cell import UNWATCHED, Cell, Original
from unrank.bench.check import check_cells
from unrank.bench.choice import listed_settings, read_choice
from unrank.bench.grid import Part
from unrank.collection.collection import Collection, open_collection
from unrank.collection.removal import Kind
from unrank.errors import UnrankError
from unrank.forgetting.run import Pace
from unrank.forgetting.train import recipe_of
from unrank.methods import read_settings
from unrank.rankers import base_hash, public_name, ranker_kind, reads_words

MOST_CELLS = 100_000

Opened = Callable[[str], Collection]
Hashed = Callable[[str, str | None], str]


def plan_cells(parts: Mapping[str, Part]) -> list[Cell]:
    """The cells of a grid, and the retrained rankers that they need. Two that cannot be told apart are refused,
    and so is one that is bound to fail."""
    opened, hashed = cache(open_collection), cache(base_hash)
    cells: dict[str, Cell] = {}
    described: dict[str, Cell] = {}
    called: dict[Hashable, str] = {}
    for name, part in parts.items():
        lists = (
            part.collections,
            part.rankers,
            part.seeds,
            part.removals,
            part.shares,
            part.methods,
            part.destinations,
        )
        if prod(map(len, lists)) > MOST_CELLS:
            raise UnrankError(
                f"the part {name!r} of the grid has more than {MOST_CELLS:,} cells: make several grids of it"
            )
        for cell in _cells(part, opened, hashed):
            if twin := cells.get(cell.name):
                raise UnrankError(f"two cells of the grid are one: '{twin}' and '{cell}'; take one out")
            _tell_apart(described, cell)
            _call_alike(called, cell)
            cells[cell.name] = cell
    needed = {cell.yardstick.name: cell.yardstick for cell in cells.values() if cell.yardstick is not None}
    for cell in needed.values():
        _tell_apart(described, cell)
    planned = _together([*(cells | needed).values()])
    check_cells(planned)
    return planned


def _tell_apart(described: dict[str, Cell], cell: Cell) -> None:
    """Refuse a cell that a table would take for another one."""
    other = described.setdefault(str(cell), cell)
    if other.name != cell.name:
        ours, theirs = cell.identity(), other.identity()
        differ = [key for key in ours if ours[key] != theirs[key]]
        raise UnrankError(
            f"two cells of the grid, '{cell}', differ in nothing that a table shows, but in {', '.join(differ)}: give "
            "all parts of the grid the same, or make two grids"
        )


def _call_alike(called: dict[Hashable, str], cell: Cell) -> None:
    """Refuse a method that has two names: a table would take it for two."""
    made = (cell.original.ranker, cell.method, cell.train_layers, cell.freeze)
    other = called.setdefault(made, cell.label)
    if other != cell.label:
        raise UnrankError(f"{other!r} and {cell.label!r} are the same method, settings and all: call it by one name")


def _together(cells: Sequence[Cell]) -> list[Cell]:
    """What shares an original side by side, in the order of the grid; retrained rankers, which others need, first."""
    place = {name: number for number, name in enumerate(dict.fromkeys(cell.original.name for cell in cells))}
    return sorted(cells, key=lambda cell: (place[cell.original.name], cell.method.run_kind != "training"))


def _cells(part: Part, opened: Opened, hashed: Hashed) -> Iterator[Cell]:
    for folder, ranker, seed in product(part.collections, part.rankers, part.seeds):
        original = _original(part, opened(folder), ranker_kind(ranker), seed, hashed)
        choices = [read_choice(text, original.ranker, original.training, part.epochs) for text in part.methods]
        for removal, share, choice in product(part.removals, part.shares, choices):
            steered = choice.method.run_kind == "steered"
            for target in part.destinations if steered else (None,):
                yield Cell(
                    original,
                    cast(Kind, removal),
                    share,
                    part.removal_seed,
                    choice.method,
                    choice.preset,
                    choice.label,
                    target,
                    Pace(part.check_every, part.minutes, part.watch) if steered else UNWATCHED,
                    part.recovery,
                    choice.train_layers,
                    choice.freeze,
                )


def _original(part: Part, collection: Collection, kind: str, seed: int, hashed: Hashed) -> Original:
    base = part.words if reads_words(kind) else part.base
    training = recipe_of(kind, read_settings(listed_settings(part.training)))
    return Original(
        collection.folder,
        collection.name,
        collection.fingerprint,
        kind,
        base,
        public_name(kind, base),
        hashed(kind, base),
        training,
        seed,
    )
