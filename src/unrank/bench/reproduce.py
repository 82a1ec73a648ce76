"""Run a finished cell again, and compare the ranks of every query bit by bit.

What differs from the first run, such as another torch or another device, is known before anything is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import torch

from unrank.bench.cell import Cell, Original, SampledRemoval
from unrank.bench.method_spec import MethodSpec
from unrank.bench.packed import IDENTITY, StoredCell, check_name, read_cell_folder
from unrank.bench.plan import check_cells
from unrank.bench.run import GridStatus, Update, run_grid, shared
from unrank.bench.runner import JobRunner
from unrank.bench.splits import split_hash
from unrank.bench.worker_pool import open_pool
from unrank.collection.collection import Collection, open_collection
from unrank.collection.options import SEEDS
from unrank.collection.removal import Kind
from unrank.disk import Form, fits
from unrank.engine.runtime import Device, Runtime
from unrank.errors import BadFile, UnrankError
from unrank.forgetting.options import Pace
from unrank.forgetting.validation import check_freeze
from unrank.methods import CATALOGUE, settings_of
from unrank.methods.base import Method
from unrank.methods.retrain import Retrain
from unrank.rankers import base_hash, public_name, ranker_class
from unrank.rankers.layers import read_layers
from unrank.record import CELL, CELL_FORMAT, RANKS, RECORD, Record, current_settings, installed_code, run_of, versions

AnyMethod = TypeVar("AnyMethod", bound=Method)
PLAIN = (bool, int, float, str)
"""The types of settings."""
MADE: Mapping[str, Form] = {"deterministic": bool, "fast": bool, "threads": int}


def _is_natural(value: object) -> bool:
    return type(value) is int and 0 <= value < SEEDS


def _are_settings(value: object) -> bool:
    return isinstance(value, dict) and fits([*value.values()], [(bool, float, str, None)])


def _is_made(value: object) -> bool:
    return isinstance(value, dict) and all(fits(value[key], form) for key, form in MADE.items() if key in value)


def _are_ranks(value: object) -> bool:
    return isinstance(value, dict) and fits([*value.values()], [({"before": [int], "after": [int]}, None)])


DESCRIPTION: Mapping[str, Form] = {
    **dict.fromkeys(("unrank", "fingerprint", "ranker", "base", "base_sha256", "method", "label"), str),
    **dict.fromkeys(("training_source", "method_source", "preset", "target"), (str, None)),
    **dict.fromkeys(("training", "settings"), _are_settings),
    **dict.fromkeys(("seed", "removal_seed"), _is_natural),
    **dict.fromkeys(("reserve", "recovery"), bool),
    "format": int,
    "removal": get_args(Kind).__contains__,
    "share": float,
    "check_every": (_is_natural, None),
    "minutes": (float, None),
    "watch": (_is_natural, None),
}
"""The form of all that is needed to run a cell again."""
HOW: Mapping[str, Form] = {"split": str, "made": _is_made}
"""The form of what a description may lack."""


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
        """Read a cell, and compare it with what is here; refuse a damaged one, another collection or another base."""
        _check_stored(stored)
        record, opened = run_of(stored.record, stored.path / RECORD), open_collection(collection)
        try:
            cell = cell_of(stored.cell, opened, base)
        except (KeyError, TypeError, ValueError) as error:
            raise BadFile(stored.path / CELL, f"this unrank cannot run it: {error}") from error
        _check_data(stored.cell, record, cell, opened)
        check_cells([cell])
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
    kind, training = described["ranker"], _method_of(Retrain, described["training"])
    hashed = base_hash(kind, base)
    names = (collection.folder, collection.name, collection.fingerprint, kind, base, public_name(kind, base), hashed)
    original = Original(*names, training, described["seed"], described["reserve"])
    removal = SampledRemoval(described["removal"], described["share"], described["removal_seed"])
    pace = Pace(described["check_every"], described["minutes"], described["watch"])
    settings = dict(described["settings"])
    layers, freeze = settings.pop("train_layers", None), settings.pop("freeze", None)
    _, entry = CATALOGUE.find(described["method"])
    method = _method_of(entry.method, current_settings(described["method"], settings))
    check_freeze(freeze, ranker_class(kind), method)
    trained = read_layers(str(layers)) if layers is not None else None
    spec = MethodSpec(method, described["preset"], described["label"], trained, freeze)
    return Cell(original, removal, spec, described["target"], pace, described["recovery"])


def _method_of(kind: type[AnyMethod], settings: Mapping[str, Any]) -> AnyMethod:
    """Return a method with its settings; refuse a value that is not of its setting's type."""
    for name, expected in settings_of(kind).items():
        if name in settings and not fits(settings[name], _form_of(expected)):
            raise ValueError(f"{name} of {kind.name} cannot be {_short(settings[name])}")
    return kind(**settings)


def _form_of(setting: object) -> Form:
    """Return the form of a setting's values; all fit a type that only a method of another package has."""
    if get_origin(setting) is Literal:
        return get_args(setting).__contains__
    return setting if setting in PLAIN else lambda _: True


def _check_stored(stored: StoredCell) -> None:
    """Refuse a cell of another format, a damaged one, and one that is not what its name says."""
    told = stored.cell
    if not isinstance(told, dict) or "format" not in told:
        raise BadFile(stored.path / CELL, "not the description of a cell")
    if told["format"] != CELL_FORMAT:
        found = _short(told["format"])
        raise BadFile(stored.path, f"a cell of format {found}: only those of format {CELL_FORMAT} can be run again")
    problems = [f"{key} is missing" for key in DESCRIPTION if key not in told]
    forms = {key: form for key, form in {**DESCRIPTION, **HOW}.items() if key in told}
    problems += [f"{key} is not what a bench writes" for key, form in forms.items() if not fits(told[key], form)]
    if problems:
        raise BadFile(stored.path / CELL, f"damaged: {problems[0]}")
    if not _are_ranks(stored.ranks):
        raise BadFile(stored.path / RANKS, "damaged: not the ranks before and after of each set")
    check_name(stored.name, told, stored.path)


def _check_data(described: Mapping[str, Any], record: Record, cell: Cell, collection: Collection) -> None:
    """Refuse a collection, a base or a draw that is not the cell's."""
    if described["fingerprint"] != collection.fingerprint:
        raise UnrankError(
            f"{collection.folder} is not the collection of the cell: its fingerprint is {collection.fingerprint[:12]}, "
            f"the cell's {described['fingerprint'][:12]}{_imported(record)}"
        )
    if described["base_sha256"] != cell.original.base_sha256:
        raise UnrankError(f"this base is not the one of the cell, {described['base']}: name that with --base")
    found = split_hash(cell.removal.sample(collection))
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
