"""Grids that cannot be: one clear line each, exit 2, and nothing is left behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Refused
from unrank.bench.grid import read_grid
from unrank.bench.plan import plan_cells, shard_cells
from unrank.cli.main import run

GRID = 'collections = ["{collection}"]\nrankers = ["bi-encoder"]\nbase = "{encoder}"\n'


@pytest.fixture
def grid(collection: Path, encoder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(GRID.format(collection=collection, encoder=encoder))
    return path


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ('methods = ["cocl"]', "unknown method 'cocl': did you mean 'cocol'?"),
        ('methods = ["cocol:papr"]', "unknown preset of cocol 'papr': did you mean 'paper'?"),
        ('methods = ["cocol,anchor=4"]', "unknown setting of cocol 'anchor': did you mean 'anchors'?"),
        ('methods = ["cocol,held"]', "'held' is not a setting: expected NAME=VALUE"),
        ('methods = ["cocol,held=few"]', "anchors_per_pair takes a whole number, not 'few'"),
        ('methods = ["retrain,epochs=3"]', "retrain trains as the original was trained"),
        ('method = ["cocol"]', "'method': did you mean 'methods'?"),
        ('removals = ["document"]', "unknown removal 'document': did you mean 'documents'?"),
        ('destinations = ["destination-4"]', "unknown target 'destination-4': did you mean 'destination-"),
        ("destinations = [2.5]", "a target of 2.5 is outside (0, 1]"),
        ("shares = [25]", "a share of 25 cannot be removed"),
        ("shares = 0.25", "'shares' must be a list with at least one item"),
        ("seeds = []", "'seeds' must be a list with at least one item"),
        ("seeds = [0.5]", "'seeds' takes a whole number, not 0.5"),
        ("seeds = [-1]", "must be 0 or more, not -1"),
        ('epochs = "3"', "'epochs' takes a whole number, not '3'"),
        ("epochs = 0", "epochs must be more than 0"),
        ("recovery = 1", "'recovery' takes true or false, not 1"),
        ("minutes = 0", "minutes must be more than 0"),
        ("minutes = inf", "'minutes' takes a number, not inf"),
        ("shares = [nan]", "'shares' takes a number, not nan"),
        ("shares = [0.999]", "retrain, seed 0' cannot be run: the collection is too small to remove 0.999"),
        ('methods = ["cocol,train_layers=99"]', "seed 0' cannot be run: the encoder has 2 layers, so 99 of them"),
        ('training = "epoch=3"', "unknown setting of retrain 'epoch': did you mean 'epochs'?"),
        ('methods = ["cocol", "cocol,held=1"]', "two cells of the grid are the same"),
        ('[[part]]\nmethods = ["cocol"]', "'part'"),
        ('[part]\nmethod = ["cocol"]', "[part] 'method': did you mean 'methods'?"),
        ("shares = [0.25", "not TOML"),
    ],
)
def test_a_grid_that_cannot_be(refused: Refused, grid: Path, tmp_path: Path, more: str, problem: str) -> None:
    grid.write_text(grid.read_text() + more + "\n")
    assert problem in refused("bench", grid, "--out", tmp_path / "out")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("ranker=colbert", "'ranker': did you mean 'rankers'?"),
        ("rankers=colbart", "unknown ranker 'colbart': did you mean 'colbert'?"),
        ("shares=a quarter", "shares=a quarter: expected a value as a grid writes it, such as 3 or [3, 4]"),
        ("shares=[0.25", "shares=[0.25: expected a value as a grid writes it"),
        ("watch=0.5", "'watch' takes a whole number, not 0.5"),
        ("seeds", "'seeds' is not a setting: expected NAME=VALUE"),
    ],
)
def test_a_value_in_place_of_the_grids_that_cannot_be(
    refused: Refused, grid: Path, tmp_path: Path, given: str, problem: str
) -> None:
    assert problem in refused("bench", grid, "--out", tmp_path / "out", "--set", given)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"bi-encoder"', '"bi-encodr"', "unknown ranker 'bi-encodr': did you mean 'bi-encoder'?"),
        ('rankers = ["bi-encoder"]', "", "'rankers' is missing"),
        ('["bi-encoder"]', '["duet"]\nwords = "/nowhere.txt"', "/nowhere.txt: No such file"),
    ],
)
def test_what_a_grid_must_have(refused: Refused, grid: Path, tmp_path: Path, old: str, new: str, problem: str) -> None:
    grid.write_text(grid.read_text().replace(old, new))
    assert problem in refused("bench", grid, "--out", tmp_path / "out")


def test_things_that_are_not_there(
    refused: Refused, grid: Path, collection: Path, golden_folder: Path, encoder: Path, tmp_path: Path
) -> None:
    assert "no such grid file" in refused("bench", tmp_path / "none.toml", "--out", tmp_path / "out")
    text = grid.read_text()
    grid.write_text(text.replace(str(collection), "/nowhere"))
    assert "/nowhere: no such collection folder" in refused("bench", grid, "--out", tmp_path / "out")
    grid.write_text(text.replace(str(collection), str(golden_folder)))
    assert "is the MRR on test queries, and none is there" in refused("bench", grid, "--out", tmp_path / "out")
    grid.write_text(text.replace(str(encoder), "/nowhere"))
    assert "/nowhere: no such folder" in refused("bench", grid, "--out", tmp_path / "out")


def test_a_folder_that_is_none(refused: Refused, grid: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    assert "is a file" in refused("bench", grid, "--out", tmp_path / "out")


@pytest.mark.parametrize("described", [{"format": 1}, {}, []])
def test_records_of_another_format(refused: Refused, grid: Path, tmp_path: Path, described: object) -> None:
    cell = tmp_path / "out" / "cells" / "abc"
    cell.mkdir(parents=True)
    (cell / "cell.json").write_text(json.dumps(described))
    said = refused("bench", grid, "--out", tmp_path / "out")
    assert said.startswith(f"{cell}: a cell of format")
    assert "this unrank writes format 2" in said


def test_a_damaged_cell(refused: Refused, grid: Path, tmp_path: Path) -> None:
    cell = tmp_path / "out" / "cells" / "abc"
    cell.mkdir(parents=True)
    said = refused("bench", grid, "--out", tmp_path / "out")
    assert said.startswith(f"{cell}: a cell without its cell.json; remove its folder")
    (cell / "cell.json").write_text("{")
    assert "not JSON" in refused("bench", grid, "--out", tmp_path / "out")


@pytest.mark.parametrize("shard", ["3/2", "0/4", "1", "1/0", "-1/4", "a/b", ""])
def test_a_shard_that_is_none(refused: Refused, grid: Path, tmp_path: Path, shard: str) -> None:
    said = refused("bench", grid, "--out", tmp_path / "out", f"--shard={shard}")
    assert said == f"--shard {shard}: expected I/N with I from 1 to N, such as 1/4 to 4/4 for four shards"


def test_a_shard_without_a_cell_is_no_grid_that_is_done(
    grid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid.write_text(grid.read_text() + 'removals = ["documents"]\nmethods = ["ssd"]\ndestinations = ["test-mrr"]\n')
    cells = plan_cells(read_grid(grid))
    empty = next(number for number in range(1, 10) if not shard_cells(cells, number, 9))
    assert run(["bench", str(grid), "--out", str(tmp_path / "out"), "--shard", f"{empty}/9"]) == 0
    said = capsys.readouterr().out
    assert said.endswith(f"this part of the grid, shard {empty}/9, holds no cell\n")
    assert "the grid is done" not in said


def test_workers_that_cannot_be_had(
    refused: Refused, grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("bench", grid, "--out", tmp_path / "out")
    assert "describes the workers that --on starts" in refused(*given, "--resource", "num_gpus=1")
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert "--on needs submitit: pip install 'unrank[slurm]'" in refused(*given, "--on", "slurm")
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "--on needs ray: pip install 'unrank[ray]'" in refused(*given, "--on", "ray")


def test_a_folder_that_cannot_be_written(refused: Refused, grid: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "claims").write_text("")
    assert f"cannot write to {tmp_path / 'out' / 'claims'}: " in refused("bench", grid, "--out", tmp_path / "out")
