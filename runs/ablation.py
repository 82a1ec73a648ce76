"""The paper's ablation: cocol without its losses on entangled pairs, and without those on disjoint pairs.

Curves over epochs of all four sets, both removals, cross-encoder, MS MARCO, a quarter removed. Each kept set is
watched on a sample of a hundred queries.

    python runs/ablation.py COLLECTION --out ablation [--base MODEL] [--device cuda]

COLLECTION may also be the folder of a bench that holds the cells of grids/ablation.toml. The paper's:

    marco="irds:msmarco-passage/train/judged --test-split msmarco-passage/dev/small --candidates 2000"
    unrank import $marco --keep queries-with-several-documents --train-queries 2782 --out marco-documents
    unrank import $marco --keep queries-sharing-documents --out marco-queries
    python runs/ablation.py marco-documents --set removals=documents --out ablation-documents
    python runs/ablation.py marco-queries --set removals=queries --out ablation-queries
"""

from __future__ import annotations

from dataclasses import replace

from shared import Shown, experiment

from unrank.record import SETS
from unrank.report.bench_figures import method_curves
from unrank.report.bench_tables import detail_tables
from unrank.report.cell import Bench, Setting
from unrank.report.charts import panels
from unrank.report.drawing import Drawing
from unrank.report.wording import file_name


def show(bench: Bench) -> Shown:
    return [curves_of_all_sets(bench, setting) for setting in bench.settings], detail_tables(bench)


def curves_of_all_sets(bench: Bench, setting: Setting) -> Drawing | None:
    drawn = {of: method_curves(bench, setting, of) for of in SETS}
    titled = [replace(curves, title=f"MRR of {of}") for of, curves in drawn.items() if curves]
    return panels(file_name(f"ablation-{setting}"), str(setting), titled)


if __name__ == "__main__":
    experiment(__doc__, "ablation", show)
