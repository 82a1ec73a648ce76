"""Run a finished cell again, and compare the ranks of every query bit by bit.

What differs from the first run, such as another torch or another device, is known before anything is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from unrank.bench.cell import Cell, Original, SampledRemoval
from unrank.bench.method_spec import MethodSpec
from unrank.bench.packed import IDENTITY, StoredCell, read_cell_folder
from unrank.bench.run import GridStatus, Update, run_grid, shared
from unrank.bench.runner import JobRunner
from unrank.bench.splits import check_split, split_hash
from unrank.bench.worker_pool import open_pool
from unrank.collection.collection import Collection, open_collection
from unrank.engine.runtime import Device, Runtime
from unrank.errors import BadFile, UnrankError
from unrank.forgetting.options import Pace
from unrank.methods import CATALOGUE
from unrank.methods.retrain import Retrain
from unrank.rankers import base_hash, public_name
from unrank.record import CELL, CELL_FORMAT, RECORD, Record, current_settings, installed_code, run_of, versions

OUTSIDE = ("train_layers", "freeze")
"""Settings of a cell that are no settings of its method."""


@dataclass(frozen=True)
class Reproduction:
    """A finished cell, the same cell to run again, what is different this time, and what the cell does not say."""

    stored: StoredCell
    record: Record
    cell: Cell
    differences: tuple[str, ...]
    unknown: tuple[str, ...]
    """The names of what was not recorded, so that it may be different too."""

    @classmethod
    def plan(cls, stored: StoredCell, collection: Path, base: str | None, device: Device) -> Reproduction:
        """Read a cell, and compare it with what is here; refuse another collection or another base."""
        if not isinstance(stored.cell, dict) or stored.cell.get("format") != CELL_FORMAT:
            raise BadFile(
                stored.path, f"a cell of an earlier version: only cells of format {CELL_FORMAT} can be run again"
            )
        record, opened = run_of(stored.record, stored.path / RECORD), open_collection(collection)
        try:
            cell = cell_of(stored.cell, opened, base)
        except (KeyError, TypeError, ValueError) as error:
            raise BadFile(stored.path / CELL, f"this unrank cannot run it: {error}") from error
        _check_data(stored.cell, record, cell, opened)
        facts = _facts(stored.cell, record, device)
        differences = _differences([*(fact for fact in facts if fact[1] is not None), *_identity(stored.cell, cell)])
        return cls(stored, record, cell, tuple(differences), tuple(_unknown(stored.cell, facts)))

    def run(self, out: Path, device: Device) -> tuple[StoredCell, list[str]]:
        """Run the cell in a new bench, and return it with the sets whose ranks differ, in words."""
        needed = [self.cell.reference] if self.cell.reference is not None else []
        status = GridStatus.of([*needed, self.cell], out)
        made = self.stored.cell.get("made", {})
        runner = JobRunner(
            status.store, device, False, deterministic=made.get("deterministic", False), fast=made.get("fast", True)
        )
        failed: list[str] = []

        def notify(update: Update) -> None:
            if update.result.failed:
                failed.append(update.result.message)

        with shared(status.store, 1) as claims, open_pool(runner, 1) as pool:
            run_grid(status, claims, pool, notify)
        if failed:
            raise UnrankError(f"{self.cell}: {failed[0]}")
        again = read_cell_folder(status.store.cells / self.cell.name)
        return again, differing_ranks(self.stored.ranks, again.ranks)


def cell_of(described: Mapping[str, Any], collection: Collection, base: str | None) -> Cell:
    """Return the cell that a `cell.json` describes, on a collection and a base that are here."""
    kind, training = described["ranker"], Retrain(**described["training"])
    hashed = base_hash(kind, base)
    names = (collection.folder, collection.name, collection.fingerprint, kind, base, public_name(kind, base), hashed)
    original = Original(*names, training, described["seed"], described["reserve"])
    removal = SampledRemoval(described["removal"], described["share"], described["removal_seed"])
    pace = Pace(described["check_every"], described["minutes"], described["watch"])
    settings = dict(described["settings"])
    outside = {name: settings.pop(name, None) for name in OUTSIDE}
    _, entry = CATALOGUE.find(described["method"])
    method = entry.method(**current_settings(described["method"], settings))
    spec = MethodSpec(method, described["preset"], described["label"], **cast(Any, outside))
    return Cell(original, removal, spec, described["target"], pace, described["recovery"])


def _check_data(described: Mapping[str, Any], record: Record, cell: Cell, collection: Collection) -> None:
    """Refuse a collection, a base or a draw that is not the cell's."""
    if described["fingerprint"] != collection.fingerprint:
        raise UnrankError(
            f"{collection.folder} is not the collection of the cell: its fingerprint is {collection.fingerprint[:12]}, "
            f"the cell's {described['fingerprint'][:12]}{_imported(record)}"
        )
    if described["base_sha256"] != cell.original.base_sha256:
        raise UnrankError(f"this base is not the one of the cell, {described['base']}: name that with --base")
    found, removal = split_hash(cell.removal.sample(collection)), cell.removal
    check_split((collection.fingerprint, removal.kind, removal.share, removal.seed), found)
    if described.get("split", found) != found:
        raise UnrankError(
            "the same seed draws other ids to remove than it did for the cell: use the unrank that made it"
        )


