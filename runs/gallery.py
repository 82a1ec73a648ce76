"""The gallery of the paper's experiments: one picture of each, from the records in results/, for docs/gallery.md.

    python runs/gallery.py [--results results] [--out docs/gallery]

Score ranges need the rankers themselves: `runs/score_ranges.py` writes them as `score-ranges.json`, and this draws the
file that is in results/; without one it leaves them out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import ablation
import destinations
import opening
import score_ranges
import shares
import times
import word_curves
from shared import GRIDS, Shown, answer, cells_of

from unrank.bench.grid import read_grid
from unrank.report.bench_folder import read_bench
from unrank.report.cell import Bench
from unrank.report.drawing import Drawing, file_svg

MARCO = "msmarco-passage-mini"


def of_marco(bench: Bench) -> Bench:
    return Bench([cell for cell in bench.cells if cell.setting.collection == MARCO])


def by_documents(bench: Bench) -> Bench:
    return Bench([cell for cell in bench.cells if cell.setting.removal == "documents"])


def whole(bench: Bench) -> Bench:
    return bench


PICTURES: dict[str, tuple[str, str, Callable[[Bench], Bench], Callable[[Bench], Shown]]] = {
    "opening": ("cells", "opening", of_marco, opening.show),
    "shares": ("cells", "shares", whole, shares.show),
    "destinations": ("quarter", "destinations", by_documents, destinations.show),
    "times": ("quarter", "destinations", by_documents, times.show),
    "ablation": ("ablation", "ablation", by_documents, ablation.show),
    "words": ("words", "words", whole, word_curves.show),
}
"""For each picture: the file of its records, its grid, the cells that it shows, and what draws it."""


def picture(results: Path, name: str) -> Drawing:
    """Return the first figure of an experiment."""
    records, grid, chosen, show = PICTURES[name]
    bench = chosen(cells_of(read_bench(results / f"{records}.jsonl.gz"), read_grid(GRIDS / f"{grid}.toml")))
    return next(drawing for drawing in show(bench)[0] if drawing)


def run(results: Path, out: Path) -> int:
    out.mkdir(parents=True, exist_ok=True)
    drawings = {name: picture(results, name) for name in PICTURES}
    ranges = results / "score-ranges.json"
    if ranges.is_file():
        drawings["score-ranges"] = score_ranges.drawing(json.loads(ranges.read_text(encoding="utf-8")))
    for name, drawing in drawings.items():
        (out / f"{name}.svg").write_text(file_svg(drawing) + "\n", encoding="utf-8")
        print(f"{out / name}.svg: {drawing.title}", flush=True)
    return 0


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--results", type=Path, default=Path("results"))
    options.add_argument("--out", type=Path, default=Path("docs/gallery"))
    arguments = options.parse_args()
    answer(lambda: run(arguments.results, arguments.out))
