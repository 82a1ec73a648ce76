"""The tables of a bench: one row per method, one row per method and setting, and how the cells were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unrank.errors import count
from unrank.record import KEPT, SETS
from unrank.report.cell import Bench, Cell, Setting
from unrank.report.compare import ENOUGH, Floor, differs, least_kept, mean, noise, retrained_twice, rivals
from unrank.report.paper import the_paper
from unrank.report.table import ABOUT, DAGGER, Better, Table, Value, figure, mark_best, words
from unrank.report.wording import file_name, listing, percent

GAP, DISTANCE = "|F\u00a0−\u00a0δ|", "|F\u00a0− T(retrain)|"
TIME, RECOVERED_OVER = "time / retrain", "recovered over retrain"
KEPT_HEAD = [f"{name} {word}" for name in "EDT" for word in ("kept", "least")]
SUMMARY_BEST: dict[str, Better] = {
    GAP: "least", DISTANCE: "least", "E kept": "most", "D kept": "most", "T kept": "most", TIME: "least",
}  # fmt: skip
DETAIL_BEST: dict[str, Better] = {"E": "most", "D": "most", "T": "most", DISTANCE: "least", TIME: "least"}
"""The columns in which the best value is marked, and whether it is the least or the most."""
BEST_NOTE = (
    "The best value of a column is marked among methods that have one destination and were run in the same settings "
    "with the same seeds. Not marked: retrain, and methods that forgot in fewer than half of their cells (forgot: F "
    "fell to δ or, without a δ, to T(retrain))"
)
LETTERS = "F, E, D, T: MRR on forget, entangled, disjoint and test; δ: the target"
KEPT_NOTE = (
    "Kept: the share of the original's MRR, on average; least: in the cell that kept least, of those that measure the "
    f"set with {ENOUGH} queries or more."
)
NOISE_NOTE = (
    f"{ABOUT} a difference smaller than that: of an MRR from retrain's, of what is kept from the original's MRR, "
    "of F from T(retrain) by the noise on test."
)

Rows = dict[str, list[Value]]


def summary_table(bench: Bench) -> Table:
    """Make one row per method, over its own cells."""
    note = (
        f"Each row is over its own cells, all seeds: compare rows over the same cells only. {BEST_NOTE}. {LETTERS}. "
        f"{KEPT_NOTE} Time: over the cells that had the machine to themselves. {RECOVERED_OVER.capitalize()}: F after "
        f"an epoch on kept data alone, less that of retrain. {_missing_note(bench)}{noise_note(bench)}"
    )
    return _summary(bench, bench, "summary", "All methods, averaged over the cells of each", note)


def shared_table(bench: Bench) -> Table | None:
    """Make the summary over common settings and seeds; `None` if there are none, or if that is all cells already."""
    common = bench.common
    if not common.cells or len(common.cells) == len(bench.cells):
        return None
    originals = bench.originals()
    where = f"{len(common.originals()):,} of {count(len(originals), 'combination')} of setting and seed"
    caption = f"All methods, averaged over the {where} in which all were run"
    return _summary(bench, common, "shared", caption, f"Columns as in the summary. {BEST_NOTE}.")


def _summary(bench: Bench, shown: Bench, name: str, caption: str, note: str) -> Table:
    floor = Floor(noise(bench))
    head = ["method", "cells", GAP, "worst", DISTANCE, *KEPT_HEAD, TIME, RECOVERED_OVER]
    rows = {name: _summary_row(name, shown.of(name), floor) for name in shown.series}
    return Table(name, caption, head, _with_best(head, rows, rivals(shown), SUMMARY_BEST), note=note)


def _summary_row(name: str, cells: Sequence[Cell], floor: Floor) -> list[Value]:
    return [
        words(name),
        *_gaps(cells),
        figure(mean(cell.distance for cell in cells), in_noise=floor.hides_distance(cells)),
        *_kept(cells, floor),
        figure(mean(cell.time for cell in cells), ".2f"),
        figure(mean(cell.recovered_over_retrain for cell in cells), "+.3f"),
    ]


def _gaps(cells: Sequence[Cell]) -> list[Value]:
    """Return the number of cells, and their distance from the target: on average, and at worst."""
    gaps = [gap for cell in cells if cell.target is not None and (gap := cell.record.gap) is not None]
    return [figure(len(cells), "d"), figure(mean(gaps)), figure(max(gaps, default=None))]


def _kept(cells: Sequence[Cell], floor: Floor) -> list[Value]:
    """Return the mean and the least share that is left of each kept set."""
    pairs = [
        (figure(mean(c.kept(of) for c in cells), in_noise=floor.hides_loss(cells, of)), figure(least_kept(cells, of)))
        for of in KEPT
    ]
    return [value for pair in pairs for value in pair]


def _kept_of_retrain(cells: Sequence[Cell], floor: Floor) -> list[Value]:
    """Return the mean and the least share of retrain's MRR for each kept set."""
    found: list[Value] = []
    for of in KEPT:
        shares = [share for cell in cells if (share := cell.kept_of_retrain(of)) is not None]
        found.append(figure(mean(shares), in_noise=floor.hides_change(cells, of)))
        found.append(figure(min(shares, default=None)))
    return found


