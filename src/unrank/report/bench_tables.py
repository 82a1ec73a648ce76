"""The tables of a bench: how near methods came to their targets, each setting by itself, and how cells were made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from unrank.evaluation.bootstrap import MIN_QUERIES
from unrank.evaluation.measure import Floats
from unrank.record import SETS, Record
from unrank.report.cell import Bench, Cell, Setting, there_before
from unrank.report.compare import (
    Floor,
    change_from_retrain,
    differs,
    has_few_queries,
    mean,
    noise,
    retrained_twice,
    rivals,
)
from unrank.report.estimates import NOTHING, Estimates, Row
from unrank.report.paper_tables import DISTANCE
from unrank.report.primary import RESAMPLED, TIME, estimated, over_cells
from unrank.report.table import ABOUT, DAGGER, Better, Table, Value, figure, mark_best, words
from unrank.report.wording import file_name, listing, percent

GAP, ORIGINAL = "|F\u00a0−\u00a0δ|", "original"
CONTROL = ["method", "target", "cells", "reached", GAP, "worst"]
DETAIL = ["ranker", "share", "method", "cells", "δ", "F", "E", "D", "T", DISTANCE, "epochs", TIME, "recovered"]
DETAIL_BEST: dict[str, Better] = {"E": "most", "D": "most", "T": "most", DISTANCE: "least", TIME: "least"}
"""The columns in which the best value is marked, and whether it is the least or the most."""
BEST_NOTE = (
    "The best value of a column is marked among methods that have one destination and were run in the same settings "
    "with the same seeds and draws. Not marked: retrain, and methods that forgot in fewer than half of their cells "
    "(forgot: F fell, and is at δ or below, within the tolerance, or, without a δ, at T(retrain) or below)"
)
LETTERS = "F, E, D, T: MRR on forget, entangled, disjoint and test; δ: the target"
NOISE_NOTE = (
    f"{ABOUT} a difference smaller than that: of an MRR from retrain's, or of F from T(retrain) by the noise on test."
)

Rows = dict[str, list[Value]]


def control_table(bench: Bench) -> Table | None:
    """Make one row per method with a target: how near its forget MRR came to it; `None` if there is none."""
    rows, kinds = [], []
    for target in bench.destinations:
        names = [name for name in bench.series if any(cell.target == target for cell in bench.of(name))]
        aimed = [[cell for cell in bench.of(name) if cell.record.gap is not None] for name in names]
        shared = bench.common_cells([cell for cells in aimed for cell in cells])
        originals = {cell.trial: cell for cell in shared or [cell for cells in aimed for cell in cells]}
        rows.append(_control_row(NOTHING, target, list(originals.values()), before=True))
        made = {name: _control_row(name, target, cells) for name, cells in zip(names, aimed, strict=True) if cells}
        groups = [{name: may for name, may in group.items() if name in made} for group in rivals(bench)]
        rows += _with_best(CONTROL, made, groups, {GAP: "least"})
        kinds += [{"method": name} for name in (NOTHING, *made)]
    note = (
        "F: the forget MRR; δ: the target. Reached: cells that a method brought to δ or below, within the tolerance "
        "for their queries; before: cells that were there before the run; worst: the cell that is furthest from δ. "
        f"Each row is over its own cells. ± is half of the 95 % interval over cells. {BEST_NOTE}."
    )
    return (
        Table("control", "How near each method came to its target", CONTROL, rows, 2, note, kinds=kinds)
        if rows
        else None
    )


def _control_row(name: str, target: str, cells: Sequence[Cell], before: bool = False) -> list[Value]:
    gaps = [cell.gap_before if before else cell.record.gap for cell in cells]
    return [
        words(name),
        words(target),
        figure(len(cells), "d"),
        words("" if before else _reached(cells)),
        over_cells(gaps),
        figure(max((gap for gap in gaps if gap is not None), default=None)),
    ]


def _reached(cells: Sequence[Cell]) -> str:
    """Say how many cells a method brought to their target, apart from those that were there before the run."""
    there = [there_before(cell.record) for cell in cells if cell.record.reached is True]
    if not there:
        return "none reached its target"
    before = sum(there)
    return f"{len(there) - before:,} of {len(cells):,}" + (f", {before:,} before" if before else "")


def removed_table(bench: Bench) -> Table:
    """Make one row per collection and removal: how much was removed, and how many queries measure each set."""
    draws: dict[tuple[str, str, float], list[Record]] = {}
    for cell in bench.cells:
        draws.setdefault((cell.setting.collection, cell.setting.removal, cell.setting.share), []).append(cell.record)
    rows = [
        [words(collection), words(f"{percent(share)} by {removal}"),
         _from_to(record.removed_counts[removal] for record in records),
         *(_from_to(r.after[name].queries if name in r.after else 0 for r in records) for name in SETS)]
        for (collection, removal, share), records in sorted(draws.items(), key=lambda item: item[0])
    ]  # fmt: skip
    head = ["collection", "share of pairs", "removed", *(f"{name} queries" for name in SETS)]
    note = "Where draws differ, the least and the most." if len({cell.draw for cell in bench.cells}) > 1 else ""
    return Table("removed", "What was removed, and how many queries measure each set", head, rows, 2, note)


def _from_to(numbers: Iterable[int]) -> Value:
    """Return a number that all draws have in common, or else the least and the most."""
    found = [*numbers]
    least, most = min(found), max(found)
    return figure(least, ",d") if least == most else words(f"{least:,} to {most:,}")


@dataclass(frozen=True)
class Details:
    """The rows of each setting, with the estimates of their four sets."""

    bench: Bench

    @cached_property
    def floor(self) -> Floor:
        return Floor(noise(self.bench))

    @cached_property
    def rows(self) -> dict[Setting, list[Row]]:
        """The original of each setting, and its methods."""
        found = {}
        for setting in self.bench.settings:
            methods = [Row(name, cells) for name in self.bench.series if (cells := self.bench.of(name, setting))]
            found[setting] = [Row(ORIGINAL, self.bench.originals(setting), "before"), *methods]
        return found

    @cached_property
    def mrr(self) -> dict[str, Estimates]:
        return {name: Estimates(self._all, partial(_reciprocal, name)) for name in SETS}

    @cached_property
    def change(self) -> dict[str, Estimates]:
        """The change from retrain."""
        return {name: Estimates(self._all, partial(change_from_retrain, name)) for name in SETS}

    @cached_property
    def _all(self) -> list[Row]:
        return [row for rows in self.rows.values() for row in rows]

    def values(self, row: Row) -> list[Value]:
        """Return the MRR of each set, marked if it differs from retrain's."""
        found = {name: estimated(self.mrr[name].mean(row)) for name in SETS}
        if row.side == "before":
            return list(found.values())
        return [
            replace(
                value,
                differs=differs(self.change[name].mean(row), has_few_queries(row.cells, name)),
                in_noise=self.floor.hides_change(row.cells, name),
            )
            for name, value in found.items()
        ]


