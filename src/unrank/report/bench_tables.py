"""The tables of a bench: a row a method, a row a method and setting, and what the cells were made with."""

from __future__ import annotations

from collections.abc import Sequence

from unrank.report.cell import Bench, Cell, Setting
from unrank.report.compare import Floor, differs, mean, most_tried, noise
from unrank.report.paper import the_paper
from unrank.report.record import KEPT, SETS
from unrank.report.table import ABOUT, DAGGER, Better, Table, Value, figure, mark_best, words
from unrank.report.wording import file_name, percent

GAP, DISTANCE = "|F\u00a0−\u00a0δ|", "|F\u00a0−\u00a0T(retrain)|"
COMEBACK = "recovered over retrain"
SUMMARY_BEST: dict[int, Better] = {2: "least", 4: "least", 5: "most", 6: "most", 7: "most", 8: "least"}
DETAIL_BEST: dict[int, Better] = {5: "most", 6: "most", 7: "most", 8: "least", 10: "least"}
"""The columns in which the best is marked, and whether it is the least or the most."""
BEST_NOTE = (
    f"Best values of a column, retrain apart, stand out. {DAGGER} differs from retrain (paired bootstrap, 95 %)."
)
NOISE_NOTE = (
    f"{ABOUT} a difference smaller than that: of an MRR from retrain's, of what is kept from the lower of the "
    "original's and retrain's, of F from T(retrain) by the noise on test."
)


def summary_table(bench: Bench) -> Table:
    rows, floor, rivals = [], Floor(noise(bench)), most_tried(bench)
    for name in bench.series:
        rows.append(_summary_row(name, bench.of(name), floor))
    for column, better in SUMMARY_BEST.items():
        rows = _marked(rows, [name in rivals for name in bench.series], column, better)
    head = ["method", "cells", GAP, "worst", DISTANCE, "E kept", "D kept", "T kept", "time / retrain", COMEBACK]
    head += ["paper: cells", f"paper: {DISTANCE}", *(f"paper: {name} kept" for name in "EDT")]
    note = (
        "Each row is over its own cells: those over other ones are not to be compared, and the best are marked among "
        "the methods with the most. F, E, D, T: MRR on forget, entangled, disjoint and test; δ the target. Kept: the "
        "share of the lower of the original's and retrain's MRR, in the paper's columns of retrain's, over the cells "
        "that it printed. "
        f"{COMEBACK.capitalize()}: how much higher F stands than retrain's after an epoch on kept data alone. "
        f"{noise_note(bench)} {_source()}"
    )
    return Table("summary", "All methods, averaged over the cells of each", head, rows, note=note)


def _summary_row(name: str, cells: Sequence[Cell], floor: Floor) -> list[Value]:
    gaps = [cell.run.gap for cell in cells if cell.target is not None]
    paper = the_paper()
    return [
        words(name),
        figure(len(cells), "d"),
        figure(mean(gaps)),
        figure(max((gap for gap in gaps if gap is not None), default=None)),
        figure(mean(cell.distance for cell in cells), in_noise=floor.hides_distance(cells)),
        *(figure(mean(cell.kept(of) for cell in cells), in_noise=floor.hides_loss(cells, of)) for of in KEPT),
        figure(mean(cell.time for cell in cells), ".2f"),
        figure(mean(cell.comeback for cell in cells), "+.3f"),
        figure(sum(paper.printed(cell) is not None for cell in cells) or None, "d"),
        figure(mean(paper.distance(cell) for cell in cells)),
        *(figure(mean(paper.kept(cell).get(kept) for cell in cells)) for kept in KEPT),
    ]


def removed_table(bench: Bench) -> Table:
    """How much was removed, and on how many queries each set is measured."""
    firsts = {(c.setting.collection, c.setting.removal, c.setting.share): c.run for c in reversed(bench.cells)}
    rows = [
        [words(collection), words(f"{percent(share)} by {removal}"), figure(run.removed[removal], ",d"),
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
    note = f"{BEST_NOTE} Recovered: F after an epoch on kept data alone. {noise_note(bench)} {_source()}"
    return Table(
        file_name(f"{collection} {removal}"),
        f"{collection}, {removal} removed: MRR on the four sets",
        head,
        rows,
        3,
        note,
    )


def _setting_rows(bench: Bench, setting: Setting) -> list[list[Value]]:
    """A row a method, means over seeds, the best of each column marked."""
    rows, rivals, floor = [], [], Floor(noise(bench))
    originals = [cell for name in bench.series for cell in bench.of(name, setting)]
    for name in bench.series:
        if cells := bench.of(name, setting):
            rows.append(_method_row(setting, name, cells, floor))
            rivals.append(not cells[0].is_yardstick)
    for column, better in DETAIL_BEST.items():
        rows = _marked(rows, rivals, column, better)
    before = [figure(mean(_mrr(cell, name, "before") for cell in originals)) for name in SETS]
    blank = [words("")] * 8
    start = [words(setting.ranker), words(percent(setting.share)), words("original"), words(""), *before, *blank]
    return [start, *rows]


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


def _marked(rows: list[list[Value]], rivals: Sequence[bool], column: int, better: Better) -> list[list[Value]]:
    """The best of a column marked among those that are rivals."""
    marked = iter(mark_best([row for row, rival in zip(rows, rivals, strict=True) if rival], column, better))
    return [next(marked) if rival else row for row, rival in zip(rows, rivals, strict=True)]


def noise_note(bench: Bench) -> str:
    found = noise(bench)
    if not found:
        return "No setting was retrained with two seeds, so the noise of retraining is not known here."
    apart = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
    return f"Noise floor, the mean difference of two retrained rankers of different seeds: {apart}. {NOISE_NOTE}"


def making_tables(bench: Bench) -> list[Table]:
    versions = {
        (name, str(value)) for cell in bench.cells for name, value in (cell.run.record.get("versions") or {}).items()
    }
    devices = sorted({str(cell.run.record.get("device")) for cell in bench.cells})
    facts = [*sorted(versions), *(("device", device) for device in devices)]
    settings = {(bench.name_of(cell), _told(cell)) for cell in bench.cells}
    cells = [
        [words(cell.name), words(str(cell.setting)), words(bench.name_of(cell)), figure(cell.seed, "d"),
         figure(cell.run.seconds, ".1f")]
        for cell in bench.cells
    ]  # fmt: skip
    how = [list(map(words, row)) for row in sorted(settings)]
    hashed = "Cells; a cell's name is a hash of all that it depends on"
    return [
        Table("versions", "Versions and devices", ["name", "value"], [list(map(words, fact)) for fact in facts], 2),
        Table("settings", "Settings of each method", ["method", "settings"], how, 2),
        Table("cells", hashed, ["cell", "setting", "method", "seed", "seconds"], cells, 3),
    ]


def _told(cell: Cell) -> str:
    return ", ".join(f"{name} {value}" for name, value in cell.run.settings.items())


def _source() -> str:
    return f"Paper: {the_paper().source}; its collections are larger than these."
