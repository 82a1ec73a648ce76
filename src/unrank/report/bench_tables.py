"""The tables of a bench: a row a method, a row a method and setting, and what the cells were made with."""

from __future__ import annotations

from collections.abc import Sequence

from unrank.errors import count
from unrank.record import KEPT, SETS
from unrank.report.cell import Bench, Cell, Setting
from unrank.report.compare import ENOUGH, Floor, differs, least_kept, mean, noise, retrained_twice, rivals
from unrank.report.paper import the_paper
from unrank.report.table import ABOUT, DAGGER, Better, Table, Value, figure, mark_best, words
from unrank.report.wording import file_name, listing, percent

GAP, DISTANCE = "|F\u00a0−\u00a0δ|", "|F\u00a0− T(retrain)|"
COMEBACK = "recovered over retrain"
SUMMARY_BEST: dict[int, Better] = {2: "least", 4: "least", 5: "most", 7: "most", 9: "most", 11: "least"}
DETAIL_BEST: dict[int, Better] = {5: "most", 6: "most", 7: "most", 8: "least", 10: "least"}
"""The columns in which the best is marked, and whether it is the least or the most."""
KEPT_HEAD = [f"{name} {word}" for name in "EDT" for word in ("kept", "least")]
BEST_NOTE = "The best of a column, retrain apart, stands out among methods with one aim"
LETTERS = "F, E, D, T: MRR on forget, entangled, disjoint and test; δ the target"
KEPT_NOTE = (
    "Kept: the share of the lower of the original's and retrain's MRR, on average; least: in the cell that kept least, "
    f"of those that measure the set with {ENOUGH} queries or more."
)
NOISE_NOTE = (
    f"{ABOUT} a difference smaller than that: of an MRR from retrain's, of what is kept from the lower of the "
    "original's and retrain's, of F from T(retrain) by the noise on test."
)


def summary_table(bench: Bench) -> Table:
    """Every method over its own cells."""
    note = (
        f"Each row is over its own cells: rows over other ones are not to be compared. {BEST_NOTE} and the same cells. "
        f"{LETTERS}. {KEPT_NOTE} Time: over the cells that had the machine to themselves. "
        f"{COMEBACK.capitalize()}: how much higher F stands than retrain's after an epoch on kept data alone. "
        f"{noise_note(bench)}"
    )
    return _summary(bench, bench, "summary", "All methods, averaged over the cells of each", note)


def shared_table(bench: Bench) -> Table | None:
    """The methods over the same settings, where the summary is not over the same ones already."""
    shared = bench.shared
    if not shared.cells or len(shared.settings) == len(bench.settings):
        return None
    where = f"{count(len(shared.settings), 'setting')} of {len(bench.settings):,}"
    caption = f"All methods, averaged over the {where} in which all were run"
    return _summary(bench, shared, "shared", caption, f"Columns as in the summary. {BEST_NOTE}.")


def _summary(bench: Bench, shown: Bench, name: str, caption: str, note: str) -> Table:
    floor = Floor(noise(bench))
    rows = {name: _summary_row(name, shown.of(name), floor) for name in shown.series}
    for column, better in SUMMARY_BEST.items():
        rows = _marked(rows, rivals(shown), column, better)
    head = ["method", "cells", GAP, "worst", DISTANCE, *KEPT_HEAD, "time / retrain", COMEBACK]
    return Table(name, caption, head, [*rows.values()], note=note)


def _summary_row(name: str, cells: Sequence[Cell], floor: Floor) -> list[Value]:
    return [
        words(name),
        *_gaps(cells),
        figure(mean(cell.distance for cell in cells), in_noise=floor.hides_distance(cells)),
        *_kept(cells, floor),
        figure(mean(cell.time for cell in cells), ".2f"),
        figure(mean(cell.comeback for cell in cells), "+.3f"),
    ]


