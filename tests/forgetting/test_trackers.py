"""Trackers get the figures of each check, no id and no text; a missing or a failing one ends no run half-way."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker, register_tracker_class

from tests.forgetting.conftest import FAST
from tests.forgetting.test_forget import Listener
from unrank.cli.main import run
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.errors import UnrankError
from unrank.forgetting.forget import forget
from unrank.forgetting.trackers import check_trackers, logs_of, reporting
from unrank.forgetting.train import Trained


class Notebook(GeneralTracker):  # type: ignore[misc]
    """A tracker that keeps what it gets."""

    name = "notebook"
    requires_logging_directory = True
    made: ClassVar[list[Notebook]] = []
    fails: ClassVar[bool] = False

    def __init__(self, project: str, folder: str) -> None:
        super().__init__()
        self.folder, self.config, self.over = folder, dict[str, Any](), False
        self.lines: list[tuple[int, dict[str, float]]] = []
        Notebook.made.append(self)

    @property
    def tracker(self) -> Notebook:
        return self

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.config = values

    def log(self, values: dict[str, float], step: int, **_: Any) -> None:
        if Notebook.fails:
            raise ConnectionError("nobody there")
        self.lines.append((step, values))

    def finish(self) -> None:
        self.over = True


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Notebook]]:
    register_tracker_class(Notebook)
    monkeypatch.setattr(Notebook, "made", [])
    yield Notebook
    del LOGGER_TYPE_TO_CLASS["notebook"]


def test_a_tracker_gets_the_figures_of_every_check(
    notebook: type[Notebook], trained: Trained, dense: Collection, removal: Removal, tmp_path: Path
) -> None:
    with reporting(Listener(), ["notebook"], tmp_path / "out", "cpu", {"method": "cocol", "layers": None}) as listener:
        method = replace(FAST, epochs=2)
        result = forget(trained.ranker, dense, removal, method=method, target=0.01, progress=listener)
    [made] = notebook.made
    assert made.over and made.folder == str(logs_of(tmp_path / "out")) and made.config["layers"] == "None"
    assert [step for step, _ in made.lines] == [0, *(round(100 * check.epoch) for check in result.record.history)]
    assert made.lines[0][1]["mrr/forget"] == pytest.approx(result.before.mrrs["forget"])
    assert [values["mrr/forget"] for _, values in made.lines[1:]] == [check.forget for check in result.record.history]
    assert all(values["steps_per_second"] > 0 and values["loss/forget"] for _, values in made.lines[1:])


def test_a_tracker_that_fails_is_left_out_and_the_run_goes_on(
    notebook: type[Notebook], monkeypatch: pytest.MonkeyPatch, trained: Trained, dense: Collection, removal: Removal
) -> None:
    monkeypatch.setattr(notebook, "fails", True)
    heard = Listener()
    with reporting(heard, ["notebook"], Path("out"), "cpu", {}) as listener:
        forget(trained.ranker, dense, removal, method=replace(FAST, epochs=2), target=0.01, progress=listener)
    told = [line for line in heard.lines if "--report-to" in line]
    assert told == ["--report-to notebook failed (ConnectionError: nobody there); going on without"]


def test_a_missing_package_is_named_before_anything_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, dense: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnrankError, match=r"unknown tracker for --report-to 'wanb': did you mean 'wandb'\?"):
        check_trackers(["wanb"])
    monkeypatch.setattr("unrank.forgetting.trackers.get_available_trackers", list)
    out = ["--out", str(tmp_path / "out"), "--report-to", "wandb"]
    assert run(["train", str(dense.folder), "--ranker", "bi-encoder", *out]) == 2
    expected = "unrank: --report-to wandb: the package wandb is not installed: pip install wandb\n"
    assert capsys.readouterr().err == expected and not [*tmp_path.iterdir()]


REAL = """
import sys
from pathlib import Path
from unrank.engine.runtime import Silence
from unrank.forgetting.trackers import reporting
from unrank.journal import Before
from unrank.record import Check

with reporting(Silence(), [sys.argv[1]], Path(sys.argv[2]), "cpu", {"method": "cocol", "epochs": 2}) as listener:
    listener.before(Before(mrrs={"forget": 0.9}, target=0.25))
    for epoch, mrr in ((1.0, 0.5), (2.0, 0.25)):
        listener.check(Check(epoch=epoch, forget=mrr, losses={"forget": epoch}, seconds=2.0, steps=10))
print("{}")
"""


@pytest.mark.parametrize("name", ["tensorboard", "trackio", "wandb"])
def test_a_real_tracker_keeps_the_figures_and_says_nothing_where_results_are_printed(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name, reason=f"{name} is not installed: pip install {name}")
    places = {"TRACKIO_DIR": str(tmp_path / "trackio"), "WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path)}
    words = [sys.executable, "-c", REAL, name, str(tmp_path / "out")]
    done = subprocess.run(words, env={**os.environ, **places}, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "{}\n" and "Traceback" not in done.stderr and "failed" not in done.stderr
    if name == "wandb":
        assert [*tmp_path.glob("wandb/offline-run-*/run-*.wandb")]
        return
    assert kept(name, tmp_path) == [(0, 0.9), (100, 0.5), (200, 0.25)]


def kept(name: str, folder: Path) -> list[tuple[int, float]]:
    """The forget MRR of each step, read from the files of a tracker."""
    if name == "trackio":
        with sqlite3.connect(folder / "trackio" / "unrank.db") as database:
            rows = [*database.execute("SELECT step, metrics FROM metrics ORDER BY step")]
        return [(step, json.loads(values)["mrr/forget"]) for step, values in rows]
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(logs_of(folder / "out") / "unrank"))
    read.Reload()
    return [(each.step, round(each.value, 6)) for each in read.Scalars("mrr/forget")]
