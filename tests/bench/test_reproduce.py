"""A finished cell, run again: the same bits, and what differs is said before."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.bench.conftest import QUICK
from unrank.bench.packed import IDENTITY, find_cell, hash_of, read_cell_folder
from unrank.bench.reproduce import Reproduction, differing_ranks
from unrank.bench.splits import Split, check_split, frozen_splits, read_splits, split_hash, splits_to_json
from unrank.cli.main import run
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.disk import write_json
from unrank.errors import BadFile, UnrankError

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
    copy = Path(shutil.copytree(cell, tmp_path / cell.name))
    record, described = (json.loads((copy / name).read_text()) for name in ("unrank.json", "cell.json"))
    record["versions"]["torch"], record["device"], described["method_source"] = "1.0.0", "another device", "ab" * 32
    (copy / "unrank.json").write_text(json.dumps(record))
    (copy / "cell.json").write_text(json.dumps(described))
    assert run([*words(copy, dense, encoder), "--dry-run"]) == 0
    said = capsys.readouterr().out
    for line in ("not as it was: torch: 1.0.0, now ", "device: another device, now ", "method_source: abab"):
        assert line in said
    assert "bit by bit" not in said


def test_what_was_not_recorded_is_named(
    cell: Path, dense: Collection, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(cell, tmp_path / cell.name))
    record, described = (json.loads((copy / name).read_text()) for name in ("unrank.json", "cell.json"))
    record["code"], record["versions"], record["device"] = None, {}, ""
    del described["made"], described["split"]
    (copy / "unrank.json").write_text(json.dumps(record))
    (copy / "cell.json").write_text(json.dumps(described))
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
    old = Path(shutil.copytree(cell, tmp_path / "old"))
    (old / "cell.json").write_text(json.dumps(stored.cell | {"format": 1}))
    with pytest.raises(BadFile, match="a cell of an earlier version"):
        Reproduction.plan(read_cell_folder(old), dense.folder, str(encoder), "cpu")
    (old / "cell.json").write_text(json.dumps(stored.cell | {"split": "00"}))
    with pytest.raises(UnrankError, match="the same seed draws other ids"):
        Reproduction.plan(read_cell_folder(old), dense.folder, str(encoder), "cpu")
    (old / "cell.json").write_text(json.dumps(stored.cell | {"base_sha256": "00"}))
    with pytest.raises(UnrankError, match="this base is not the one of the cell"):
        Reproduction.plan(read_cell_folder(old), dense.folder, str(encoder), "cpu")
    (old / "cell.json").write_text(json.dumps(stored.cell | {"training": {"unknown": 1}}))
    with pytest.raises(BadFile, match="this unrank cannot run it"):
        Reproduction.plan(read_cell_folder(old), dense.folder, str(encoder), "cpu")


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
