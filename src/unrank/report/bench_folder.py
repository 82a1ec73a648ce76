"""Read what `unrank bench` or `unrank pack` wrote: finished cells, each beside its retrained ranker."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unrank.bench.packed import StoredCell, read_cells
from unrank.disk import LARGEST, fits
from unrank.errors import BadFile, UnrankError
from unrank.evaluation.agreement import ForgetFigures
from unrank.evaluation.query_details import cell_figures
from unrank.parse import WrongValue, parse
from unrank.record import CELL, CELL_FORMATS, MEASURED, RANKS, RECORD, OtherVersion, Said, run_of
from unrank.report.cell import REMOVALS, Bench, Cell, Ranks, Setting

SHARED = ("fingerprint", "ranker", "base_sha256", "training", "removal", "share", "removal_seed", "seed", "reserve")
"""The keys of `cell.json` that a cell and its retrained ranker have in common."""
MOST_RANKS = 10**9
NAME = re.compile(r"[\w.+-]+")
"""The name of a method. Rows that are no method's, such as that of doing nothing, have names with spaces."""


@dataclass(frozen=True)
class Description:
    """The fields of `cell.json` that a report needs."""

    collection: str
    ranker: str
    removal: str
    share: float
    method: str
    label: str
    seed: int
    target: str | None = None
    jobs: int = 1
    removal_seed: int = 0
    said: Said | None = None


def read_bench(source: Path) -> Bench:
    """Read all finished cells of a bench, which is a folder or a packed file."""
    return bench_of(read_cells(source))


def bench_of(stored: Sequence[StoredCell]) -> Bench:
    """Return the cells of a bench, each beside its retrained ranker; refuse cells that a table could not tell apart."""
    read = [read_cell(each) for each in stored]
    shared = [{key: each.cell.get(key) for key in SHARED} for each in stored]
    retrained = {_text(keys): cell for cell, keys in zip(read, shared, strict=True) if cell.is_retrained}
    cells = [_beside(cell, retrained.get(_text(keys))) for cell, keys in zip(read, shared, strict=True)]
    bench = Bench(sorted(cells, key=lambda each: (each.setting.order, each.label, each.target or "", *each.trial[1:])))
    _check_alike(bench)
    _check_settings(list(zip(cells, shared, strict=True)))
    return bench


def read_cell(stored: StoredCell) -> Cell:
    """Return a cell from its JSON; refuse one that is damaged or of another format."""
    _check_format(stored.cell, stored.path / CELL)
    check_numbers(stored.cell, stored.path / CELL)
    check_numbers(stored.record, stored.path / RECORD)
    try:
        cell: Description = parse(Description, stored.cell)
        if cell.removal not in REMOVALS:
            raise WrongValue(f"removal is not one of {', '.join(REMOVALS)}")
        if not NAME.fullmatch(cell.method) or re.split("[:,]", cell.label)[0] != cell.method:
            raise WrongValue("its label does not begin with the name of its method")
        if "target" not in stored.cell or stored.cell.get("jobs", 1) is None:
            raise WrongValue("target or jobs is missing")
        ranks = _read_ranks(stored.ranks)
        forget = _read_forget(stored.forget, ranks.get("forget"))
    except WrongValue as error:
        raise BadFile(stored.path, f"damaged cell: {error}") from error
    setting = Setting(cell.collection, cell.ranker, cell.removal, float(cell.share))
    try:
        record = run_of(stored.record, stored.path / RECORD)
    except OtherVersion:
        raise
    except BadFile as error:
        raise UnrankError(f"{error}; remove {stored.path}, and 'unrank bench' makes that cell again") from error
    own = (stored.name, setting, cell.label, cell.target, cell.seed, record, ranks, cell.jobs == 1)
    return Cell(*own, forget=forget, draw=cell.removal_seed, said=cell.said)


def _check_format(value: object, path: Path) -> None:
    if not isinstance(value, dict) or "format" not in value:
        raise BadFile(path, "not the description of a cell")
    if value["format"] not in CELL_FORMATS:
        readable = " and ".join(map(str, CELL_FORMATS))
        raise BadFile(path, f"format {value['format']}, this unrank reads {readable}; run the bench again")


def check_numbers(value: object, path: Path, line: int | None = None) -> None:
    """Refuse a JSON value with a whole number that no figure can show."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict | list):
            left += each.values() if isinstance(each, dict) else each
        elif type(each) is int and abs(each) > LARGEST:
            raise BadFile(path, "damaged: a number in it has hundreds of digits; restore the file from a copy", line)


def _read_ranks(value: Any) -> dict[str, Ranks]:
    sets = {name: of for name in MEASURED if (of := value.get(name))} if isinstance(value, dict) else {"": value}
    for of in sets.values():
        if not fits(of, {"before": [int], "after": [int]}):
            raise WrongValue(f"{RANKS} holds ranks that are no whole numbers")
        if not all(0 <= rank < MOST_RANKS for side in ("before", "after") for rank in of[side]):
            raise WrongValue(f"{RANKS} holds ranks that are no places in a list")
        if len(of["before"]) != len(of["after"]):
            raise WrongValue(f"{RANKS} holds ranks before and after of different queries")
    return {name: Ranks(of["before"], of["after"]) for name, of in sets.items()}


def _read_forget(value: object, ranks: Ranks | None) -> dict[str, ForgetFigures]:
    if ranks is None:
        return {}
    return cell_figures(value, {"before": ranks.reciprocal_before, "after": ranks.reciprocal})


def _beside(cell: Cell, twin: Cell | None) -> Cell:
    if twin and any(
        len(twin.ranks[name].after) != len(cell.ranks[name].after) for name in twin.ranks.keys() & cell.ranks
    ):
        raise UnrankError(f"cell {cell.name} and its retrained ranker, {twin.name}, were measured on different queries")
    return replace(cell, twin=twin)


def _text(shared: Mapping[str, object]) -> str:
    return json.dumps(shared, sort_keys=True)


def _check_settings(cells: Sequence[tuple[Cell, Mapping[str, object]]]) -> None:
    """Refuse cells of one setting that differ in more than method, seed and draw, or in the queries of a draw."""
    first: dict[Setting, tuple[Cell, Mapping[str, object]]] = {}
    of_draw: dict[tuple[Setting, int], Cell] = {}
    for cell, shared in cells:
        _, before = first.setdefault(cell.setting, (cell, shared))
        other = of_draw.setdefault((cell.setting, cell.draw), cell)
        if len({len(each.ranks["forget"].after) for each in (cell, other) if "forget" in each.ranks}) > 1:
            raise UnrankError(f"cells {other.name} and {cell.name} of one setting were measured on different queries")
        other = first[cell.setting][0]
        if differ := [key for key in SHARED if key not in ("seed", "removal_seed") and shared[key] != before[key]]:
            raise UnrankError(
                f"cells {other.name} and {cell.name} are both on {cell.setting}, but differ in {', '.join(differ)}: "
                "report them apart"
            )


def _check_alike(bench: Bench) -> None:
    """Refuse two cells of one setting, seed and draw that a table would call the same."""
    seen: dict[tuple[object, ...], Cell] = {}
    for cell in bench.cells:
        name = bench.name_of(cell)
        other = seen.setdefault((cell.trial, name), cell)
        if other is not cell:
            raise UnrankError(
                f"cells {other.name} and {cell.name} are both {name} on {cell.setting}, seed {cell.seed}, made "
                "in different ways: take one of them away"
            )
