"""Cells: the runs of a bench, each with what it is compared by, read from `DIR/cells/*`.

A cell's yardstick is the retrained ranker of the same setting: the cell of method `retrain` with the same collection,
ranker, training, removal, share and seeds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from unrank.disk import read_json
from unrank.errors import BadFile, UnrankError
from unrank.evaluation.measure import Floats
from unrank.report.record import SETS, Run, read_run

CELL_FORMAT = 1
YARDSTICK = "retrain"
TWIN = ("fingerprint", "ranker", "base_sha256", "training", "removal", "share", "removal_seed", "seed")
"""What a cell has in common with the retrained ranker that it is measured by."""


@dataclass(frozen=True)
class Setting:
    """Where methods meet: a row of the grid, whatever the seed."""

    collection: str
    ranker: str
    removal: str
    share: float

    def __str__(self) -> str:
        return f"{self.collection}, {self.ranker}, {self.share:.0%} of pairs by {self.removal}"


@dataclass(frozen=True)
class Cell:
    """One run of a bench."""

    name: str
    setting: Setting
    label: str
    target: str | None
    seed: int
    run: Run
    reciprocal: Mapping[str, Floats]
    """The reciprocal rank of each query afterwards, in an order that twins share."""
    retrained: Run | None = None
    retrained_reciprocal: Mapping[str, Floats] | None = None

    @property
    def is_yardstick(self) -> bool:
        return self.run.method == YARDSTICK

    @property
    def distance(self) -> float | None:
        """The paper's: from the retrained ranker's test MRR."""
        if self.retrained is None or "test" not in self.retrained.after:
            return None
        return abs(self.run.after["forget"].mrr - self.retrained.after["test"].mrr)

    def kept(self, name: str) -> float | None:
        """The share that is left of the lower of the original's and the retrained ranker's."""
        if self.retrained is None or name not in self.run.after:
            return None
        lower = min(self.run.before[name].mrr, self.retrained.after[name].mrr)
        return self.run.after[name].mrr / lower if lower > 0 else None

    @property
    def time(self) -> float | None:
        """In times of the retrained ranker's."""
        return self.run.seconds / self.retrained.seconds if self.retrained and self.retrained.seconds else None


@dataclass(frozen=True)
class Bench:
    """All cells, in a fixed order."""

    cells: Sequence[Cell]

    @cached_property
    def settings(self) -> list[Setting]:
        return sorted({cell.setting for cell in self.cells}, key=lambda s: (s.collection, s.ranker, s.removal, s.share))

    @cached_property
    def series(self) -> list[str]:
        """The methods as they are named in tables: the yardstick first, then by name."""
        first = {self.name_of(cell): not cell.is_yardstick for cell in self.cells}
        return sorted(first, key=lambda name: (first[name], name))

    @cached_property
    def _several_targets(self) -> bool:
        return len({cell.target for cell in self.cells if cell.target is not None}) > 1

    def name_of(self, cell: Cell) -> str:
        """The method's label, with its destination where there are several."""
        return f"{cell.label} → {cell.target}" if self._several_targets and cell.target else cell.label

    def of(self, series: str, setting: Setting | None = None) -> list[Cell]:
        """The cells of a method: of one setting (one a seed), or of all."""
        return [c for c in self.cells if self.name_of(c) == series and setting in (None, c.setting)]


def read_bench(folder: Path) -> Bench:
    paths = sorted(path.parent for path in (folder / "cells").glob("*/cell.json"))
    if not paths:
        raise UnrankError(f"{folder / 'cells'} holds no finished cell: run 'unrank bench' first")
    told = {path: _description(path / "cell.json") for path in paths}
    read = {path: _cell(path, value) for path, value in told.items()}
    yardsticks = {_twin(told[path]): cell for path, cell in read.items() if cell.is_yardstick}
    cells = [_beside(cell, yardsticks.get(_twin(told[path]))) for path, cell in read.items()]
    return Bench(sorted(cells, key=lambda cell: (str(cell.setting), cell.label, cell.target or "", cell.seed)))


def _description(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict) or "format" not in value:
        raise BadFile(path, "not the description of a cell")
    if value["format"] != CELL_FORMAT:
        raise BadFile(path, f"format {value['format']}, this unrank reads {CELL_FORMAT}; run the bench again")
    return value


def _cell(folder: Path, told: Mapping[str, Any]) -> Cell:
    try:
        setting = Setting(str(told["collection"]), str(told["ranker"]), str(told["removal"]), float(told["share"]))
        label, target, seed = str(told["label"]), told["target"], int(told["seed"])
        ranks = read_json(folder / "ranks.json")
        reciprocal = {name: _reciprocal(ranks[name]["after"]) for name in SETS if ranks.get(name)}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadFile(folder, f"damaged cell: {type(error).__name__} {error}") from error
    return Cell(folder.name, setting, label, target, seed, read_run(folder), reciprocal)


def _beside(cell: Cell, yardstick: Cell | None) -> Cell:
    if yardstick is None:
        return cell
    return Cell(
        cell.name, cell.setting, cell.label, cell.target, cell.seed, cell.run, cell.reciprocal,
        yardstick.run, yardstick.reciprocal,
    )  # fmt: skip


def _twin(told: Mapping[str, Any]) -> str:
    return json.dumps([told.get(key) for key in TWIN], sort_keys=True)


def _reciprocal(ranks: Sequence[int]) -> Floats:
    """1 over the rank; 0, which stands for no rank, stays 0."""
    values = np.asarray(ranks, np.float64)
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)
