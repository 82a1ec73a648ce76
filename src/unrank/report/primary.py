"""The primary result of a bench: the distance to retrain query by query, what was kept, what comes back, and time.

Two tables of tests follow. Methods are compared pairwise by their distances, with Holm's correction for the number of
comparisons. What is kept is tested against a margin that the grid said beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

import numpy as np

from unrank.errors import count
from unrank.evaluation.bootstrap import MIN_QUERIES, BootstrapEstimate, interval
from unrank.evaluation.measure import Floats
from unrank.evaluation.significance import holm_adjusted, inferiority, two_sided
from unrank.record import KEPT, MARGIN, Said
from unrank.report.cell import DESTINATION, REMOVALS, Bench, Cell, Setting
from unrank.report.compare import has_few_queries
from unrank.report.estimates import NOTHING, Estimates, Row, rows_of
from unrank.report.table import Table, Value, figure, mark_best, spread, words
from unrank.report.wording import listing

DISTANCE, NOISE, BACK, TIME = "distance to retrain", "/ noise", "comes back", "time / retrain"
TWICE = "retrain, another seed"
HEAD = [
    "method",
    "removed",
    DISTANCE,
    NOISE,
    *(f"{name} kept" for name in "EDT"),
    BACK,
    TIME,
    "cells",
    "forget queries",
]
RESAMPLED = (
    "± is half of the 95 % interval. Queries are resampled within draws, draws within training seeds; a level with one "
    "member adds nothing to it. Settings are not resampled."
)
PRIMARY_NOTE = (
    "Distance to retrain: |RR − RR(retrain)| of each forget query by itself, RR being its reciprocal rank, as a mean "
    "over queries and over retrained rankers of all seeds. / noise: as a multiple of the distance of two retrained "
    "rankers of different seeds, where there are two. E, D, T kept: MRR on entangled, disjoint and test as a share of "
    "the original's. Comes back: how much the forget MRR rises in an epoch on kept data alone. Time: over cells that "
    f"had the machine to themselves. {RESAMPLED} That of what comes back and of time is over cells."
)


@dataclass(frozen=True)
class Primary:
    """The rows of a bench, by kind of removal and of both together, with their estimates."""

    bench: Bench

    @cached_property
    def parts(self) -> dict[str, list[Row]]:
        """The rows of each kind of removal that a cell has."""
        there = {cell.setting.removal for cell in self.bench.cells}
        return {removal: rows_of(self.bench, removal) for removal in REMOVALS if removal in there}

    @cached_property
    def together(self) -> list[Row]:
        """The comparable rows over both kinds of removal."""
        return [row for row in rows_of(self.bench) if row.comparable]

    @cached_property
    def _rows(self) -> list[Row]:
        return [row for rows in self.parts.values() for row in rows] + self.together

    @cached_property
    def distance(self) -> Estimates:
        return Estimates(self._rows, lambda row, cell: self.bench.distances(cell, row.side))

    @cached_property
    def noise(self) -> dict[Setting, float]:
        """The mean distance of two retrained rankers, in the settings that have two."""
        found: dict[Setting, list[float]] = {}
        for cell in self.bench.cells:
            if cell.is_retrained and (apart := self.bench.distances(cell)) is not None:
                found.setdefault(cell.setting, []).append(float(apart.mean()))
        return {setting: fmean(values) for setting, values in found.items()}

    @cached_property
    def _mrr(self) -> dict[tuple[str, str], Estimates]:
        return {(name, side): self._estimates(name, side) for name in KEPT for side in ("before", "after")}

    def _estimates(self, name: str, side: str) -> Estimates:
        def value(row: Row, cell: Cell) -> Floats | None:
            if name not in cell.ranks:
                return None
            before = side == "before" or row.side == "before"
            return cell.ranks[name].reciprocal_before if before else cell.ranks[name].reciprocal

        return Estimates(self._rows, value)

    def kept(self, row: Row, name: str) -> BootstrapEstimate | None:
        """Return the share of the original's MRR that a set kept, as a mean over settings."""
        after, before = self._mrr[name, "after"].of(row), self._mrr[name, "before"].of(row)
        shares = [after[setting] / before[setting] for setting in after if before[setting].value]
        return BootstrapEstimate.mean_of(shares) if shares else None

    def over_noise(self, row: Row) -> float | None:
        """Return the distance as a multiple of the noise, over the settings whose noise is known."""
        known = {setting: found for setting, found in self.distance.of(row).items() if self.noise.get(setting)}
        noise = sum(self.noise[setting] for setting in known)
        return sum(found.value for found in known.values()) / noise if known else None


def estimated(found: BootstrapEstimate | None, form: str = ".3f") -> Value:
    return figure(None) if found is None else spread(found.value, found.low, found.high, form)


