"""Code that the runs have in common: an experiment from its grid to its figures, progress, records and tables."""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from unrank.bench.grid import Section, read_grid
from unrank.bench.method_spec import read_method_spec
from unrank.bench.packed import is_packed
from unrank.cli.main import run
from unrank.cli.option import NOT_REACHED
from unrank.disk import check_free
from unrank.engine.checkpoint import digest
from unrank.engine.runtime import Silence
from unrank.errors import UnrankError, count
from unrank.forgetting.train import Trained
from unrank.methods import read_settings
from unrank.methods.retrain import Retrain
from unrank.rankers import load_ranker, ranker_kind, reads_words
from unrank.rankers.base import Ranker
from unrank.record import RETRAIN, Record
from unrank.report.bench_folder import read_bench
from unrank.report.cell import Bench, Cell
from unrank.report.drawing import Drawing
from unrank.report.table import Table
from unrank.report.write import write_figures, write_tables

GRIDS = Path(__file__).parents[1] / "grids"
Line = dict[str, Any]
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


class LineFile:
    """The lines of JSON that a run writes. A run that was stopped goes on after those that its file holds."""

    def __init__(self, path: Path) -> None:
        self._path = path
        whole = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        self._lines: list[Line] = [json.loads(line) for line in whole if line.endswith("\n")]
        self._rewrite()

    def of(self, facts: Line) -> list[Line]:
        """Return the lines that state these facts."""
        return [line for line in self._lines if facts.items() <= {name: line.get(name) for name in facts}.items()]

    def go_on(self, facts: Line, rankers: str) -> list[Line]:
        """Return the lines of a part that was begun with these rankers; drop those of the same part with others."""
        before = self.of(facts)
        same = [line for line in before if line.get("rankers") == rankers]
        if len(same) < len(before):
            number = count(len(before) - len(same), "line")
            print(f"{number} of {[*facts.values()]} dropped: their rankers are not kept", file=sys.stderr, flush=True)
            self._lines = [line for line in self._lines if line not in before or line in same]
            self._rewrite()
        return same

    def write(self, line: Line) -> None:
        self._lines.append(json.loads(json.dumps(line)))
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _rewrite(self) -> None:
        whole = self._path.with_name(f"{self._path.name}.part")
        whole.write_text("".join(json.dumps(line) + "\n" for line in self._lines), encoding="utf-8")
        whole.replace(self._path)


class Made(NamedTuple):
    """A ranker that was trained, now or by a call before, and its record."""

    ranker: Ranker
    record: Record


def made(folder: Path | None, name: str, train: Callable[[], Trained]) -> Made:
    """Train a ranker, or read the one that a stopped run kept in a folder under this name."""
    if folder is None:
        trained = train()
        return Made(trained.ranker, trained.record)
    place = folder / name
    if (record := Record.read(place)) is not None:
        return Made(load_ranker(place), record)
    trained = train()
    trained.save(place)
    return Made(trained.ranker, trained.record)


def hash_of(rankers: Sequence[Ranker]) -> str:
    """Return one hash of the weights of some rankers."""
    return hashlib.sha256("".join(digest(ranker.state_dict()) for ranker in rankers).encode()).hexdigest()[:16]


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
