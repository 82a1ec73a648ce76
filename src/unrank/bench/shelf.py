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
from unrank.evaluation.scorecard import SETS, Scorecard, SetMetrics
from unrank.forgetting.forget import Forgotten
from unrank.forgetting.record import Record, read_record
from unrank.formats import CELL, CELL_FORMAT, HISTORY, RANKS, RECORD
from unrank.rankers import load_ranker
from unrank.rankers.base import Ranker

TIMED = {"ranker": str, "fingerprint": str, "method": str, "took": float, "original": {"seconds": float}}
"""What a finished cell tells of the time that its likes will take."""
TRAINED = {"history": [{"learned": float}], "epochs": float, "seconds": float}
MEASURED = {"after": {name: ({"mrr": float}, None) for name in ("forget", "test")}}


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

    def load_original(self, original: Original) -> tuple[Ranker, dict[str, Any]]:
        """An original and its record, if every file is as it was written."""
        folder = self.rankers / original.name
        record = read_record(folder)
        if record is None or not fits(record, TRAINED) or not record["history"]:
            raise BadFile(folder, "a ranker without its record; remove the folder, and it is trained again")
        return load_ranker(folder), record

    def record_of(self, cell: Cell) -> dict[str, Any]:
        path = self.cells / cell.name / RECORD
        record: dict[str, Any] = read_json(path)
        if not fits(record, MEASURED):
            raise BadFile(path, "a damaged record; remove its folder, and the cell is run again")
        return record

    def put(self, cell: Cell, result: Forgotten, told: dict[str, Any]) -> None:
        """Write a finished cell, and what is told of how it was made."""
        record = _without_hashes(result.record)
        with new_folder(self.cells / cell.name) as folder:
            write_json(folder / CELL, cell.describe() | told)
            write_json(folder / RECORD, record.to_json({}))
            (folder / HISTORY).write_text("".join(json.dumps(line) + "\n" for line in record.history), encoding="utf-8")
            ranks = json.dumps(_ranks(result.before, result.after), separators=(",", ":"))
            (folder / RANKS).write_text(f"{ranks}\n", encoding="utf-8")


def _without_hashes(record: Record) -> Record:
    """A record that says how much was removed: no ranker is kept for which a later run would have to recognise it."""
    assert record.removed is not None
    kinds = {name: kind | {"hashes": []} for name, kind in record.removed.items() if name != "salt"}
    return replace(record, removed={"salt": "", **kinds})


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
