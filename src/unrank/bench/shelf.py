"""What a bench leaves on disk: `cells/HASH` for each finished cell, `rankers/HASH` for each original.

Every folder is written whole or not at all, so that one that is there is finished. Cells are small, and hold no id, no
text and no hash of either.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unrank.bench.cell import Cell, Original
from unrank.disk import exists, fits, new_folder, read_json, write_json
from unrank.engine.checkpoint import PARTIAL, Cache
from unrank.errors import BadFile
from unrank.evaluation.scorecard import Scorecard, SetMetrics
from unrank.forgetting.forget import Forgotten
from unrank.rankers import load_ranker
from unrank.rankers.base import Ranker
from unrank.record import CELL, CELL_FORMAT, RANKS, SETS, Record

TIMED = {"ranker": str, "fingerprint": str, "method": str, "took": float, "original": {"seconds": float}}
"""What a finished cell tells of the time that its likes will take."""


@dataclass(frozen=True)
class Shelf:
    """The folder of a bench."""

    out: Path

    @property
    def cells(self) -> Path:
        return self.out / "cells"

    @property
    def rankers(self) -> Path:
        return self.out / "rankers"

    @property
    def cache(self) -> Cache:
        """The tokens that every cell needs again. Scores are not kept: no method shall begin with those of another."""
        return Cache(self.out / "cache", scores=False)

    def unfinished(self, name: str) -> Path:
        """Where a task is kept while it is under way."""
        return self.out / "unfinished" / name

    def tidy(self) -> None:
        """Make the folders, and take away what a killed run left half written, or left of what is whole."""
        for partial in self.cache.folder.glob(f"{PARTIAL}*"):
            shutil.rmtree(partial, ignore_errors=True)
        for folder in (self.cells, self.rankers):
            folder.mkdir(parents=True, exist_ok=True)
            for partial in folder.glob(".*.partial-*"):
                shutil.rmtree(partial, ignore_errors=True)
            for whole in folder.glob("[!.]*"):
                shutil.rmtree(self.unfinished(whole.name), ignore_errors=True)

    def finished(self) -> dict[str, dict[str, Any]]:
        """What `cell.json` says, for each cell that is there."""
        folders = sorted(self.cells.glob("[!.]*"))
        for folder in folders:
            if not exists(folder / CELL):
                raise BadFile(folder, f"a cell without its {CELL}; remove its folder, and it is run again")
        found = {folder.name: read_json(folder / CELL) for folder in folders}
        for name, described in found.items():
            version = described.get("format") if isinstance(described, dict) else None
            if version != CELL_FORMAT:
                raise BadFile(
                    self.cells / name,
                    f"a cell of format {version}, where this unrank writes {CELL_FORMAT}: choose another --out",
                )
            if not fits(described, TIMED):
                raise BadFile(self.cells / name, "a damaged cell; remove its folder, and it is run again")
        return found

    def trained(self) -> set[str]:
        """The names of the rankers that are there."""
        return {folder.name for folder in self.rankers.glob("[!.]*")}

    def load_original(self, original: Original) -> tuple[Ranker, Record]:
        """An original and its record, if every file is as it was written."""
        folder = self.rankers / original.name
        record = Record.read(folder)
        if record is None or not record.history or record.history[-1].learned is None:
            raise BadFile(folder, "a ranker without its record; remove the folder, and it is trained again")
        return load_ranker(folder), record

    def record_of(self, cell: Cell) -> Record:
        folder = self.cells / cell.name
        try:
            record = Record.read(folder)
        except BadFile as error:
            raise BadFile(folder, f"{error}; remove the folder, and the cell is run again") from error
        if record is None:
            raise BadFile(folder, "a cell without its record; remove the folder, and the cell is run again")
        return record

    def put(self, cell: Cell, result: Forgotten, told: dict[str, Any]) -> None:
        """Write a finished cell, and what is told of how it was made."""
        record = _without_hashes(result.record)
        with new_folder(self.cells / cell.name) as folder:
            write_json(folder / CELL, cell.describe() | told)
            record.write(folder, hashes={})
            ranks = json.dumps(_ranks(result.before, result.after), separators=(",", ":"))
            (folder / RANKS).write_text(f"{ranks}\n", encoding="utf-8")


def _without_hashes(record: Record) -> Record:
    """A record that says how much was removed: no ranker is kept for which a later run would have to recognise it."""
    assert record.removed is not None
    return replace(record, removed=record.removed.without_hashes())


def _ranks(before: Scorecard, after: Scorecard) -> dict[str, dict[str, list[int]] | None]:
    """Where each query's first right answer stood, set by set, in the order of the collection's queries."""
    cards = {"before": before, "after": after}
    return {
        name: {when: _rank(getattr(card, name)) for when, card in cards.items()} if getattr(before, name) else None
        for name in (*SETS, "forget_full")
    }


def _rank(measured: SetMetrics) -> list[int]:
    """1 over the reciprocal rank; 0 where there is none."""
    reciprocal = measured.reciprocal
    ranks = np.divide(1, reciprocal, out=np.zeros(len(reciprocal)), where=reciprocal > 0)
    found: list[int] = np.rint(ranks).astype(int).tolist()
    return found
