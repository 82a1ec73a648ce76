"""A finished cell, run again: the same bits, and what differs is said before."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.bench.conftest import QUICK
from unrank.bench.packed import IDENTITY, find_cell, hash_of, read_cell_folder, read_cells
from unrank.bench.reproduce import DESCRIPTION, Reproduction, differing_ranks
from unrank.bench.splits import Split, check_split, frozen_splits, read_splits, split_hash, splits_to_json
from unrank.cli.main import run
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.disk import fits, write_json
from unrank.errors import BadFile, UnrankError
from unrank.record import CELL_FORMAT

RESULTS = Path(__file__).parents[2] / "results"
FEW = 'removals = ["documents"]\nmethods = ["ssd"]\n'
THREE = 'removals = ["documents"]\nmethods = ["retrain", "cocol", "neggrad"]\ndestinations = ["destination-3"]\n'


def make_bench(folder: Path, collection: Collection, encoder: Path, more: str) -> list[Path]:
    """Run a little grid, and return the folders of its cells."""
    head = f'collections = ["{collection.folder}"]\nrankers = ["bi-encoder"]\nbase = "{encoder}"\n'
    (folder / "grid.toml").write_text(head + QUICK + more)
    given = ["bench", folder / "grid.toml", "--out", folder / "out", "--set", f"base={encoder}", "--device", "cpu"]
    assert run([*map(str, given), "--quiet"]) == 0
    return sorted((folder / "out" / "cells").iterdir())


@pytest.fixture(scope="module")
def cell(dense: Collection, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    (found,) = make_bench(tmp_path_factory.mktemp("bench"), dense, encoder, FEW)
    return found


def words(cell: Path, dense: Collection, encoder: Path) -> list[str]:
    return ["reproduce", str(cell), "--collection", str(dense.folder), "--base", str(encoder), "--device", "cpu"]


def changed(cell: Path, folder: Path, **values: Any) -> Path:
    """Copy a cell with other values in its description, `...` for none, under the name that is its hash."""
    told = json.loads((cell / "cell.json").read_text()) | values
    told = {key: value for key, value in told.items() if value is not ...}
    identity = {key: told[key] for key in IDENTITY if key in told}
    copy = Path(shutil.copytree(cell, folder / hash_of(identity), dirs_exist_ok=True))
    (copy / "cell.json").write_text(json.dumps(told))
    return copy


def test_a_cell_holds_all_that_runs_it_again(cell: Path, encoder: Path) -> None:
    stored = read_cell_folder(cell)
    assert hash_of({key: stored.cell[key] for key in IDENTITY}) == stored.name
    assert stored.cell["made"]["command"] == f"unrank bench grid.toml --set base={encoder.name}"
    assert stored.cell["made"]["threads"] >= 1
    assert re.fullmatch("[0-9a-f]{64}", stored.cell["split"])
    assert re.fullmatch("[0-9a-f]{64}", stored.record["code"]["package_sha256"])
    assert stored.record["collection"]["imported"]["min_grade"] == 1


def test_the_same_ranks_bit_by_bit(
    cell: Path, dense: Collection, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words(cell, dense, encoder), "--out", str(tmp_path / "again")]) == 0
    said = capsys.readouterr().out
    assert "code, versions, device and data are as they were" in said
    assert "not recorded" not in said
    ranks = [of for of in read_cell_folder(cell).ranks.values() if of]
    number = sum(len(of["before"]) + len(of["after"]) for of in ranks)
    assert f"the ranks are the same, bit by bit: {number} ranks in all sets, before and after" in said
    assert read_cell_folder(tmp_path / "again" / "cells" / cell.name).ranks == read_cell_folder(cell).ranks


def test_what_differs_is_said_before(
    cell: Path, dense: Collection, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another torch, another method's code: with --dry-run nothing is run."""
    copy = changed(cell, tmp_path, method_source="ab" * 32)
    record = json.loads((copy / "unrank.json").read_text())
    record["versions"]["torch"], record["device"] = "1.0.0", "another device"
    (copy / "unrank.json").write_text(json.dumps(record))
    assert run([*words(copy, dense, encoder), "--dry-run"]) == 0
    said = capsys.readouterr().out
    for line in ("not as it was: torch: 1.0.0, now ", "device: another device, now ", "method_source: abab"):
        assert line in said
    assert "bit by bit" not in said