def detail_tables(bench: Bench) -> list[Table]:
    """Make one table per collection and kind of removal."""
    found = Details(bench)
    kinds = sorted({(setting.collection, setting.removal) for setting in bench.settings})
    return [_detail_table(found, collection, removal) for collection, removal in kinds]


def _detail_table(found: Details, collection: str, removal: str) -> Table:
    rows: list[list[Value]] = []
    kinds: list[dict[str, str]] = []
    for setting in found.rows:
        if (setting.collection, setting.removal) == (collection, removal):
            made = _setting_rows(found, setting)
            rows += made
            kinds += [_kinds(setting) | {"method": row[2].text} for row in made]
    caption = f"{collection}, {removal} removed: MRR on the four sets"
    name = file_name(f"{collection} {removal}")
    return Table(name, caption, DETAIL, rows, 3, detail_note(found.bench), kinds=kinds)


def _kinds(setting: Setting) -> dict[str, str]:
    return {"collection": setting.collection, "ranker": setting.ranker, "removal": setting.removal}


def detail_note(bench: Bench) -> str:
    return (
        f"{LETTERS}. Each row is a mean over the cells (seeds and draws) of its method, as many as its column says. "
        f"{RESAMPLED} {BEST_NOTE}. {DAGGER} differs from retrain of the same seed and draw (95 %; "
        f"not with fewer than {MIN_QUERIES} different queries). Recovered: F after an "
        f"epoch on kept data alone. {noise_note(bench)}"
    )


