"""What was kept of the original's and of retrain's MRR, and how far lists and queries agree with retrain's.

Both tables have a row for doing nothing, the original itself: a method has to do better than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from unrank.evaluation.agreement import ForgetFigures, correlation, mean_overlap
from unrank.evaluation.bootstrap import BootstrapEstimate
from unrank.evaluation.measure import Floats
from unrank.record import KEPT, Said
from unrank.report.cell import Bench, Cell
from unrank.report.compare import ENOUGH, least_kept
from unrank.report.estimates import Estimates, Row
from unrank.report.primary import (
    RESAMPLED,
    TWICE,
    Primary,
    estimated,
    margin_table,
    over_cells,
    pairs_table,
    primary_table,
    said_by,
)
from unrank.report.table import Table, Value, figure, words

SHARES = {"original": "of original's", "retrain": "of retrain's"}
KEPT_NOTE = (
    "E, D, T: MRR on entangled, disjoint and test, as a share of the original's and of that of retrain of the same "
    f"seed and draw. Least: of the original's, in the cell that kept least, of those with {ENOUGH} queries or more in "
    f"the set. {RESAMPLED}"
)
AGREEMENT_NOTE = (
    "Each forget query by itself, against retrained rankers of all seeds. Correlation: Pearson's, of the reciprocal "
    "ranks; empty if one side does not vary. Overlap of lists: extrapolated rank-biased overlap (p .9) of the first 50 "
    "places of whole lists; empty if the cells keep no lists. |F − F(retrain)|: the difference of the two forget MRRs. "
    "± is half of the 95 % interval over cells."
)


@dataclass(frozen=True)
class KeptShares:
    """The MRR of each row, of its original and of its retrained rankers on a set."""

    rows: Sequence[Row]
    name: str

    @cached_property
    def _whole(self) -> dict[str, Estimates]:
        return {of: Estimates(self.rows, partial(self._value, of)) for of in ("own", *SHARES)}

    def _value(self, of: str, row: Row, cell: Cell) -> Floats | None:
        there = cell.twin if of == "retrain" else cell
        if there is None or self.name not in there.ranks:
            return None
        before = of == "original" or (of == "own" and row.side == "before")
        return there.ranks[self.name].reciprocal_before if before else there.ranks[self.name].reciprocal

    def share(self, row: Row, of: str) -> BootstrapEstimate | None:
        """Return the mean share of the original's or of retrain's MRR over settings."""
        mine, theirs = self._whole["own"].of(row), self._whole[of].of(row)
        shares = [mine[setting] / theirs[setting] for setting in theirs if theirs[setting].value and setting in mine]
        return BootstrapEstimate.mean_of(shares) if shares else None


def result_tables(found: Primary, given: Said | None = None) -> list[Table]:
    """Make the tables of the primary result and those that it rests on. `given` is said after the runs."""
    said, before = said_by(found.bench, given)
    tables = [primary_table(found), pairs_table(found, said, before), margin_table(found, said, before)]
    return [table for table in (*tables, kept_table(found), agreement_table(found)) if table]


def kept_table(found: Primary) -> Table:
    """Make one row for doing nothing and one per method: the shares of both, with intervals."""
    sets = {letter: KeptShares(found.together, name) for letter, name in zip("EDT", KEPT, strict=True)}
    head = ["method", "cells", *(f"{letter} {of}" for letter in sets for of in (*SHARES.values(), "least"))]
    rows = [
        [words(row.name), figure(len(row.cells), "d"), *(value for of in sets.values() for value in _kept(of, row))]
        for row in found.together
    ]
    kinds = [{"method": row.name} for row in found.together]
    return Table("kept", "What each method kept, beside doing nothing", head, rows, note=KEPT_NOTE, kinds=kinds)


def _kept(shares: KeptShares, row: Row) -> list[Value]:
    found = [estimated(shares.share(row, of)) for of in SHARES]
    return [*found, figure(least_kept(row.cells, shares.name, row.side))]


def agreement_table(found: Primary) -> Table | None:
    """Make rows for two retrained rankers, for doing nothing and for each method, by kind of removal.

    Return `None` if no cell has a retrained ranker beside it.
    """
    head = ["method", "removed", "cells", "correlation", "overlap of lists", "|F\u00a0− F(retrain)|"]
    rows, kinds = [], []
    for removal, part in found.parts.items():
        for row in (row for row in part if row.comparable):
            if pairs := [pair for cell in row.cells for pair in _beside(found.bench, row, cell)]:
                label = TWICE if row.is_retrained else row.name
                rows.append([words(label), words(removal), figure(len(row.cells), "d"), *_agreement(pairs)])
                kinds.append({"removal": removal, "method": row.name})
    caption = "How far each method agrees with retrain on the forget set"
    return Table("agreement", caption, head, rows, 2, AGREEMENT_NOTE, kinds=kinds) if rows else None


def _beside(bench: Bench, row: Row, cell: Cell) -> list[tuple[ForgetFigures, ForgetFigures]]:
    """Return the forget set of a cell beside that of each retrained ranker."""
    own = cell.forget.get(row.side)
    judges = bench.judges(cell, itself=row.side == "before")
    return [(own, judge.forget["after"]) for judge in judges] if own else []


def _agreement(pairs: Sequence[tuple[ForgetFigures, ForgetFigures]]) -> list[Value]:
    return [
        over_cells(correlation(one.reciprocal, other.reciprocal) for one, other in pairs),
        over_cells(mean_overlap(one.orders, other.orders) for one, other in pairs if one.orders and other.orders),
        over_cells(abs(float(one.reciprocal.mean() - other.reciprocal.mean())) for one, other in pairs),
    ]
