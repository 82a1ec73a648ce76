"""The paper's opening figure: other methods forget at the cost of the kept sets. ColBERT, MS MARCO, a quarter removed.

    python runs/opening.py COLLECTION --out opening [--base MODEL] [--device cuda]

COLLECTION may also be the folder of a bench that holds the cells of grids/opening.toml or grids/mini.toml. The paper's:

    marco="irds:msmarco-passage/train/judged --test-split msmarco-passage/dev/small --candidates 2000"
    unrank import $marco --keep queries-with-several-documents --train-queries 2782 --out marco-documents
    unrank import $marco --keep queries-sharing-documents --out marco-queries
    python runs/opening.py marco-documents --set removals=documents --out opening-documents
    python runs/opening.py marco-queries --set removals=queries --out opening-queries
"""

from __future__ import annotations

from shared import Shown, experiment

from unrank.report.bench_figures import set_bars
from unrank.report.bench_tables import detail_tables
from unrank.report.cell import Bench
from unrank.report.charts import panels


def show(bench: Bench) -> Shown:
    bars = [set_bars(bench, setting) for setting in bench.settings]
    return [panels("opening", "What forgetting costs", bars)], detail_tables(bench)


if __name__ == "__main__":
    experiment(__doc__, "opening", show)
