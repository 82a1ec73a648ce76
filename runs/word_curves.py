"""Duet and MatchPyramid: the four sets while cocol forgets, with the epoch that met each target.

The curve is that of the run with the lowest target, so that it shows what follows after the other targets were met.

    python runs/word_curves.py COLLECTION … --out word-curves [--words VECTORS] [--device cuda]

COLLECTION may also be the folder of a bench that holds the cells of grids/words.toml. The paper's:

    car="irds:car/v1.5/train/fold0 --test-split car/v1.5/test200"
    unrank import $car --keep queries-with-several-documents --out car-documents
    unrank import $car --keep queries-sharing-documents --out car-queries
    python runs/word_curves.py car-documents --set removals=documents --out curves-documents
    python runs/word_curves.py car-queries --set removals=queries --out curves-queries
"""

from __future__ import annotations

from shared import Shown, experiment

from unrank.report.bench_tables import detail_tables
from unrank.report.cell import Bench, Cell
from unrank.report.charts import Target, curves, panels
from unrank.report.drawing import Drawing
from unrank.report.run_figures import set_curves
from unrank.report.table import Table, Value, figure, words


def show(bench: Bench) -> Shown:
    groups: dict[str, list[Cell]] = {}
    for cell in sorted(bench.cells, key=lambda cell: (cell.label, bench.settings.index(cell.setting))):
        if cell.target is not None:
            groups.setdefault(f"{cell.label}, {cell.setting}, seed {cell.seed}", []).append(cell)
    drawn = [curve for title, cells in groups.items() if (curve := farthest_run(title, cells))]
    rows = [met(cell) for cells in groups.values() for cell in cells]
    head = ["method", "setting", "destination", "δ", "F", "met after epoch"]
    table = Table("epochs", "The epoch that met the target; none if it was not met", head, rows, 3)
    return [panels("word-curves", "MRR over epochs", drawn)], [table, *detail_tables(bench)]


def farthest_run(title: str, cells: list[Cell]) -> Drawing | None:
    farthest = min((cell.record for cell in cells), key=lambda run: run.target or 0.0)
    targets = [Target(cell.record.target, cell.record.met) for cell in cells if cell.record.target is not None]
    series = set_curves(farthest)
    return curves("curves", title, series, targets) if series else None


def met(cell: Cell) -> list[Value]:
    epoch = words("none") if cell.record.met is None else figure(cell.record.met, "g")
    labels = map(words, (cell.label, str(cell.setting), str(cell.target)))
    return [*labels, figure(cell.record.target), figure(cell.record.after["forget"].mrr), epoch]


if __name__ == "__main__":
    experiment(__doc__, "words", show)
