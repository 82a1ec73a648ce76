"""Tuning: the same trials for every method, on development data, resumed, and frozen for a grid."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bench.conftest import Grid, cells_of
from unrank.bench.search_space import draw_trials, search_space
from unrank.bench.splits import Split
from unrank.bench.tune import Trial, TuneOptions, Tuning
from unrank.cli.main import run
from unrank.collection.collection import Collection
from unrank.errors import UnrankError
from unrank.methods import METHODS, MethodEntry, make_method, settings_of
from unrank.methods.npo import NegativePreference

QUICK = ["--training", "epochs=2,negatives=1,batch=32,learning_rate=1e-3", "--epochs", "1", "--remove", "documents"]


def test_a_search_begins_with_the_methods_own_settings_and_goes_on_alike() -> None:
    method = make_method("npo")
    space = search_space(method)
    assert space["learning_rate"] == (method.learning_rate / 8, method.learning_rate * 8) and "epochs" not in space
    few, many = (list(draw_trials(method, space, number, 3)) for number in (3, 9))
    assert few == many[:3] and few[0] == {}
    for trial in many[1:]:
        for name, (low, high) in space.items():
            assert float(low) * 0.99 <= float(trial[name]) <= float(high) * 1.01
    assert list(draw_trials(method, space, 3, 4)) != few
    assert "learning_rate" not in search_space(make_method("ssd")), "it takes no steps"
    assert all(0 < end < 1 for end in search_space(make_method("salun"))["share"] if isinstance(end, float))


@pytest.mark.parametrize("name", [name for name in METHODS if name != "retrain"])
def test_every_method_can_draw_its_trials(name: str) -> None:
    method = make_method(name)
    for trial in draw_trials(method, search_space(method), 12, 0):
        made = make_method(name, trial)
        assert type(made) is type(method) and {*trial} <= {*settings_of(type(made))}


@dataclass(frozen=True)
class Declared(NegativePreference):
    """A method of one file that says what is searched."""

    name = "declared"
    search = {"beta": (0.5, 0.6), "gru": ("true", "false")}  # noqa: RUF012


def test_a_third_partys_method_declares_what_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "declared", MethodEntry.of(Declared, "declared"))
    method = make_method("declared")
    trials = list(draw_trials(method, search_space(method), 5, 0))
    assert {*trials[1]} == {"beta", "gru"}
    assert all(0.5 <= float(trial["beta"]) <= 0.6 and trial["gru"] in ("true", "false") for trial in trials[1:])
    with pytest.raises(UnrankError, match="retrain is the reference, so it is not tuned"):
        search_space(make_method("retrain"))


def test_the_nearest_to_retrain_that_keeps_enough_is_chosen(dense: Collection, encoder: Path) -> None:
    tuning = Tuning.of(TuneOptions("npo", str(dense.folder), "bi-encoder", str(encoder), 1))

    def trial(distance: float, *kept: float) -> Trial:
        return Trial({}, distance, dict(zip(("entangled", "disjoint", "test"), kept, strict=True)), 1.0)

    keeps, nearer, wrecks = trial(0.3, 1.0, 0.991, 1.0), trial(0.2, 0.99, 0.99, 0.995), trial(0.1, 1.0, 0.7, 1.0)
    assert tuning.best([keeps, nearer, wrecks]) is nearer
    assert tuning.best([wrecks, trial(0.05, 0.6, 0.6, 0.6)]) is wrecks, "none keeps enough"


def test_a_collection_that_is_reported_on_is_refused(
    dense: Collection, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = Split("marco", dense.fingerprint, "documents", 0.25, 0, 9, "ab")
    monkeypatch.setattr("unrank.bench.tune.frozen_splits", lambda: {split.draw: split})
    with pytest.raises(UnrankError, match=r"results are reported on .*: tune on development data"):
        Tuning.of(TuneOptions("npo", str(dense.folder), "bi-encoder", str(encoder), 1))


def frozen(out: Path) -> list[Mapping[str, object]]:
    found: list[Mapping[str, object]] = json.loads(out.read_text())["tuned"]
    return found


def test_trials_are_run_once_frozen_and_read_by_a_grid(
    dense: Collection, encoder: Path, grid: Grid, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tuned.json"
    command = ["tune", "npo", str(dense.folder), "--base", str(encoder), "--trials", "2", "--out", str(out), *QUICK]
    command += ["--device", "cpu"]
    assert run([*command, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "npo to destination-1" in said and "2 trials: learning_rate" in said and not out.exists()
    assert run(command) == 0
    assert "frozen in" in capsys.readouterr().out
    (entry,) = frozen(out)
    trials = entry["trials"]
    assert isinstance(trials, list) and len(trials) == 2 and trials[0]["settings"] == {}
    assert entry["distance"] in [trial["distance"] for trial in trials]
    assert "distance to retrain" in str(entry["objective"]) and entry["margin"] == 0.01
    cells = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "tuned-trials" / "cells").iterdir()}
    assert run([*command, "--quiet"]) == 0, "nothing is run again"
    assert cells == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "tuned-trials" / "cells").iterdir()}
    assert frozen(out) == [entry]
    assert run(["tune", "undial", str(dense.folder), "--trials", "3", "--out", str(out)]) == 2
    assert "holds npo with 2 trials, and every method gets the same number" in capsys.readouterr().err
    path = grid(f'settings_from = "{out}"\nmethods = ["npo:tuned"]\nremovals = ["documents"]')
    with pytest.raises(UnrankError, match=r"were chosen on .*: run it on another collection"):
        cells_of(path)
    out.write_text(out.read_text().replace(str(entry["fingerprint"]), "another"))
    (cell,) = [cell for cell in cells_of(path) if not cell.is_retrained]
    assert cell.label == "npo:tuned"
    settings = entry["settings"]
    assert isinstance(settings, dict)
    assert all(getattr(cell.method, name) == float(value) for name, value in settings.items())
    out.write_text(out.read_text().replace(str(entry["method_source"]), "other code"))
    with pytest.raises(UnrankError, match="the code of npo changed since its settings were frozen"):
        cells_of(path)


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        ("npo:tuned", "no frozen settings of npo for bi-encoder are known"),
        ("npo:tuned,beta=1", "takes no other settings"),
    ],
)
def test_a_grid_says_what_is_missing(grid: Grid, methods: str, said: str) -> None:
    with pytest.raises(UnrankError, match=said):
        cells_of(grid(f'methods = ["{methods}"]'))


def test_draws_of_a_grid_are_cells_of_their_own(grid: Grid) -> None:
    one, two = (cells_of(grid(f'methods = ["retrain"]\nremovals = ["queries"]\n{more}')) for more in
                ("removal_seed = 1", "removal_seeds = [0, 1]"))  # fmt: skip
    assert len(two) == 2 and {cell.name for cell in one} < {cell.name for cell in two}
    assert [str(cell.removal) for cell in two] == ["25 % of queries", "25 % of queries, draw 1"]
    with pytest.raises(UnrankError, match="are both given"):
        cells_of(grid("removal_seed = 1\nremoval_seeds = [0, 1]"))
