"""The paper's own measures beside the numbers that it printed, and how far ours depart from them.

The paper measures F with the other relevant documents left in the list, down to rank 100, and E, D and T by MRR@10.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unrank.record import KEPT, SETS
from unrank.report.cell import Bench, Cell
from unrank.report.compare import mean
from unrank.report.estimates import NOTHING
from unrank.report.paper import the_paper
from unrank.report.primary import over_cells
from unrank.report.table import Table, Value, figure, words
from unrank.report.wording import percent

DISTANCE = "|F\u00a0− T(retrain)|"
OUR_DISTANCE = f"{DISTANCE} by our F"
DEPTHS = {"forget": 100, "entangled": 10, "disjoint": 10, "test": 10}
"""The last rank that the paper counts in each set."""
MEASURE_NOTE = (
    "F: MRR@100 on forget queries, their other relevant documents left in the list (forget_full; the forget set's own "
    "lists in cells that lack it). Our runs are steered by another F, without those documents: its distance stands "
    "beside that. E, D, T: MRR@10. Kept: as a share of retrain's, because the paper prints no "
    "original. ± is half of the 95 % interval over cells; the paper prints none."
)
ABLATION = {
    "without_entangled=true": ("all falls", "entangled"),
    "without_disjoint=true": ("little changes", "disjoint"),
}
"""For each part of cocol's loss that is left out: the paper's finding, and the set that the part holds."""


def paper_mrr(cell: Cell, name: str, side: str = "after") -> float | None:
    """Return a set's MRR as the paper measures it; `None` if the cell has no ranks of it."""
    ranks = cell.ranks.get("forget_full" if name == "forget" and "forget_full" in cell.ranks else name)
    if ranks is None:
        return None
    reciprocal = ranks.reciprocal_before if side == "before" else ranks.reciprocal
    return float(np.where(reciprocal >= 1 / (DEPTHS[name] + 0.5), reciprocal, 0.0).mean())


def _of_retrain(cell: Cell, name: str, side: str = "after") -> float | None:
    own, theirs = paper_mrr(cell, name, side), paper_mrr(cell.twin, name) if cell.twin else None
    return own / theirs if own is not None and theirs else None


def _distance(cell: Cell, side: str = "after") -> float | None:
    own, test = paper_mrr(cell, "forget", side), paper_mrr(cell.twin, "test") if cell.twin else None
    return None if own is None or test is None else abs(own - test)


def paper_table(bench: Bench) -> Table | None:
    """Make three rows per method, ours, the paper's and the difference, over the cells that it printed.

    Return `None` if it printed none of them.
    """
    paper, rows = the_paper(), []
    printed = {name: [cell for cell in bench.of(name) if paper.printed(cell)] for name in bench.series}
    there = {name: cells for name, cells in printed.items() if cells}
    first = {cell.trial: cell for cells in there.values() for cell in cells}
    head = ["method", "whose", "cells", DISTANCE, OUR_DISTANCE, *(f"{name} kept" for name in "EDT")]
    if first:
        rows.append([words(NOTHING), words("ours"), *_measured(list(first.values()), "before")])
    for name, cells in there.items():
        ours, theirs = _measured(cells), _printed(cells)
        apart = [_apart(mine, its) for mine, its in zip(ours[1:], theirs[1:], strict=True)]
        rows += [[words(name), words("ours"), *ours], [words(name), words("the paper's"), *theirs]]
        rows.append([words(name), words("ours less the paper's"), figure(len(cells), "d"), *apart])
    kinds = [{"method": row[0].text} for row in rows]
    note = f"{MEASURE_NOTE} {paper_source()}"
    caption = "The paper's measures, over the cells that it printed too"
    return Table("paper", caption, head, rows, 2, note, kinds=kinds) if rows else None


def _measured(cells: Sequence[Cell], side: str = "after") -> list[Value]:
    kept = [over_cells(_of_retrain(cell, name, side) for cell in cells) for name in KEPT]
    own = over_cells(None if side == "before" else cell.distance for cell in cells)
    return [figure(len(cells), "d"), over_cells(_distance(cell, side) for cell in cells), own, *kept]


