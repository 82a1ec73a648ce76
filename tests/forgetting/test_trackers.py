"""Trackers get the figures of each check, no id and no text; a missing or a failing one ends no run half-way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker, get_available_trackers, register_tracker_class

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
    capsys: pytest.CaptureFixture[str], tmp_path: Path, dense: Collection
) -> None:
    with pytest.raises(UnrankError, match=r"unknown tracker for --report-to 'wanb': did you mean 'wandb'\?"):
        check_trackers(["wanb"])
    missing = next(name for name in ("wandb", "mlflow", "trackio") if name not in map(str, get_available_trackers()))
    out = ["--out", str(tmp_path / "out"), "--report-to", missing]
    assert run(["train", str(dense.folder), "--ranker", "bi-encoder", *out]) == 2
    expected = f"unrank: --report-to {missing}: the package {missing} is not installed: pip install {missing}\n"
    assert capsys.readouterr().err == expected and not [*tmp_path.iterdir()]
