"""Controllable forgetting: cocol to the paper's three destinations, a quarter removed, and the other sets.

    python runs/destinations.py COLLECTION … --out destinations [--base MODEL] [--device cuda]

COLLECTION may also be the folder of a bench that holds the cells of grids/destinations.toml. The paper's:

    marco="irds:msmarco-passage/train/judged --test-split msmarco-passage/dev/small --candidates 2000"
    unrank import $marco --keep queries-with-several-documents --train-queries 2782 --out marco-documents
    unrank import $marco --keep queries-sharing-documents --out marco-queries
    car="irds:car/v1.5/train/fold0 --test-split car/v1.5/test200"
    unrank import $car --keep queries-with-several-documents --out car-documents
    unrank import $car --keep queries-sharing-documents --out car-queries
    python runs/destinations.py marco-documents car-documents --set removals=documents --out destinations-documents
    python runs/destinations.py marco-queries car-queries --set removals=queries --out destinations-queries
"""

from __future__ import annotations

from shared import Shown, experiment

from unrank.report.bench_figures import set_bars
from unrank.report.bench_tables import detail_tables
from unrank.report.cell import Bench
from unrank.report.charts import panels


def show(bench: Bench) -> Shown:
    bars = [set_bars(bench, setting) for setting in bench.settings]
    return [panels("destinations", "From the original to three destinations", bars)], detail_tables(bench)


if __name__ == "__main__":
    experiment(__doc__, "destinations", show)