def over_cells(values: Iterable[float | None], form: str = ".3f") -> Value:
    """Return the mean of one value for each cell, with its interval over cells if there are two or more."""
    there = np.array([value for value in values if value is not None], np.float64)
    if len(there) < 2:
        return figure(float(there[0]) if len(there) else None, form)
    return spread(float(there.mean()), *interval(there), form)


def primary_table(found: Primary) -> Table:
    """Make rows for two retrained rankers, for doing nothing and for each method, by kind of removal."""
    rows: list[list[Value]] = []
    kinds, others = [], []
    for removal, part in found.parts.items():
        comparable = [row for row in part if row.comparable]
        shown = [_row(found, removal, row) for row in comparable]
        for target in {_destination(row) for row in comparable}:
            may_win = [_may_win(row) and _destination(row) == target for row in comparable]
            shown = mark_best(shown, HEAD.index(DISTANCE), "least", may_win) if sum(may_win) > 1 else shown
        rows += shown
        kinds += [{"removal": removal, "method": row.name} for row in comparable]
        others += [(removal, row) for row in part if not row.comparable]
    first = len(rows)
    rows += [_row(found, removal, row) for removal, row in others]
    kinds += [{"removal": removal, "method": row.name} for removal, row in others]
    caption = "Distance to retrain query by query, beside doing nothing and the noise of retraining"
    apart = first if others else None
    return Table("primary", caption, HEAD, rows, 2, PRIMARY_NOTE, comparable=apart, kinds=kinds)


def _may_win(row: Row) -> bool:
    return row.name != NOTHING and not row.is_retrained


def _destination(row: Row) -> str:
    return row.cells[0].target or DESTINATION


def _row(found: Primary, removal: str, row: Row) -> list[Value]:
    before = row.side == "before"
    back = [comes_back(cell) for cell in row.cells]
    apart = found.distance.mean(row)
    return [
        words(TWICE if row.is_retrained and apart else row.name),
        words(removal),
        estimated(apart),
        figure(found.over_noise(row), ".2f"),
        *(estimated(found.kept(row, name)) for name in KEPT),
        figure(None) if before else over_cells(back, "+z.3f"),
        figure(None) if before else over_cells((cell.time for cell in row.cells), ".2f"),
        figure(len(row.cells), "d"),
        figure(_queries(row.cells), ",d"),
    ]


def comes_back(cell: Cell) -> float | None:
    recovered = cell.record.recovered
    return None if recovered is None else recovered - cell.record.after["forget"].mrr


def said_by(bench: Bench, given: Said | None = None) -> tuple[Said, Said | None]:
    """Return what is compared, and what all cells say was said before they were run; `None` if they do not agree.

    A primary method that was said beforehand stays, unless another is given.
    """
    first = bench.cells[0].said
    before = first if all(cell.said == first for cell in bench.cells) else None
    said = given or before or Said()
    return replace(said, primary=_shown_name(bench, said.primary or (before.primary if before else ""))), before


def _shown_name(bench: Bench, primary: str) -> str:
    """Return how tables name the primary method: with its destination, if there are several and it has one of them."""
    names = [name for name in bench.series if name.startswith(f"{primary} → ")] if primary else []
    return names[0] if len(names) == 1 and primary not in bench.series else primary


def pairs_table(found: Primary, said: Said, before: Said | None) -> Table | None:
    """Compare each method with doing nothing, and the primary one with each other method; `None` without a pair."""
    rows = {row.name: row for row in found.together if not row.is_retrained}
    methods = [name for name in rows if name != NOTHING]
    pairs = [(name, NOTHING) for name in methods if NOTHING in rows]
    if said.primary in rows:
        pairs += [(said.primary, name) for name in methods if name != said.primary]
    differences = {pair: found.distance.difference(rows[pair[0]], rows[pair[1]]) for pair in pairs}
    there = {pair: change for pair, change in differences.items() if change is not None}
    if not there:
        return None
    families = [[pair for pair in there if (pair[1] == NOTHING) is first] for first in (True, False)]
    adjusted: dict[str, float] = {}
    for family in families:
        adjusted |= holm_adjusted({"\t".join(pair): two_sided(there[pair].resampled) for pair in family})
    own = rows[methods[0]].cells
    cells = [cell for cell in own if found.bench.distances(cell) is not None] or own
    if has_few_queries(cells, "forget"):
        adjusted = {}
    made = [_test_row(pair, _queries(cells), change, adjusted.get("\t".join(pair))) for pair, change in there.items()]
    note = (
        f"{_over(cells)} Difference: of the distances to retrain, query by query; below 0 the first is nearer. p: "
        "two-sided, of the resamples, never below .002, with Holm's correction over comparisons with doing nothing and "
        f"over those of the primary method; no p with fewer than {MIN_QUERIES} different queries. "
        f"{_primary_words(found.bench, said, before, said.primary in rows)} {RESAMPLED}"
    )
    head = ["method", "against", "forget queries", "difference", "p (Holm)", "nearer to retrain"]
    kinds = [{"method": name} for name, _ in there]
    return Table("tests", "Paired comparisons of distances to retrain", head, made, 2, note, kinds=kinds)