def _gaps(cells: Sequence[Cell]) -> list[Value]:
    """How many cells, and how far they are from their targets: on average, and at worst."""
    gaps = [gap for cell in cells if cell.target is not None and (gap := cell.run.gap) is not None]
    return [figure(len(cells), "d"), figure(mean(gaps)), figure(max(gaps, default=None))]


def _kept(cells: Sequence[Cell], floor: Floor) -> list[Value]:
    """Of each kept set the mean share that is left, and the least."""
    pairs = [
        (figure(mean(c.kept(of) for c in cells), in_noise=floor.hides_loss(cells, of)), figure(least_kept(cells, of)))
        for of in KEPT
    ]
    return [value for pair in pairs for value in pair]


def paper_table(bench: Bench) -> Table | None:
    """Every method beside the paper's, over the cells that it printed; None where it printed none of them."""
    paper, floor = the_paper(), Floor(noise(bench))
    rows: list[list[Value]] = []
    for name in bench.series:
        if cells := [cell for cell in bench.of(name) if paper.printed(cell)]:
            distance = figure(mean(cell.distance for cell in cells), in_noise=floor.hides_distance(cells))
            rows.append([words(name), words("ours"), *_gaps(cells), distance, *_kept(cells, floor)])
            rows.append([words(name), words("the paper's"), *_printed(cells)])
    head = ["method", "whose", "cells", GAP, "worst", DISTANCE, *KEPT_HEAD]
    note = f"Columns as in the summary. The paper prints no original, so its shares are of retrain's. {_source()}"
    caption = "Beside the paper, over the cells that it printed too"
    return Table("paper", caption, head, rows, 2, note) if rows else None


def _printed(cells: Sequence[Cell]) -> list[Value]:
    paper = the_paper()
    kept = [[paper.kept(cell)[name] for cell in cells if name in paper.kept(cell)] for name in KEPT]
    shares = [figure(value) for of in kept for value in (mean(of), min(of, default=None))]
    return [figure(len(cells), "d"), words(""), words(""), figure(mean(map(paper.distance, cells))), *shares]


def removed_table(bench: Bench) -> Table:
    """How much was removed, and on how many queries each set is measured."""
    firsts = {(c.setting.collection, c.setting.removal, c.setting.share): c.run for c in reversed(bench.cells)}
    rows = [
        [words(collection), words(f"{percent(share)} by {removal}"), figure(run.removed_counts[removal], ",d"),
         *(figure(run.after[name].queries if name in run.after else 0, ",d") for name in SETS)]
        for (collection, removal, share), run in sorted(firsts.items(), key=lambda item: item[0])
    ]  # fmt: skip
    head = ["collection", "share of pairs", "removed", *(f"{name} queries" for name in SETS)]
    return Table("removed", "What was removed, and how many queries measure each set", head, rows, 2)


def detail_tables(bench: Bench) -> list[Table]:
    """One a collection and kind of removal."""
    kinds = sorted({(setting.collection, setting.removal) for setting in bench.settings})
    return [_detail_table(bench, collection, removal) for collection, removal in kinds]


def _detail_table(bench: Bench, collection: str, removal: str) -> Table:
    rows: list[list[Value]] = []
    for setting in bench.settings:
        if (setting.collection, setting.removal) == (collection, removal):
            rows += _setting_rows(bench, setting)
    head = ["ranker", "share", "method", "δ", "F", "E", "D", "T", DISTANCE, "epochs", "time / retrain", "recovered"]
    head += [f"paper: {name}" for name in "FEDT"]
    return Table(
        file_name(f"{collection} {removal}"),
        f"{collection}, {removal} removed: MRR on the four sets",
        head,
        rows,
        3,
        detail_note(bench),
    )


def detail_note(bench: Bench) -> str:
    return (
        f"{LETTERS}. {BEST_NOTE}. {DAGGER} differs from retrain (paired bootstrap, 95 %). Recovered: F after an epoch "
        f"on kept data alone. {noise_note(bench)} {_source()}"
    )