def test_what_was_not_recorded_is_named(
    cell: Path, dense: Collection, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = changed(cell, tmp_path, made=..., split=...)
    record = json.loads((copy / "unrank.json").read_text())
    record["code"], record["versions"], record["device"] = None, {}, ""
    (copy / "unrank.json").write_text(json.dumps(record))
    assert run([*words(copy, dense, encoder), "--dry-run"]) == 0
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if line.startswith("not recorded: ")]
    names = line.removeprefix("not recorded: ").split(", ")
    assert names[:3] == ["device", "threads", "code"]
    assert {"torch", "unrank", "deterministic", "fast", "the ids that were removed (split)"} <= {*names}
    assert "all else is as it was" in said
    assert "as they were" not in said and "not as it was" not in said


def test_other_data_is_refused(
    cell: Path, dense: Collection, golden: Collection, encoder: Path, tmp_path: Path
) -> None:
    stored = read_cell_folder(cell)
    with pytest.raises(UnrankError, match=r"is not the collection of the cell.*it was imported with .*candidates="):
        Reproduction.plan(stored, golden.folder, str(encoder), "cpu")
    with pytest.raises(UnrankError, match="not a cell"):
        find_cell(tmp_path)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"format": 1}, "a cell of format 1: only those of format 2 can be run again"),
        ({"format": 3}, "a cell of format 3: only those of format 2"),
        ({"split": "00"}, "the same seed draws other ids"),
        ({"base_sha256": "00"}, "this base is not the one of the cell"),
        ({"training": {"unknown": 1}}, "this unrank cannot run it"),
    ]
    for values, line in wrong:
        with pytest.raises(UnrankError, match=line):
            Reproduction.plan(read_cell_folder(changed(cell, tmp_path, **values)), dense.folder, str(encoder), "cpu")


SETTINGS = {"epochs": 2, "learning_rate": "abc"}
DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "no-fingerprint": ({"fingerprint": ...}, "cell.json: damaged: fingerprint is missing"),
    "fingerprint": ({"fingerprint": 3}, "cell.json: damaged: fingerprint is not what a bench writes"),
    "no-base": ({"base_sha256": ...}, "cell.json: damaged: base_sha256 is missing"),
    "made-null": ({"made": None}, "damaged: made is not what a bench writes"),
    "made-list": ({"made": []}, "damaged: made is not what a bench writes"),
    "made-threads": ({"made": {"threads": {"a": 1}}}, "damaged: made is not what a bench writes"),
    "split": ({"split": None}, "damaged: split is not what a bench writes"),
    "seed": ({"seed": -1}, "damaged: seed is not what a bench writes"),
    "removal": ({"removal": ["documents"]}, "damaged: removal is not what a bench writes"),
    "check-every": ({"check_every": -(10**400)}, "damaged: check_every is not what a bench writes"),
    "huge": ({"settings": {"epochs": 10**400}}, "damaged: settings is not what a bench writes"),
    "nested": ({"settings": {"epochs": [1]}}, "damaged: settings is not what a bench writes"),
    "rate": ({"settings": SETTINGS}, "this unrank cannot run it: learning_rate of ssd cannot be abc"),
    "training-rate": ({"training": SETTINGS}, "this unrank cannot run it: learning_rate of retrain cannot be abc"),
    "choice": ({"settings": {"compared_with": "x"}}, "this unrank cannot run it: compared_with of ssd cannot be x"),
    "layers": ({"settings": {"train_layers": "none"}}, "unknown choice of layers 'none'"),
    "freeze": ({"settings": {"freeze": "queries"}}, "unknown side to freeze 'queries'"),
    "target": ({"target": "nowhere"}, "nowhere"),
    "share": ({"share": 2}, "a share of 2 cannot be removed"),
    "minutes": ({"minutes": 0}, "minutes must be more than 0"),
}