def _setting_rows(found: Details, setting: Setting) -> list[list[Value]]:
    """Make a row for the original and one per method, with the best value of each column marked."""
    original, *methods = found.rows[setting]
    rows = {row.name: _method_row(found, setting, row) for row in methods}
    start = [words(setting.ranker), words(percent(setting.share)), words(ORIGINAL)]
    first = [*start, figure(len(original.cells), "d"), words(""), *found.values(original), *[words("")] * 4]
    return [first, *_with_best(DETAIL, rows, rivals(found.bench, setting), DETAIL_BEST)]


def _reciprocal(name: str, row: Row, cell: Cell) -> Floats | None:
    if name not in cell.ranks:
        return None
    return cell.ranks[name].reciprocal_before if row.side == "before" else cell.ranks[name].reciprocal


def _method_row(found: Details, setting: Setting, row: Row) -> list[Value]:
    cells = row.cells
    return [
        words(setting.ranker),
        words(percent(setting.share)),
        words(row.name),
        figure(len(cells), "d"),
        figure(mean(cell.record.target for cell in cells if cell.target is not None)),
        *found.values(row),
        figure(mean(cell.distance for cell in cells), in_noise=found.floor.hides_distance(cells)),
        figure(mean(cell.record.epochs for cell in cells), ".2f"),
        figure(mean(cell.time for cell in cells), ".2f"),
        figure(mean(cell.record.recovered for cell in cells)),
    ]


def _with_best(
    head: Sequence[str], rows: Rows, groups: Sequence[Mapping[str, bool]], best: Mapping[str, Better]
) -> list[list[Value]]:
    """Return the rows with the best value of each column marked in each group of methods."""
    for name, better in best.items():
        for group in filter(None, groups):
            shown = [rows[method] for method in group]
            marked = mark_best(shown, head.index(name), better, list(group.values()))
            rows = rows | dict(zip(group, marked, strict=True))
    return list(rows.values())


def noise_note(bench: Bench) -> str:
    found = noise(bench)
    if not found:
        return "No setting was retrained with two seeds, so the noise of retraining is not known here."
    apart = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
    where = listing(sorted({setting.collection for setting in retrained_twice(bench)}))
    text = f"Noise floor, the mean difference of two retrained rankers of different seeds, on {where}: {apart}."
    return f"{text} {NOISE_NOTE}"


def making_tables(bench: Bench) -> list[Table]:
    """Make the tables of versions, of the methods' settings and of all cells."""
    versions = {(name, str(value)) for cell in bench.cells for name, value in cell.record.versions.items()}
    facts = [*sorted(versions), *(("device", device) for device in sorted({c.record.device for c in bench.cells}))]
    settings = {(bench.name_of(cell), _settings_text(cell)) for cell in bench.cells}
    cells = [
        [words(cell.name), words(str(cell.setting)), words(bench.name_of(cell)), figure(cell.seed, "d"),
         figure(cell.record.seconds if cell.alone else None, ".1f")]
        for cell in bench.cells
    ]  # fmt: skip
    how = [list(map(words, row)) for row in sorted(settings)]
    hashed = "Cells; the name of a cell is a hash of all that it depends on"
    crowded = "" if all(cell.alone for cell in bench.cells) else "Without seconds: cells that ran beside others."
    return [
        Table("versions", "Versions and devices", ["name", "value"], [list(map(words, fact)) for fact in facts], 2),
        Table("settings", "Settings of each method", ["method", "settings"], how, 2),
        Table("cells", hashed, ["cell", "setting", "method", "seed", "seconds"], cells, 3, crowded),
    ]


def _settings_text(cell: Cell) -> str:
    return ", ".join(f"{name} {value}" for name, value in cell.record.settings.items())
