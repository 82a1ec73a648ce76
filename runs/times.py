"""Unlearning time against retraining: cocol to the paper's three destinations, a quarter removed.

    python runs/times.py COLLECTION … --out times [--base MODEL] [--device cuda]

COLLECTION may also be the folder of a bench that holds the cells of grids/destinations.toml; `runs/destinations.py`
leaves one in its --out. Times can be compared if cells ran one at a time, on a machine without other work. The paper's
collections, irds:msmarco-passage/train/judged and irds:car/v1.5/train/fold0, are imported as `runs/destinations.py`
says; then

    python runs/times.py destinations-documents/bench --out times-documents
    python runs/times.py destinations-queries/bench --out times-queries
"""

from __future__ import annotations

from shared import Shown, experiment

from unrank.record import RETRAIN
from unrank.report.bench_figures import times
from unrank.report.cell import Bench, Setting
from unrank.report.charts import panels
from unrank.report.compare import mean
from unrank.report.table import Table, Value, figure, words
from unrank.report.wording import percent


def show(bench: Bench) -> Shown:
    bars = [drawn for setting in bench.settings if (drawn := times(bench, setting))]
    return [panels("times", "Time against retraining", bars)], [table(bench)]


def table(bench: Bench) -> Table:
    head = ["collection", "ranker", "removed", *(f"{name}: learning epochs" for name in bench.series)]
    head += [f"{name} / {RETRAIN}" for name in bench.series if name != RETRAIN]
    note = (
        "The whole time of a run, checks and landing included, as a mean over seeds. A learning epoch is one epoch of "
        "the original's training."
    )
    rows = [row(bench, setting) for setting in bench.settings]
    return Table("times", "Time of forgetting and of retraining", head, rows, 3, note)


def row(bench: Bench, setting: Setting) -> list[Value]:
    cells = {name: bench.of(name, setting) for name in bench.series}
    labels = [setting.collection, setting.ranker, f"{percent(setting.share)} by {setting.removal}"]
    epochs = [mean(cell.record.total_time for cell in found if cell.alone) for found in cells.values()]
    shares = [mean(cell.time for cell in found) for name, found in cells.items() if name != RETRAIN]
    return [*map(words, labels), *(figure(value, ".2f") for value in (*epochs, *shares))]


if __name__ == "__main__":
    experiment(__doc__, "destinations", show)
