"""Code that the runs have in common: an experiment from its grid to its figures, progress, records and tables."""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unrank.bench.grid import Section, read_grid
from unrank.bench.method_spec import read_method_spec
from unrank.bench.packed import is_packed
from unrank.cli.main import run
from unrank.cli.option import NOT_REACHED
from unrank.disk import check_free
from unrank.engine.runtime import Silence
from unrank.errors import UnrankError, count
from unrank.methods import read_settings
from unrank.methods.retrain import Retrain
from unrank.rankers import ranker_kind, reads_words
from unrank.record import RETRAIN, Record
from unrank.report.bench_folder import read_bench
from unrank.report.cell import Bench, Cell
from unrank.report.drawing import Drawing
from unrank.report.table import Table
from unrank.report.write import write_figures, write_tables

GRIDS = Path(__file__).parents[1] / "grids"
Shown = tuple[Sequence[Drawing | None], Sequence[Table]]
"""Figures and tables; a figure is `None` if there was nothing to draw."""


def experiment(description: str | None, grid: str, show: Callable[[Bench], Shown]) -> None:
    """Run a grid on collections, or read a bench that holds its cells, and write figures and tables."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "source", nargs="+", help="collections; or a bench that holds the cells already: its folder or packed file"
    )
    options.add_argument("--out", type=Path, required=True, help="the folder for figures, tables and new cells")
    options.add_argument("--base", help="the encoder of the transformer rankers")
    options.add_argument("--words", help="the word vectors of the others")
    options.add_argument("--device", default="auto")
    options.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as 'unrank bench --set'")
    arguments = options.parse_args()
    bases = {"base": arguments.base, "words": arguments.words}
    instead = [f"{key}={value}" for key, value in bases.items() if value is not None] + arguments.set
    answer(lambda: _experiment(arguments, GRIDS / f"{grid}.toml", instead, show))


def _experiment(arguments: argparse.Namespace, grid: Path, instead: list[str], show: Callable[[Bench], Shown]) -> int:
    status, bench = 0, Path(arguments.source[0])
    check_out(arguments.out)
    benches = [source for source in arguments.source if is_packed(Path(source)) or (Path(source) / "cells").is_dir()]
    if benches and len(arguments.source) > 1:
        raise UnrankError(f"{benches[0]} is a bench: name it alone, or collections")
    if not benches:
        bench = arguments.out / "bench"
        items = [*instead, f"collections={json.dumps(arguments.source, ensure_ascii=False)}"]
        options = [word for item in items for word in ("--set", item)]
        status = run(["bench", str(grid), "--out", str(bench), "--device", arguments.device, *options])
        if status not in (0, NOT_REACHED):
            return status
    found = cells_of(read_bench(bench), read_grid(grid, read_settings(instead)))
    if not found.cells:
        raise UnrankError(f"{bench} holds no cell of {grid.name}: give this run a collection in its place")
    print(f"{count(len(found.cells), 'cell')} of {grid.name} in {bench}")
    write(show(found), arguments.out)
    return status


def answer(job: Callable[[], int]) -> None:
    """End with a job's exit status; a mistake of the user is one line and status 2."""
    try:
        sys.exit(job())
    except UnrankError as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(2)


def check_out(out: Path) -> None:
    """Refuse a folder that could not be written, before any work is done."""
    for made in ("figures", "tables"):
        check_free(out / made)


def write(shown: Shown, out: Path) -> None:
    """Write figures and tables."""
    drawings, tables = shown
    write_figures([drawing for drawing in drawings if drawing], out / "figures")
    write_tables(tables, out / "tables")
    print(f"figures and tables are in {out}")


def cells_of(bench: Bench, grid: Mapping[str, Section]) -> Bench:
    """Return the cells of a bench that a grid asks for, on any collection."""

    def fits(cell: Cell, part: Section) -> bool:
        setting = cell.setting
        if setting.ranker not in map(ranker_kind, part.rankers):
            return False
        labels = {read_method_spec(text, setting.ranker, Retrain(), None).label for text in part.methods}
        return (
            (setting.removal in part.removals and setting.share in part.shares)
            and cell.label in {*labels, RETRAIN}
            and cell.target in {None, *part.destinations}
        )

    return Bench([cell for cell in bench.cells if any(fits(cell, part) for part in grid.values())])


class Lines(Silence):
    """Progress as plain lines."""

    def say(self, line: str) -> None:
        print(f"  {line}", flush=True)


def keep(out: Path, *records: Record) -> None:
    """Append records, one a line, with counts of removals in place of their hashes."""
    with (out / "records.jsonl").open("a", encoding="utf-8") as file:
        for record in records:
            value: dict[str, Any] = record.to_json()
            removed = value["removed"] or {}
            value["removed"] = {name: part["count"] for name, part in removed.items() if name not in ("salt", "key")}
            value["removed_before"] = len(value["removed_before"])
            file.write(json.dumps(value) + "\n")


def earlier_lines(names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the lines that earlier runs wrote, if all names are of such files; else nothing."""
    if not all(name.endswith((".jsonl", ".jsonl.gz")) for name in names):
        return []
    texts = [
        gzip.decompress(data) if name.endswith(".gz") else data for name in names for data in [Path(name).read_bytes()]
    ]
    return [json.loads(line) for text in texts for line in text.decode().splitlines()]


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]]


def show(lines: Sequence[str], out: Path) -> None:
    (out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines), flush=True)


def parser(description: str | None, rankers: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser with the options of every run."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("collection", type=Path)
    made.add_argument("--out", type=Path, required=True)
    made.add_argument("--rankers", nargs="+", default=rankers)
    made.add_argument("--base", help="the encoder of the transformer rankers")
    made.add_argument("--words", help="the word vectors of the others")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--device", default="auto")
    return made


def base_of(kind: str, arguments: argparse.Namespace) -> str | None:
    base: str | None = arguments.words if reads_words(kind) else arguments.base
    return base