def _setting_rows(bench: Bench, setting: Setting) -> list[list[Value]]:
    """A row a method, means over seeds, the best of each column marked."""
    floor = Floor(noise(bench))
    rows = {
        name: _method_row(setting, name, cells, floor) for name in bench.series if (cells := bench.of(name, setting))
    }
    for column, better in DETAIL_BEST.items():
        rows = _marked(rows, rivals(bench, setting), column, better)
    before = [figure(mean(_mrr(cell, name, "before") for cell in bench.originals(setting))) for name in SETS]
    blank = [words("")] * 8
    start = [words(setting.ranker), words(percent(setting.share)), words("original"), words(""), *before, *blank]
    return [start, *rows.values()]


def _method_row(setting: Setting, name: str, cells: Sequence[Cell], floor: Floor) -> list[Value]:
    printed = the_paper().printed(cells[0]) or {}
    return [
        words(setting.ranker),
        words(percent(setting.share)),
        words(name),
        figure(mean(cell.run.target for cell in cells if cell.target is not None)),
        *(
            figure(mean(_mrr(c, s) for c in cells), differs=differs(cells, s), in_noise=floor.hides_change(cells, s))
            for s in SETS
        ),
        figure(mean(cell.distance for cell in cells), in_noise=floor.hides_distance(cells)),
        figure(mean(cell.run.epochs for cell in cells), ".2f"),
        figure(mean(cell.time for cell in cells), ".2f"),
        figure(mean(cell.run.recovered for cell in cells)),
        *(figure(printed.get(s), ".2f") for s in SETS),
    ]


def _mrr(cell: Cell, name: str, side: str = "after") -> float | None:
    measures = getattr(cell.run, side)
    return measures[name].mrr if name in measures else None


Rows = dict[str, list[Value]]


def _marked(rows: Rows, groups: Sequence[Sequence[str]], column: int, better: Better) -> Rows:
    """The best of a column marked in each group of rivals."""
    for group in groups:
        rows = rows | dict(zip(group, mark_best([rows[name] for name in group], column, better), strict=True))
    return rows


def noise_note(bench: Bench) -> str:
    found = noise(bench)
    if not found:
        return "No setting was retrained with two seeds, so the noise of retraining is not known here."
    apart = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
    where = listing(sorted({setting.collection for setting in retrained_twice(bench)}))
    told = f"Noise floor, the mean difference of two retrained rankers of different seeds, on {where}: {apart}."
    return f"{told} {NOISE_NOTE}"


def making_tables(bench: Bench) -> list[Table]:
    versions = {(name, str(value)) for cell in bench.cells for name, value in cell.run.versions.items()}
    devices = sorted({cell.run.device for cell in bench.cells})
    facts = [*sorted(versions), *(("device", device) for device in devices)]
    settings = {(bench.name_of(cell), _told(cell)) for cell in bench.cells}
    cells = [
        [words(cell.name), words(str(cell.setting)), words(bench.name_of(cell)), figure(cell.seed, "d"),
         figure(cell.run.seconds if cell.alone else None, ".1f")]
        for cell in bench.cells
    ]  # fmt: skip
    how = [list(map(words, row)) for row in sorted(settings)]
    hashed = "Cells; a cell's name is a hash of all that it depends on"
    crowded = "" if all(cell.alone for cell in bench.cells) else "Without seconds: what was run beside other cells."
    return [
        Table("versions", "Versions and devices", ["name", "value"], [list(map(words, fact)) for fact in facts], 2),
        Table("settings", "Settings of each method", ["method", "settings"], how, 2),
        Table("cells", hashed, ["cell", "setting", "method", "seed", "seconds"], cells, 3, crowded),
    ]


def _told(cell: Cell) -> str:
    return ", ".join(f"{name} {value}" for name, value in cell.run.settings.items())


def _source() -> str:
    return f"Paper: {the_paper().source}; its collections are larger than these."