def _imported(record: Record) -> str:
    """Say how the collection of a record was imported, as far as that is known."""
    given = {name: value for name, value in record.collection.imported.items() if value not in (None, [], "")}
    return "; it was imported with " + ", ".join(f"{name}={value}" for name, value in given.items()) if given else ""


Fact = tuple[str, object, object]
"""A name, its value when the cell was run (`None` if that was not recorded), and its value now."""


def _facts(described: Mapping[str, Any], record: Record, device: Device) -> list[Fact]:
    """Return where the cell was run, and with which code and versions."""
    made, code = described.get("made", {}), installed_code()
    return [
        ("device", record.device or None, Runtime.on(device).name),
        ("threads", made.get("threads"), torch.get_num_threads()),
        ("code", record.code and record.code.package_sha256[:12], code.package_sha256[:12]),
        ("commit", record.code and record.code.commit, code.commit),
        *((name, record.versions.get(name), version) for name, version in versions().items()),
    ]


def _identity(described: Mapping[str, Any], cell: Cell) -> list[Fact]:
    """Return all that the result depends on."""
    now = cell.identity()
    return [(key, described.get(key), now[key]) for key in IDENTITY]


def _differences(facts: Iterable[Fact]) -> list[str]:
    """Return what is not as it was when the cell was run."""
    return [f"{name}: {_short(then)}, now {_short(today)}" for name, then, today in facts if then != today]


def _unknown(described: Mapping[str, Any], facts: Iterable[Fact]) -> list[str]:
    """Return the names of what was not recorded: a default stands for it, or it is not compared."""
    missing = [name for name, then, today in facts if then is None and today is not None]
    how = [name for name in ("deterministic", "fast") if name not in described.get("made", {})]
    return [*missing, *how, *([] if "split" in described else ["the ids that were removed (split)"])]


def _short(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def differing_ranks(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return each set and side whose ranks differ, with the number of queries; empty if all are equal.

    >>> differing_ranks({"test": {"before": [1], "after": [1, 2]}}, {"test": {"before": [1], "after": [1, 3]}})
    ['test after: 1 of 2']
    """
    found = []
    for name in sorted({*one, *other}):
        mine, theirs = one.get(name) or {}, other.get(name) or {}
        for side in ("before", "after"):
            ranks = mine.get(side, []), theirs.get(side, [])
            if ranks[0] != ranks[1]:
                apart = sum(a != b for a, b in zip(*ranks, strict=False)) + abs(len(ranks[0]) - len(ranks[1]))
                found.append(f"{name} {side}: {apart} of {max(map(len, ranks))}")
    return found
