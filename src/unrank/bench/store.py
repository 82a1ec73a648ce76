"""The folder of a bench: `cells/HASH` for each finished cell, `rankers/HASH` for each original.

Every folder is written whole or not at all, so a folder that exists is finished. Cells are small, and contain no id and
no text; one hash stands for all ids that were drawn.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from unrank.bench.cell import Cell, Job, Original
from unrank.bench.packed import read_part
from unrank.disk import LOCK, exists, fits, new_folder, read_json, write_json
from unrank.engine.checkpoint import PARTIAL, Cache
from unrank.errors import BadFile
from unrank.evaluation.agreement import agreement
from unrank.evaluation.measure import reciprocal_of
from unrank.evaluation.query_details import cell_figures, cell_lists
from unrank.evaluation.scorecard import Scorecard, SetMetrics
from unrank.forgetting.forget import Forgotten
from unrank.parse import WrongValue
from unrank.rankers import load_ranker
from unrank.rankers.base import Ranker
from unrank.record import CELL, CELL_FORMAT, FORGET_LISTS, RANKS, RECORD, SETS, Record, ReferenceAgreement

FINISHED = {"ranker": str, "fingerprint": str, "method": str, "took": float, "original": {"seconds": float}}


@dataclass(frozen=True)
class FinishedCell:
    """A cell on disk: what it is, and how long it took."""

    method: str
    ranker: str
    fingerprint: str
    label: str
    report_key: str
    seconds: float
    training_seconds: float


def report_key(described: Mapping[str, object]) -> str:
    """Return what identifies a cell in a report."""
    keys = ("collection", "ranker", "removal", "share", "removal_seed", "label", "target", "seed")
    return json.dumps([described.get(key) for key in keys])


@dataclass(frozen=True)
class Store:
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
        """The cache of tokens. Scores are not cached: no method may start with those of another one."""
        return Cache(self.out / "cache", scores=False)

    @property
    def claims(self) -> Path:
        """The folder where workers say which jobs they have."""
        return self.out / "claims"

    def unfinished(self, name: str) -> Path:
        """Return the folder of a job's checkpoints."""
        return self.out / "unfinished" / name

    def free(self, name: str) -> None:
        """Take away the lock of a worker that is dead. A server may hold the locks of a machine that is gone."""
        (self.unfinished(name) / LOCK).unlink(missing_ok=True)

    def tidy(self, is_alone: Callable[[], bool]) -> None:
        """Make the folders; delete half-written folders of a killed run, and checkpoints of finished jobs.

        `is_alone` says whether nobody else is at work here. It is asked after the search: a worker says that it is here
        before it writes, so what was found is not the work of one that came later.
        """
        left = [*self.cache.folder.glob(f"{PARTIAL}*")]
        for folder in (self.cells, self.rankers):
            folder.mkdir(parents=True, exist_ok=True)
            left += folder.glob(".*.partial-*")
            left += [self.unfinished(whole.name) for whole in folder.glob("[!.]*")]
        for path in left if is_alone() else ():
            shutil.rmtree(path, ignore_errors=True)

    def finished(self) -> dict[str, FinishedCell]:
        """Return the cells on disk by name."""
        folders = sorted(self.cells.glob("[!.]*"))
        for folder in folders:
            if not exists(folder / CELL):
                raise BadFile(folder, f"a cell without its {CELL}; remove its folder, and it is run again")
        return {folder.name: _read_cell(folder) for folder in folders}

    def trained(self) -> set[str]:
        """Return the names of the rankers on disk."""
        return {folder.name for folder in self.rankers.glob("[!.]*")}

    def having(self, jobs: Iterable[Job]) -> set[str]:
        """Return the names of those jobs whose results are on disk. A folder is listed, since that is never stale."""
        cells, rankers = {folder.name for folder in self.cells.glob("[!.]*")}, self.trained()
        return {job.name for job in jobs if job.name in (rankers if isinstance(job, Original) else cells)}

    def load_original(self, original: Original, fast: bool = True) -> tuple[Ranker, Record]:
        """Return an original and its record; raise an error if one of its files has changed."""
        folder = self.rankers / original.name
        record = Record.read(folder)
        if record is None or not record.history or record.history[-1].learned is None:
            raise BadFile(folder, "a ranker without its record; remove the folder, and it is trained again")
        return load_ranker(folder, fast), record

    def record_of(self, cell: Cell) -> Record:
        """Return the record of a finished cell."""
        folder = self.cells / cell.name
        try:
            record = Record.read(folder)
        except BadFile as error:
            raise BadFile(folder, f"{error}; remove the folder, and the cell is run again") from error
        if record is None:
            raise BadFile(folder, "a cell without its record; remove the folder, and the cell is run again")
        return record

    def write(self, cell: Cell, result: Forgotten, run: Mapping[str, object]) -> None:
        """Write a finished cell, compared with its retrained ranker if that is done; `run` says how it was run."""
        record = replace(_without_hashes(result.record), agreement=self._agreement(cell, result))
        with new_folder(self.cells / cell.name) as folder:
            write_json(folder / CELL, cell.describe() | dict(run))
            record.write(folder, hashes={})
            ranks = json.dumps(_ranks(result.before, result.after), separators=(",", ":"))
            (folder / RANKS).write_text(f"{ranks}\n", encoding="utf-8")
            lists = json.dumps(cell_lists(result.before, result.after, cell.is_retrained), separators=(",", ":"))
            (folder / FORGET_LISTS).write_text(f"{lists}\n", encoding="utf-8")

    def _agreement(self, cell: Cell, result: Forgotten) -> ReferenceAgreement | None:
        """Compare a cell with its retrained ranker query by query; `None` if that is itself, or not done yet."""
        folder = self.cells / cell.retrained.name
        before, after = result.before.forget_figures, result.after.forget_figures
        if cell.is_retrained or not exists(folder / RANKS) or before is None or after is None:
            return None
        try:
            ranks = np.array(read_json(folder / RANKS)["forget"]["after"], np.float64)
            lists = read_json(folder / FORGET_LISTS) if exists(folder / FORGET_LISTS) else None
            theirs = cell_figures(lists, {"after": reciprocal_of(ranks)})["after"]
        except (WrongValue, KeyError, TypeError, ValueError) as error:
            raise BadFile(folder, "a damaged cell; remove its folder, and it is run again") from error
        return ReferenceAgreement(agreement(before, theirs), agreement(after, theirs))


