"""The leaderboard takes records that hold together, and refuses all others in one line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.report.made import write_bench
from unrank.bench.packed import IDENTITY, StoredCell, hash_of, read_cells, write_packed
from unrank.bench.splits import Split, splits_to_json
from unrank.cli.main import run
from unrank.disk import write_json
from unrank.report.bench_folder import bench_of
from unrank.report.leaderboard import HEAD, Submission, setting_table

Object = dict[str, Any]
SIDES = ("before", "after")


def submitted(stored: StoredCell) -> StoredCell:
    """A made-up cell as this version writes one: its means are those of its ranks, and its name is its hash."""
    ranks = {name: of for name, of in stored.ranks.items() if of}
    missing: Object = {"training_source": "aa", "method_source": "bb", "reserve": True, "watch": 0, "recovery": False}
    cell = stored.cell | missing | {"format": 2, "split": "cc", "check_every": None, "minutes": None}
    record = stored.record | {"code": {"package_sha256": "d" * 64}, "target_name": cell["target"]}
    record["collection"] = {"name": cell["collection"], "fingerprint": cell["fingerprint"]}
    for side in SIDES:
        means = {name: sum(1 / rank for rank in of[side]) / len(of[side]) for name, of in ranks.items()}
        record[side] = {name: record[side][name] | {"mrr": mrr} for name, mrr in means.items()}
    return replace(stored, name=hash_of({key: cell[key] for key in IDENTITY}), cell=cell, record=record, ranks=ranks)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[StoredCell]:
    folder = tmp_path_factory.mktemp("made") / "bench"
    write_bench(folder, ["retrain", "cocol", "ssd"], ["one"], ["bi-encoder"], [0.25], [0])
    return [submitted(cell) for cell in read_cells(folder)]


@pytest.fixture
def splits(tmp_path: Path) -> Path:
    frozen = [Split("one", "one-ab12", removal, 0.25, 0, 5, "cc") for removal in ("documents", "queries")]
    write_json(tmp_path / "splits.json", splits_to_json(frozen))
    return tmp_path / "splits.json"


def test_a_page_of_two_submissions(
    cells: list[StoredCell], splits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [tmp_path / f"{name}.jsonl.gz" for name in ("ours", "theirs")]
    write_packed(cells, names[0])
    write_packed([run_again(cell) for cell in cells], names[1])
    out = tmp_path / "page.html"
    given = ["leaderboard", *map(str, names), "--splits", str(splits), "--out", str(out)]
    assert run(given) == 0
    assert "12 cells of 2 submissions, means and splits checked." in capsys.readouterr().out
    page = out.read_text()
    assert "What came back and the code are as the file says, unchecked" in page
    for text in ("ours.jsonl.gz", "theirs.jsonl.gz", "cocol → destination-2", "(doing nothing)", "dddddddd"):
        assert text in page
    assert page.count("<section id=") == 1, "one section a collection, so that its links fit a narrow page"
    assert page.index("distance to retrain") < page.index("submission</th>"), "figures come first on a narrow page"
    assert page.index("retrain</") < page.index("(doing nothing)"), "retrain is the first row of its table"
    assert run(given) == 2, "the page is there already"


def run_again(stored: StoredCell) -> StoredCell:
    return replace(stored, record=stored.record | {"seconds": stored.record["seconds"] + 1})


def test_one_run_handed_in_twice_is_refused(
    cells: list[StoredCell], splits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [tmp_path / f"{name}.jsonl.gz" for name in ("ours", "copy")]
    for name in names:
        write_packed(cells, name)
    given = ["leaderboard", *map(str, names), "--splits", str(splits), "--out", str(tmp_path / "page.html")]
    assert run(given) == 2
    assert "ours.jsonl.gz and copy.jsonl.gz hold the same run of cell" in capsys.readouterr().err


def test_all_figures_of_a_row_are_over_the_same_cells(tmp_path: Path) -> None:
    """Seed 1 has no retrained ranker, and other figures."""
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "ssd"], ["one"], ["bi-encoder"], [0.25], [0, 1])
    stored = [cell for cell in read_cells(folder) if cell.cell["removal"] == "documents"]
    whole = bench_of([cell for cell in stored if cell.cell["seed"] == 0]).cells
    part = bench_of([cell for cell in stored if cell.cell["seed"] == 0 or cell.cell["method"] != "retrain"]).cells
    tables = [setting_table(found[0].setting, [Submission("ours", found)]) for found in (whole, part)]
    first, second = ([[value.text for value in row] for row in table.rows] for table in tables)
    assert len(part) == len(whole) + 2 and first == second


def test_rows_over_fewer_seeds_are_not_ranked_with_the_others(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "ssd"], ["one"], ["bi-encoder"], [0.25], [0, 1])
    stored = [cell for cell in read_cells(folder) if cell.cell["removal"] == "documents"]
    ours = bench_of(stored).cells
    best = bench_of([run_again(cell) for cell in stored if cell.cell["seed"] == 0]).cells
    table = setting_table(ours[0].setting, [Submission("best seed", best), Submission("ours", ours)])
    cells, submission = HEAD.index("cells"), HEAD.index("submission")
    assert table.comparable == 4
    assert {(row[submission].text, row[cells].text) for row in table.rows[:4]} == {("ours", "2")}
    assert {(row[submission].text, row[cells].text) for row in table.rows[4:]} == {("best seed", "1")}


def changed(part: str, change: Callable[[Object], Object]) -> Callable[[StoredCell], StoredCell]:
    return lambda cell: replace(cell, **cast(Any, {part: change(getattr(cell, part))}))


WRONG: dict[str, tuple[Callable[[StoredCell], StoredCell], str]] = {
    "mean": (
        changed("record", lambda r: r | {"after": r["after"] | {"test": r["after"]["test"] | {"mrr": 0.999}}}),
        "its ranks do not give the test MRR after that its record states, 0.999000",
    ),
    "rank": (
        changed("ranks", lambda r: r | {"forget": r["forget"] | {"before": [9, *r["forget"]["before"][1:]]}}),
        "its ranks do not give the forget MRR before",
    ),
    "setting": (
        changed("cell", lambda c: c | {"settings": {"epochs": 99}}),
        ", the hash of its description: one of the two was changed",
    ),
    "split": (changed("cell", lambda c: c | {"split": "ee"}), "is not the published one"),
    "method": (changed("record", lambda r: r | {"method": "another"}), "differ in method"),
    "code": (changed("record", lambda r: {k: v for k, v in r.items() if k != "code"}), "does not name the code"),
    "format": (changed("cell", lambda c: c | {"format": 1}), "a cell of format 1"),
    "record": (changed("record", lambda r: r | {"seed": "x"}), "seed is not a whole number"),
}


@pytest.mark.parametrize(("change", "line"), WRONG.values(), ids=WRONG)
def test_a_record_that_does_not_hold_together_is_refused(
    change: Callable[[StoredCell], StoredCell],
    line: str,
    cells: list[StoredCell],
    splits: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = next(place for place, cell in enumerate(cells) if cell.cell["label"] == "ssd")
    write_packed([*cells[:wrong], change(cells[wrong]), *cells[wrong + 1 :]], tmp_path / "wrong.jsonl.gz")
    out = tmp_path / "page.html"
    assert run(["leaderboard", str(tmp_path / "wrong.jsonl.gz"), "--splits", str(splits), "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
    assert not out.exists()


def test_a_removal_of_no_frozen_split_is_refused(
    cells: list[StoredCell], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_packed(cells, tmp_path / "ours.jsonl.gz")
    assert run(["leaderboard", str(tmp_path / "ours.jsonl.gz"), "--out", str(tmp_path / "page.html")]) == 2
    assert "its removal is not one of the frozen splits" in capsys.readouterr().err


def test_the_original_kept_no_set_that_is_not_there(cells: list[StoredCell]) -> None:
    def without(stored: StoredCell) -> StoredCell:
        sides = {side: stored.record[side] | {"entangled": None} for side in SIDES}
        return replace(stored, record=stored.record | sides, ranks=stored.ranks | {"entangled": None})

    found = bench_of([without(cell) for cell in cells]).cells
    table = setting_table(found[0].setting, [Submission("ours", found)])
    row = next(row for row in table.rows if row[0].text == "(doing nothing)")
    assert [value.text for value in row[3:6]] == ["", "1.000", "1.000"]
