"""The leaderboard: a page of records that others hand in as files. Every record is checked when it is read.

A cell is refused if its name is not the hash of what it says, if its ranks do not give the means of its record, or if
it removed other ids than the frozen split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unrank.bench.packed import IDENTITY, StoredCell, check_name, read_cells
from unrank.bench.splits import Draw, Split, check_split, frozen_splits, read_splits
from unrank.disk import check_free, write_new
from unrank.errors import BadFile, UnrankError, count
from unrank.evaluation.agreement import distance
from unrank.record import CELL_FORMAT, KEPT, SetSummary
from unrank.report.bench_folder import bench_of, read_cell
from unrank.report.cell import Cell, Ranks, Setting, Trial
from unrank.report.compare import mean
from unrank.report.page import Card, Markup, Page, Section, page_html, paragraph
from unrank.report.table import Table, Value, figure, to_html, words

ROUNDING = 1e-6
HEAD = ("method", "distance to retrain", "F", "E kept", "D kept", "T kept", "came back", "cells", "submission", "code")
NOTHING = "(doing nothing)"
NOTE = (
    "Distance to retrain: the mean difference of reciprocal ranks of forget queries, query by query, over the cells of "
    "a submission that have a retrained ranker beside them, as all figures of a row are. The least is the best among "
    "rows over the same seeds and draws. F is the forget MRR, E, D and T are shares of the original's MRR. Came "
    "back: the forget MRR after an epoch on kept data, less retrain's. Code: the first digits of the package's hash."
)


@dataclass(frozen=True)
class Submission:
    """The cells of one file, each beside its retrained ranker."""

    name: str
    cells: Sequence[Cell]


def write_leaderboard(sources: Sequence[Path], out: Path, splits: Path | None = None) -> Page:
    """Check every record of the files, and write the page of all methods in them."""
    check_free(out)
    frozen = read_splits(splits) if splits is not None else frozen_splits()
    submissions = [read_submission(source, frozen) for source in sources]
    check_different(submissions)
    page = leaderboard_page(submissions)
    write_new(out, page_html(page))
    return page


def read_submission(source: Path, splits: Mapping[Draw, Split]) -> Submission:
    """Return the cells of a file; refuse it if one of them does not hold together."""
    stored = read_cells(source)
    for each in stored:
        check_submitted(each, splits)
    return Submission(source.name, bench_of(stored).cells)


def check_different(submissions: Sequence[Submission]) -> None:
    """Refuse one run of a cell in two submissions: its figures would stand there twice."""
    seen: dict[tuple[str, float | None], Submission] = {}
    for each in submissions:
        for cell in each.cells:
            other = seen.setdefault((cell.name, cell.record.seconds), each)
            if other is not each:
                both = f"{other.name} and {each.name}"
                raise UnrankError(f"{both} hold the same run of cell {cell.name}: hand it in once")


def check_submitted(stored: StoredCell, splits: Mapping[Draw, Split]) -> None:
    """Refuse a cell whose parts contradict each other, or whose removal is not a frozen one."""
    described, cell = stored.cell, read_cell(stored)
    if described["format"] != CELL_FORMAT:
        raise BadFile(stored.path, f"a cell of format {described['format']}: only those of {CELL_FORMAT} are taken")
    if missing := [key for key in IDENTITY if key not in described]:
        raise BadFile(stored.path, f"{missing[0]} is missing in its description")
    check_name(stored.name, described, stored.path)
    record = cell.record
    said = {"fingerprint": record.collection.fingerprint, "method": record.method, "ranker": record.ranker}
    for key, value in (said | {"seed": record.seed, "target": record.target_name if cell.target else None}).items():
        if described[key] != value:
            raise BadFile(stored.path, f"its record and its description differ in {key}")
    if record.code is None:
        raise BadFile(stored.path, "its record does not name the code that made it")
    for side, means in (("before", record.before), ("after", record.after)):
        _check_means(stored.path, side, cell.ranks, means)
    _check_draw(stored, splits)


def _check_means(path: Path, side: str, ranks: Mapping[str, Ranks], means: Mapping[str, SetSummary]) -> None:
    """Refuse means that the ranks of single queries do not give."""
    if ranks.keys() != means.keys():
        raise BadFile(path, "its record and its ranks are not of the same sets")
    for name, each in ranks.items():
        found = each.reciprocal_before if side == "before" else each.reciprocal
        stated = means[name]
        if len(found) != stated.queries or not len(found) or abs(float(found.mean()) - stated.mrr) > ROUNDING:
            raise BadFile(path, f"its ranks do not give the {name} MRR {side} that its record states, {stated.mrr:.6f}")


def _check_draw(stored: StoredCell, splits: Mapping[Draw, Split]) -> None:
    """Refuse a removal that is not among the frozen ones."""
    described = stored.cell
    draw = (described["fingerprint"], described["removal"], float(described["share"]), described["removal_seed"])
    if draw not in splits:
        raise BadFile(stored.path, "its removal is not one of the frozen splits: see 'unrank leaderboard --splits'")
    try:
        check_split(draw, str(described.get("split")), splits)
    except UnrankError as error:
        raise BadFile(stored.path, str(error)) from error


def leaderboard_page(submissions: Sequence[Submission]) -> Page:
    """Make a page with a section for each collection, and in it a table for each setting."""
    settings = sorted({cell.setting for each in submissions for cell in each.cells}, key=lambda setting: setting.order)
    tables: dict[str, list[Markup]] = {}
    for setting in settings:
        tables.setdefault(setting.collection, []).append(to_html(setting_table(setting, submissions)))
    sections = [
        Section(f"collection-{number}", name, name, [*made, paragraph(NOTE)])
        for number, (name, made) in enumerate(tables.items(), 1)
    ]
    cells = sum(len(each.cells) for each in submissions)
    verdict = f"{count(cells, 'cell')} of {count(len(submissions), 'submission')}, means and splits checked."
    lead = (
        "Each record was read from a file: the names of cells, means and splits agree with what the file states. What "
        "came back and the code are as the file says, unchecked, and so are the names of methods and collections."
    )
    cards = [Card("settings", f"{len(settings)}"), Card("cells", f"{cells:,}")]
    return Page("leaderboard", verdict, lead, cards, sections)


def setting_table(setting: Setting, submissions: Sequence[Submission]) -> Table:
    """Make one row for each method of each submission, the nearest to retrain first, and one for doing nothing.

    The rows over the most seeds and draws are compared; those over fewer come last, whatever their figures are.
    """
    groups: dict[tuple[str, str], list[Cell]] = {}
    for each in submissions:
        for cell in (cell for cell in each.cells if cell.setting == setting):
            name = f"{cell.label} → {cell.target}" if cell.target else cell.label
            groups.setdefault((each.name, name), []).append(cell)
            if cell.is_retrained:
                groups.setdefault((each.name, NOTHING), []).append(cell)
    judged = {key: [cell for cell in cells if cell.beside_retrain] or cells for key, cells in groups.items()}
    trials = _most_trials([cells for cells in judged.values() if cells[0].beside_retrain])
    rows: dict[bool, list[tuple[float, list[Value]]]] = {True: [], False: []}
    for (submission, name), cells in judged.items():
        alike = trials <= {cell.trial for cell in cells}
        shown = [cell for cell in cells if cell.trial in trials] if alike and trials else cells
        rows[alike].append((_nothing if name == NOTHING else _row)(name, submission, shown))
    ordered = [row for alike in (True, False) for _, row in sorted(rows[alike], key=lambda ranked: ranked[0])]
    return Table("leaderboard", str(setting), HEAD, ordered, comparable=len(rows[True]) if rows[False] else None)


def _most_trials(rows: Sequence[Sequence[Cell]]) -> frozenset[Trial]:
    """Return the trials of a row that has the most of them; of several, those that most rows have."""
    trials = [frozenset(cell.trial for cell in cells) for cells in rows]
    return max(trials, key=lambda these: (len(these), sum(these <= other for other in trials)), default=frozenset())


def _row(name: str, submission: str, cells: Sequence[Cell]) -> tuple[float, list[Value]]:
    apart = mean(
        distance(beside[0].reciprocal, beside[1].reciprocal) for cell in cells if (beside := cell.beside_retrain)
    )
    forget = mean(cell.record.after["forget"].mrr for cell in cells)
    kept = [mean(cell.kept(of) for cell in cells) for of in KEPT]
    codes = {cell.record.code.package_sha256[:8] for cell in cells if cell.record.code}
    back = figure(mean(cell.recovered_over_retrain for cell in cells), "z.3f")
    values = [figure(apart), figure(forget), *map(figure, kept), back]
    shown = [words(name), *values, figure(len(cells), "d"), words(submission), words(" ".join(sorted(codes)))]
    return (-1.0 if cells[0].is_retrained else 2.0 if apart is None else apart), shown


def _nothing(name: str, submission: str, retrained: Sequence[Cell]) -> tuple[float, list[Value]]:
    """Return the row of the original itself, over the retrained rankers of a submission."""
    ranks = [cell.ranks["forget"] for cell in retrained if "forget" in cell.ranks]
    apart = mean(distance(each.reciprocal_before, each.reciprocal) for each in ranks)
    forget = mean(cell.record.before["forget"].mrr for cell in retrained)
    kept = [figure(mean(cell.kept(of, "before") for cell in retrained)) for of in KEPT]
    values = [figure(apart), figure(forget), *kept, figure(None)]
    shown = [words(name), *values, figure(len(retrained), "d"), words(submission), words("")]
    return (3.0 if apart is None else apart), shown