def _read_cell(folder: Path) -> FinishedCell:
    """Return a finished cell; raise an error if it is of another format, or if its record or its ranks cannot be read.

    A bench must not call a grid done that no report can read.
    """
    described = read_part(folder, CELL)
    version = described.get("format") if isinstance(described, dict) else None
    if version != CELL_FORMAT:
        raise BadFile(
            folder, f"a cell of format {version}; this unrank writes format {CELL_FORMAT}: choose another --out"
        )
    if not fits(described, FINISHED):
        raise BadFile(folder, "a damaged cell; remove its folder, and it is run again")
    for name in (RECORD, RANKS):
        read_part(folder, name)
    return FinishedCell(
        described["method"],
        described["ranker"],
        described["fingerprint"],
        str(described.get("label")),
        report_key(described),
        described["took"],
        described["original"]["seconds"],
    )


def _without_hashes(record: Record) -> Record:
    """Return a record with the counts of what was removed, without hashes: no later run has to recognise it."""
    assert record.removed is not None
    return replace(record, removed=record.removed.without_hashes())


def _ranks(before: Scorecard, after: Scorecard) -> dict[str, dict[str, list[int]] | None]:
    """Return the rank of each query's first relevant document, for each set, in the order of the queries."""
    cards = {"before": before, "after": after}
    return {
        name: {when: _rank(getattr(card, name)) for when, card in cards.items()} if getattr(before, name) else None
        for name in (*SETS, "forget_full")
    }


def _rank(measured: SetMetrics) -> list[int]:
    """Return 1 over the reciprocal rank, 0 for a query without a rank."""
    reciprocal = measured.reciprocal
    ranks = np.divide(1, reciprocal, out=np.zeros(len(reciprocal)), where=reciprocal > 0)
    found: list[int] = np.rint(ranks).astype(int).tolist()
    return found
