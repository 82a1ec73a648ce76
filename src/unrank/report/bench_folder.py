"""Reading what `unrank bench` wrote: `DIR/cells/*/{cell,unrank,ranks}.json`, each cell beside its retrained ranker."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unrank.disk import fits, read_json
from unrank.errors import BadFile, UnrankError
from unrank.record import CELL, CELL_FORMATS, RANKS, SETS, OtherVersion, read_run
from unrank.report.cell import REMOVALS, Bench, Cell, Ranks, Setting

TWIN = ("fingerprint", "ranker", "base_sha256", "training", "removal", "share", "removal_seed", "seed")
"""What a cell has in common with the retrained ranker that it is measured by."""
FORM = {
    "collection": str, "ranker": str, "removal": str, "share": float, "label": str, "target": (str, None), "seed": int,
}  # fmt: skip
MOST_PLACES = 10**9


def read_bench(folder: Path) -> Bench:
    paths = sorted(path.parent for path in (folder / "cells").glob(f"[!.]*/{CELL}"))
    if not paths:
        raise UnrankError(f"{folder / 'cells'} holds no finished cell: run 'unrank bench' first")
    told = {path: _description(path / CELL) for path in paths}
    read = {path: _cell(path, value) for path, value in told.items()}
    yardsticks = {_twin(told[path]): cell for path, cell in read.items() if cell.is_yardstick}
    cells = [_beside(cell, yardsticks.get(_twin(told[path]))) for path, cell in read.items()]
    _check_alike(cells)
    _check_settings(list(zip(cells, told.values(), strict=True)))
    return Bench(sorted(cells, key=lambda cell: (cell.setting.place, cell.label, cell.target or "", cell.seed)))


def _description(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict) or "format" not in value:
        raise BadFile(path, "not the description of a cell")
    if value["format"] not in CELL_FORMATS:
        readable = " and ".join(map(str, CELL_FORMATS))
        raise BadFile(path, f"format {value['format']}, this unrank reads {readable}; run the bench again")
    return value


def _cell(folder: Path, told: Mapping[str, Any]) -> Cell:
    if not fits(told, FORM) or not fits(told.get("jobs", 1), int) or told["removal"] not in REMOVALS:
        raise BadFile(folder, "damaged cell: something in cell.json is missing or of the wrong kind")
    setting = Setting(told["collection"], told["ranker"], told["removal"], float(told["share"]))
    try:
        ranks = read_json(folder / RANKS)
        found = {name: _ranks(ranks[name]) for name in SETS if ranks.get(name)}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadFile(folder, f"damaged cell: {type(error).__name__} {error}") from error
    alone = told.get("jobs", 1) == 1
    try:
        run = read_run(folder)
    except OtherVersion:
        raise
    except BadFile as error:
        raise UnrankError(f"{error}; remove {folder}, and 'unrank bench' makes that cell again") from error
    return Cell(folder.name, setting, told["label"], told["target"], told["seed"], run, found, alone)


def _beside(cell: Cell, twin: Cell | None) -> Cell:
    if twin and any(
        len(twin.ranks[name].after) != len(cell.ranks[name].after) for name in twin.ranks.keys() & cell.ranks
    ):
        raise UnrankError(f"cell {cell.name} and its retrained ranker, {twin.name}, were measured on different queries")
    return replace(cell, twin=twin)


def _twin(told: Mapping[str, Any]) -> str:
    return json.dumps([told.get(key) for key in TWIN], sort_keys=True)


def _ranks(value: Mapping[str, Sequence[int]]) -> Ranks:
    if not fits(value, {"before": [int], "after": [int]}):
        raise ValueError("ranks that are no whole numbers")
    if not all(0 <= rank < MOST_PLACES for side in value.values() for rank in side):
        raise ValueError("ranks that are no places in a list")
    return Ranks(value["before"], value["after"])


def _check_settings(cells: Sequence[tuple[Cell, Mapping[str, Any]]]) -> None:
    """Cells that a table puts into one row may differ in their seed alone."""
    first: dict[Setting, tuple[Cell, Mapping[str, Any]]] = {}
    for cell, told in cells:
        other, before = first.setdefault(cell.setting, (cell, told))
        if differ := [key for key in TWIN if key != "seed" and told.get(key) != before.get(key)]:
            raise UnrankError(
                f"cells {other.name} and {cell.name} are both on {cell.setting}, but differ in {', '.join(differ)}: "
                "report them apart"
            )


def _check_alike(cells: Sequence[Cell]) -> None:
    """Two cells that a table would take for one are refused: their means would say nothing."""
    seen: dict[tuple[object, ...], Cell] = {}
    for cell in cells:
        other = seen.setdefault((cell.setting, cell.label, cell.target, cell.seed), cell)
        if other is not cell:
            raise UnrankError(
                f"cells {other.name} and {cell.name} are both {cell.label} on {cell.setting}, seed {cell.seed}, made "
                "in different ways: take one of them away"
            )