def _test_row(pair: tuple[str, str], queries: int, change: BootstrapEstimate, chance: float | None) -> list[Value]:
    """Make the row of a comparison; without a p-value there are too few queries."""
    shown = [*map(words, pair), figure(queries, ",d"), estimated(change, "+z.3f"), figure(chance)]
    if chance is None:
        return [*shown, words("too few queries")]
    nearer = pair[0] if change.value < 0 else pair[1]
    return [*shown, words(nearer if chance <= 0.05 else "not shown")]


def _primary_words(bench: Bench, said: Said, before: Said | None, there: bool) -> str:
    if not said.primary:
        return "No primary method was said beforehand for all cells: methods are compared with doing nothing alone."
    if not there:
        return f"The primary method, {said.primary}, is not among the comparable methods."
    first = before and _shown_name(bench, before.primary) == said.primary
    when = "said before the runs" if first else "not said before the runs"
    return f"Primary: {said.primary}, {when}."


def _over(cells: Sequence[Cell]) -> str:
    settings, seeds, draws = zip(*(cell.trial for cell in cells), strict=True)
    levels = {"setting": len({*settings}), "training seed": len({*seeds}), "draw": len({*draws})}
    said = [count(number, name) for name, number in levels.items()]
    return f"Over {listing(said)}: {count(len(cells), 'cell')} of each method."


def _queries(cells: Sequence[Cell]) -> int:
    return sum(len(cell.ranks["forget"].after) for cell in cells if "forget" in cell.ranks)


def margin_table(found: Primary, said: Said, before: Said | None) -> Table:
    """Test what each method kept against the margin."""
    margin = MARGIN if said.margin is None else said.margin
    rows, kinds = [], []
    for row in found.together:
        shares = [found.kept(row, name) for name in KEPT]
        changes = [None if share is None else replace(share, value=share.value - 1, resampled=share.resampled - 1)
                   for share in shares]  # fmt: skip
        verdicts = [
            _retention(change, margin, has_few_queries(row.cells, name))
            for name, change in zip(KEPT, changes, strict=True)
        ]
        parts = [part for change, said_ in zip(changes, verdicts, strict=True) for part in (change, said_)]
        shown = [words(part) if isinstance(part, str) else estimated(part, "+z.3f") for part in parts]
        rows.append([words(row.name), figure(len(row.cells), "d"), *shown, words(_in_all(verdicts))])
        kinds.append({"method": row.name})
    head = ["method", "cells", *(part for name in "EDT" for part in (f"{name} change", f"{name} verdict")), "in all"]
    note = (
        f"Margin: {margin:g} of the original's MRR ({_margin_words(said, before)}). "
        "Change: of the MRR, as a share of the original's, over the settings that have the set. "
        "Not inferior: the one-sided 95 % bound is above minus the margin; inferior: below it; else undecided, as is a "
        f"set with fewer than {MIN_QUERIES} different queries. In all: not inferior on E, D and T, or on those named, "
        f"if the others have no verdict; inferior on one at least; else undecided. {RESAMPLED}"
    )
    return Table("margin", "Retention against the margin", head, rows, 1, note, kinds=kinds)


def _retention(change: BootstrapEstimate | None, margin: float, has_few: bool) -> str:
    """Return the verdict on one set; empty if its change is not known."""
    if change is None:
        return ""
    return "undecided" if has_few else inferiority(change, margin)


def _margin_words(said: Said, before: Said | None) -> str:
    if said.margin is None:
        return "the default; it was not said before these runs"
    return "said before the runs" if before and before.margin == said.margin else "said after the runs"


def _in_all(verdicts: Sequence[str]) -> str:
    """Return the worst of the verdicts on E, D and T; one that not every set has names those that have it.

    >>> _in_all(["", "not inferior", ""]), _in_all(["inferior", "not inferior", ""]), _in_all(["", "", ""])
    ('not inferior on D', 'inferior', 'not known')
    """
    known = {letter: verdict for letter, verdict in zip("EDT", verdicts, strict=True) if verdict}
    if not known:
        return "not known"
    found = min(known.values(), key=("inferior", "undecided", "not inferior").index)
    return found if found != "not inferior" or len(known) == len(verdicts) else f"{found} on {listing([*known])}"
