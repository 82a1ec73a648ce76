"""The paper's first experiment: 5, 15 and 25 % removed, four rankers, both removals, seven methods. Tables and radars.

    python runs/shares.py COLLECTION … --out shares [--base MODEL] [--device cuda]

COLLECTION may also be the folder of a bench that holds the cells of grids/shares.toml, or some of them: mini.toml's,
paper.toml's. The head of grids/paper.toml says how to import what the paper used, irds:msmarco-passage/train/judged and
irds:car/v1.5/train/fold0, each in both forms; then

    unrank bench grids/paper.toml --out paper
    python runs/shares.py paper --out shares
"""

from __future__ import annotations

from shared import Shown, experiment

from unrank.report.agreement_tables import result_tables
from unrank.report.bench_figures import mean_radars, paper_radars, radars_of
from unrank.report.bench_tables import control_table, detail_tables
from unrank.report.cell import Bench
from unrank.report.charts import panels
from unrank.report.paper_tables import paper_details, paper_table
from unrank.report.primary import Primary


def show(bench: Bench) -> Shown:
    ours, theirs = mean_radars(bench), paper_radars(bench)
    together = panels("radars", "All collections and rankers together", [*ours, *theirs], columns=len(ours))
    each = panels("radars-each", "Each collection and ranker", radars_of(bench), columns=len(ours))
    paper = [table for table in (control_table(bench), paper_table(bench), paper_details(bench)) if table]
    return [together, each], [*result_tables(Primary(bench)), *paper, *detail_tables(bench)]


if __name__ == "__main__":
    experiment(__doc__, "shares", show)
