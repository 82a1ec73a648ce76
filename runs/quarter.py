"""A quarter removed: what cocol keeps, its time and its recovery test, beside its printed form and other methods.

    python runs/quarter.py COLLECTION … --out quarter [--base MODEL] [--device cuda]

COLLECTION may also be the folder of a bench that holds the cells of grids/quarter.toml, or some of them. The paper's
collections, irds:msmarco-passage/train/judged and irds:car/v1.5/train/fold0, are imported as `runs/destinations.py`
says.
"""

from __future__ import annotations

from collections.abc import Sequence

from shared import Shown, experiment

from unrank.evaluation.agreement import ForgetFigures, distance
from unrank.record import KEPT
from unrank.report.agreement_tables import result_tables
from unrank.report.bench_tables import control_table
from unrank.report.cell import Bench, Cell
from unrank.report.compare import mean
from unrank.report.primary import Primary
from unrank.report.table import Table, Value, figure, words
from unrank.report.wording import file_name

HEAD = [
    "collection", "ranker", "removed", "δ", "F", "E / original", "D / original", "T / original", "E / retrain",
    "D / retrain", "T / retrain", "distance", "epochs", "seconds", "time / retrain", "recovered", "by",
    "retrain recovered", "by ",
]  # fmt: skip
LABELS = 3
NOTE = (
    "E, D, T: as shares of the original's MRR and of retrain's. Distance: the mean of |RR − RR(retrain)| over forget "
    "queries. Time: all of it, checks and landing included. "
    "Recovered: F after an epoch on kept data alone, and by how much that epoch moved it."
)


def show(bench: Bench) -> Shown:
    control = [made] if (made := control_table(bench)) else []
    return [], [*result_tables(Primary(bench)), *control, *(table(bench, name) for name in bench.series)]


def table(bench: Bench, name: str) -> Table:
    rows = [row(cell) for cell in bench.of(name)]
    return Table(file_name(f"quarter {name}"), name, HEAD, [*rows, means(rows)], LABELS, NOTE)


def row(cell: Cell) -> list[Value]:
    run, retrained = cell.record, cell.retrained
    labels = [cell.setting.collection, cell.setting.ranker, cell.setting.removal]
    return [
        *map(words, labels),
        figure(run.target if cell.target else None),
        figure(run.after["forget"].mrr),
        *(figure(cell.kept(of)) for of in KEPT),
        *(figure(cell.kept_of_retrain(of)) for of in KEPT),
        figure(apart(*cell.beside_retrain) if cell.beside_retrain else None),
        figure(run.epochs, ".2g"),
        figure(run.seconds if cell.alone else None, ".1f"),
        figure(cell.time, ".2f"),
        *recovery(run.recovered, run.after["forget"].mrr),
        *(recovery(retrained.recovered, retrained.after["forget"].mrr) if retrained else recovery(None, 0.0)),
    ]


def apart(one: ForgetFigures, other: ForgetFigures) -> float:
    return distance(one.reciprocal, other.reciprocal)


def recovery(recovered: float | None, forgot: float) -> list[Value]:
    return [figure(recovered), figure(None if recovered is None else recovered - forgot, "+.3f")]


def means(rows: Sequence[Sequence[Value]]) -> list[Value]:
    columns = [[row[column].number for row in rows] for column in range(LABELS, len(HEAD))]
    forms = [".3f"] * 9 + [".1f", ".1f", ".2f", ".3f", "+.3f", ".3f", "+.3f"]
    found = [figure(mean(column), form) for column, form in zip(columns, forms, strict=True)]
    return [words(f"mean of {len(rows)}"), *[words("")] * (LABELS - 1), *found]


if __name__ == "__main__":
    experiment(__doc__, "quarter", show)