def paper_table(bench: Bench) -> Table | None:
    """Make two rows per method, ours and the paper's, over the cells that it printed; `None` if it printed none."""
    paper, floor = the_paper(), Floor(noise(bench))
    rows: list[list[Value]] = []
    for name in bench.series:
        if cells := [cell for cell in bench.of(name) if paper.printed(cell)]:
            distance = figure(mean(cell.distance for cell in cells), in_noise=floor.hides_distance(cells))
            rows.append([words(name), words("ours"), *_gaps(cells), distance, *_kept_of_retrain(cells, floor)])
            rows.append([words(name), words("the paper's"), *_printed(cells)])
    head = ["method", "whose", "cells", GAP, "worst", DISTANCE, *KEPT_HEAD]
    note = f"Columns as in the summary, but kept of retrain's MRR: the paper prints no original. {_source()}"
    caption = "Beside the paper, over the cells that it printed too"
    return Table("paper", caption, head, rows, 2, note) if rows else None


def _printed(cells: Sequence[Cell]) -> list[Value]:
    paper = the_paper()
    kept = [[paper.kept(cell)[name] for cell in cells if name in paper.kept(cell)] for name in KEPT]
    shares = [figure(value) for of in kept for value in (mean(of), min(of, default=None))]
    return [figure(len(cells), "d"), words(""), words(""), figure(mean(map(paper.distance, cells))), *shares]


def removed_table(bench: Bench) -> Table:
    """Make one row per collection and removal: how much was removed, and how many queries measure each set."""
    firsts = {(c.setting.collection, c.setting.removal, c.setting.share): c.record for c in reversed(bench.cells)}
    rows = [
        [words(collection), words(f"{percent(share)} by {removal}"), figure(record.removed_counts[removal], ",d"),
         *(figure(record.after[name].queries if name in record.after else 0, ",d") for name in SETS)]
        for (collection, removal, share), record in sorted(firsts.items(), key=lambda item: item[0])
    ]  # fmt: skip
    head = ["collection", "share of pairs", "removed", *(f"{name} queries" for name in SETS)]
    return Table("removed", "What was removed, and how many queries measure each set", head, rows, 2)


def detail_tables(bench: Bench) -> list[Table]:
    """Make one table per collection and kind of removal."""
    kinds = sorted({(setting.collection, setting.removal) for setting in bench.settings})
    return [_detail_table(bench, collection, removal) for collection, removal in kinds]


def _detail_table(bench: Bench, collection: str, removal: str) -> Table:
    head = ["ranker", "share", "method", "seeds", "δ", "F", "E", "D", "T", DISTANCE, "epochs", TIME, "recovered"]
    head += [f"paper: {name}" for name in "FEDT"]
    rows: list[list[Value]] = []
    for setting in bench.settings:
        if (setting.collection, setting.removal) == (collection, removal):
            rows += _setting_rows(bench, setting, head)
    caption = f"{collection}, {removal} removed: MRR on the four sets"
    return Table(file_name(f"{collection} {removal}"), caption, head, rows, 3, detail_note(bench))


def detail_note(bench: Bench) -> str:
    return (
        f"{LETTERS}. Each row is a mean over the seeds of its method, as many as its column says. {BEST_NOTE}. "
        f"{DAGGER} differs from retrain of the same seed (paired bootstrap, 95 %). Recovered: F after an epoch on kept "
        f"data alone. {noise_note(bench)} {_source()}"
    )


def _setting_rows(bench: Bench, setting: Setting, head: Sequence[str]) -> list[list[Value]]:
    """Make a row for the original and one per method, with the best value of each column marked."""
    floor, originals = Floor(noise(bench)), bench.originals(setting)
    rows = {
        name: _method_row(setting, name, cells, floor) for name in bench.series if (cells := bench.of(name, setting))
    }
    before = [figure(mean(_mrr(cell, name, "before") for cell in originals)) for name in SETS]
    start = [words(setting.ranker), words(percent(setting.share)), words("original"), figure(len(originals), "d")]
    original = [*start, words(""), *before, *[words("")] * 8]
    return [original, *_with_best(head, rows, rivals(bench, setting), DETAIL_BEST)]


def _method_row(setting: Setting, name: str, cells: Sequence[Cell], floor: Floor) -> list[Value]:
    printed = the_paper().printed(cells[0]) or {}
    return [
        words(setting.ranker),
        words(percent(setting.share)),
        words(name),
        figure(len(cells), "d"),
        figure(mean(cell.record.target for cell in cells if cell.target is not None)),
        *(
            figure(mean(_mrr(c, s) for c in cells), differs=differs(cells, s), in_noise=floor.hides_change(cells, s))
            for s in SETS
        ),
        figure(mean(cell.distance for cell in cells), in_noise=floor.hides_distance(cells)),
        figure(mean(cell.record.epochs for cell in cells), ".2f"),
        figure(mean(cell.time for cell in cells), ".2f"),
        figure(mean(cell.record.recovered for cell in cells)),
        *(figure(printed.get(s), ".2f") for s in SETS),
    ]


def _mrr(cell: Cell, name: str, side: str = "after") -> float | None:
    metrics = getattr(cell.record, side)
    return metrics[name].mrr if name in metrics else None


def _with_best(
    head: Sequence[str], rows: Rows, groups: Sequence[Mapping[str, bool]], best: Mapping[str, Better]
) -> list[list[Value]]:
    """Return the rows with the best value of each column marked in each group of methods."""
    for name, better in best.items():
        for group in groups:
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


def _missing_note(bench: Bench) -> str:
    """Say how many cells the means leave out that compare with the retrained ranker."""
    alone = sum(cell.twin is None for cell in bench.cells)
    if not alone:
        return ""
    left = f"and so only in {GAP} and in what is kept: {count(alone, 'cell')}"
    return f"Without a retrained ranker of the same setting and seed, {left}. "


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


def _source() -> str:
    return f"Paper: {the_paper().source}; its collections are larger than these."