@pytest.mark.parametrize(("values", "line"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_description_is_refused_before_anything_runs(
    values: dict[str, Any],
    line: str,
    cell: Path,
    dense: Collection,
    encoder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run([*words(changed(cell, tmp_path, **values), dense, encoder), "--dry-run"]) == 2
    said = capsys.readouterr()
    assert line in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    "ranks", [[1], {"forget": [1]}, {"forget": {"before": [1]}}, {"test": {"before": "", "after": []}}]
)
def test_damaged_ranks_are_refused_before_anything_runs(
    ranks: object, cell: Path, dense: Collection, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = changed(cell, tmp_path)
    (copy / "ranks.json").write_text(json.dumps(ranks))
    assert run(words(copy, dense, encoder)) == 2
    said = capsys.readouterr()
    assert "ranks.json: damaged: not the ranks before and after of each set" in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_a_cell_whose_description_was_edited_is_refused(
    cell: Path,
    dense: Collection,
    encoder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    edited = changed(cell, tmp_path, seed=1).rename(tmp_path / cell.name)
    assert run([*words(edited, dense, encoder), "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert re.search(r"its name is not [0-9a-f]{20}, the hash of its description: one of the two was changed\n$", said)
    monkeypatch.chdir(cell)
    assert run([*words(Path(), dense, encoder), "--dry-run"]) == 0, "a cell that is the working folder has a name"


def test_the_published_cells_can_be_read() -> None:
    assert {*IDENTITY} <= DESCRIPTION.keys()
    cells = [each.cell for each in read_cells(RESULTS / "words-destinations.jsonl.gz")]
    assert {told["format"] for told in cells} == {CELL_FORMAT}
    assert all(fits(told, {**DESCRIPTION}) for told in cells)


def test_a_grid_with_a_damaged_cell_is_not_done(
    dense: Collection, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bench, a report and pack say what to do, and then the bench runs the cell again."""
    (cell,) = make_bench(tmp_path, dense, encoder, FEW)
    whole = {name: (cell / name).read_bytes() for name in ("unrank.json", "ranks.json")}
    bench = ["bench", tmp_path / "grid.toml", "--out", tmp_path / "out", "--device", "cpu", "--quiet"]
    for name, data in whole.items():
        for damaged in (None, data[:-20]):
            (cell / name).unlink() if damaged is None else (cell / name).write_bytes(damaged)
            for command in (
                bench,
                ["report", tmp_path / "out", "--out", tmp_path / "page.html"],
                ["pack", tmp_path / "out", "--out", tmp_path / "cells.jsonl.gz"],
            ):
                assert run([*map(str, command)]) == 2
                said = capsys.readouterr().err
                assert said.startswith(f"unrank: {cell / name}")
                assert f"remove the folder {cell}, and the same bench runs its cell again" in said
                assert said.count("\n") == 1
        (cell / name).write_bytes(data)
    shutil.rmtree(cell)
    assert run([*map(str, bench)]) == 0
    assert (cell / "ranks.json").read_bytes() == whole["ranks.json"]


def test_other_ranks_are_counted() -> None:
    one = {"forget": {"before": [1, 2], "after": [3, 4]}, "test": None}
    assert differing_ranks(one, one) == []
    other = {"forget": {"before": [1, 2], "after": [3, 5, 6]}, "test": {"before": [1], "after": [1]}}
    assert differing_ranks(one, other) == ["forget after: 2 of 3", "test before: 1 of 1", "test after: 1 of 1"]


def test_frozen_splits(tmp_path: Path, dense: Collection) -> None:
    """The published draws are those that are drawn today, and another draw is refused."""
    assert len(frozen_splits()) == 54
    assert {split.collection for split in frozen_splits().values()} == {
        "msmarco-passage-mini", "nfcorpus", "trec-car-test200",
    }  # fmt: skip
    removal = Removal.sample(dense, "documents", 0.25, 0)
    split = Split(dense.name, dense.fingerprint, "documents", 0.25, 0, len(removal.documents), split_hash(removal))
    write_json(tmp_path / "splits.json", splits_to_json([split]))
    splits = read_splits(tmp_path / "splits.json")
    assert splits == {split.draw: split}
    check_split(split.draw, split.sha256, splits)
    check_split((dense.fingerprint, "documents", 0.25, 1), "any", splits)  # a draw that was not published
    with pytest.raises(UnrankError, match="is not the published one"):
        check_split(split.draw, split_hash(Removal.sample(dense, "documents", 0.25, 1)), splits)
    (tmp_path / "splits.json").write_text("{}")
    with pytest.raises(BadFile, match="not a file of splits"):
        read_splits(tmp_path / "splits.json")


@pytest.mark.slow
def test_three_cells_of_the_documentation_of_python(encoder: Path, tmp_path: Path) -> None:
    """Three cells of pydocs with the tiny encoder, each run again from its packed file: bit-equal ranks."""
    folder = tmp_path / "pydocs"
    given = ["import", "pydocs", "--out", str(folder), "--train-queries", "300", "--test-queries", "60", "--quiet"]
    assert run([*given, "--candidates", "20"]) == 0
    from unrank.collection.collection import open_collection

    collection = open_collection(folder)
    make_bench(tmp_path, collection, encoder, THREE)
    packed = tmp_path / "cells.jsonl.gz"
    assert run(["pack", str(tmp_path / "out"), "--out", str(packed), "--quiet"]) == 0
    for found in (tmp_path / "out" / "cells").iterdir():
        sets = [of for of in json.loads((found / "ranks.json").read_text()).values() if of]
        assert any(of["before"] != of["after"] for of in sets), "a cell that changes nothing shows nothing"
        assert run(words(packed / found.name, collection, encoder)) == 0