def _printed(cells: Sequence[Cell]) -> list[Value]:
    paper = the_paper()
    kept = [mean(paper.kept(cell).get(name) for cell in cells) for name in KEPT]
    return [figure(len(cells), "d"), figure(mean(map(paper.distance, cells))), figure(None), *map(figure, kept)]


def _apart(ours: Value, theirs: Value) -> Value:
    known = ours.number is not None and theirs.number is not None
    return figure(ours.number - theirs.number if known else None, "+z.3f")  # type: ignore[operator]


def paper_details(bench: Bench) -> Table | None:
    """Make one row per setting and method that the paper printed: its four MRRs beside ours."""
    rows, kinds, paper = [], [], the_paper()
    for setting in bench.settings:
        for name in bench.series:
            cells = bench.of(name, setting)
            printed = paper.printed(cells[0]) if cells else None
            if not printed:
                continue
            ours = [mean(paper_mrr(cell, of) for cell in cells) for of in SETS]
            apart = [None if mine is None else mine - printed[of] for mine, of in zip(ours, SETS, strict=True)]
            labels = [setting.collection, setting.ranker, setting.removal, percent(setting.share), name]
            theirs = [figure(printed[of], ".2f") for of in SETS]
            figures = [*map(figure, ours), *theirs, *(figure(value, "+z.3f") for value in apart)]
            rows.append([*map(words, labels), figure(len(cells), "d"), *figures])
            kinds.append(dict(zip(("collection", "ranker", "removal", "share", "method"), labels, strict=True)))
    head = ["collection", "ranker", "removed", "share", "method", "cells"]
    head += [f"{name}{whose}" for whose in ("", ", the paper's", ", difference") for name in "FEDT"]
    caption = "The paper's measures, setting by setting"
    note = f"{MEASURE_NOTE} {paper_source()}"
    return Table("paper-settings", caption, head, rows, 5, note, kinds=kinds) if rows else None


def ablation_table(bench: Bench) -> Table | None:
    """Set our ablation beside the paper's findings; `None` if no method leaves a part of its loss out."""
    rows, kinds = [], []
    for setting in bench.settings:
        for part, (finding, held) in ABLATION.items():
            left = next((name for name in bench.series if part in name and bench.of(name, setting)), None)
            whole = bench.of(left.replace(f",{part}", ""), setting) if left else []
            if left and whole:
                without = bench.of(left, setting)
                falls = [over_cells(_fall(cells, of)) for of in KEPT for cells in (whole, without)]
                labels = [setting.collection, setting.ranker, setting.removal, held]
                ours = _finding([whole, without], held)
                rows.append([*map(words, labels), figure(len(without), "d"), *falls, words(finding), words(ours)])
                kinds.append(dict(zip(("collection", "ranker", "removal"), labels, strict=False)))
    head = ["collection", "ranker", "removed", "left out", "cells"]
    head += [f"{name} {which}" for name in "EDT" for which in ("with it", "without")]
    note = (
        "E, D, T: shares of the original's MRR, with the whole loss and without the part; doing nothing has 1. The "
        "paper finds that without the part on disjoint pairs little changes, and that all falls without that on "
        "entangled pairs. ± is half of the 95 % interval over cells."
    )
    head += ["the paper's finding", "ours"]
    caption = "The ablation, beside the paper's findings"
    return Table("ablation", caption, head, rows, 4, note, kinds=kinds) if rows else None


def _fall(cells: Sequence[Cell], name: str) -> list[float | None]:
    return [cell.kept(name) for cell in cells]


def _finding(cells: Sequence[Sequence[Cell]], held: str) -> str:
    """Say which kept sets lost more than .05 of the original's MRR by leaving the part out."""
    lost = {}
    for name in KEPT:
        whole, without = (mean(cell.kept(name) for cell in some) for some in cells)
        if whole is not None and without is not None:
            lost[name] = whole - without
    fell = [f"{name} falls by {value:.2f}" for name, value in lost.items() if value > 0.05]
    return "; ".join(fell) or "no set falls by more than .05"


def paper_source() -> str:
    return f"Paper: {the_paper().source}; its collections are larger than these."
