"""The paper's experiments as scripts: each runs on a tiny collection, or draws a bench that holds its cells."""

from __future__ import annotations

import csv
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from xml.etree import ElementTree

import pytest

from tests.report.made import write_bench
from tests.tiny import make_word_vectors
from unrank.collection.collection import Collection
from unrank.report.bench_folder import read_bench
from unrank.report.cell import Setting

RUNS = Path(__file__).parents[2] / "runs"
QUICK = [
    "training=epochs=2,negatives=1,batch=32,learning_rate=1e-3",
    "epochs=1",
    "removals=documents",
    "recovery=false",
]
EXPERIMENTS = {
    "opening": ["methods=neggrad"],
    "shares": ["rankers=bi-encoder", "shares=[0.15, 0.25]", "methods=cocol"],
    "destinations": ["rankers=bi-encoder"],
    "ablation": [],
    "word_curves": ["rankers=match-pyramid", "methods=cocol"],
}
"""The settings with which a few cells are enough."""
CELLS = {"opening": 2, "shares": 4, "destinations": 4, "ablation": 4, "word_curves": 3}
SLOW = ("shares", "destinations", "ablation", "word_curves")
"""Those that differ from the first in their grids and figures alone."""

RunScript = Callable[..., int]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> RunScript:
    """Run a script as a user does; its exit status."""
    monkeypatch.syspath_prepend(RUNS)

    def run(name: str, *arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(RUNS / f"{name}.py"), run_name="__main__")
        assert isinstance(ended.value.code, int)
        return ended.value.code

    return run


def sets(items: list[str]) -> list[str]:
    return [word for item in items for word in ("--set", item)]


def figures(out: Path) -> dict[str, str]:
    """What each figure says of itself; there is a picture of each, and it is well-formed."""
    said = {}
    for path in sorted((out / "figures").glob("*.svg")):
        assert all(path.with_suffix(ending).stat().st_size > 1000 for ending in (".png", ".pdf"))
        said[path.stem] = "".join(ElementTree.parse(path).getroot().itertext())
    return said


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in EXPERIMENTS]
)
def test_it_runs_on_a_collection(
    script: RunScript,
    name: str,
    dense: Collection,
    encoder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words, out = make_word_vectors(tmp_path / "words.txt"), tmp_path / "out"
    options = ["--base", encoder, "--words", words, "--device", "cpu", "--out", out]
    assert script(name, dense.folder, *options, *sets([*QUICK, *EXPERIMENTS[name]])) == 0
    assert f"{CELLS[name]} cells of" in capsys.readouterr().out
    assert len(list((out / "bench" / "cells").iterdir())) == CELLS[name]
    assert figures(out)
    assert list((out / "tables").glob("*.md"))


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    return write_bench(
        tmp_path / "bench", ["cocol", "finetune", "retrain", "neggrad", "own"], rankers=["colbert", "duet"]
    )


@pytest.mark.slow
def test_a_bench_that_holds_the_cells_is_drawn_without_running(
    script: RunScript, finished: Path, tmp_path: Path
) -> None:
    assert script("opening", finished, "--out", tmp_path / "out") == 0
    said = figures(tmp_path / "out")["opening"]
    for method in ("original", "retrain", "cocol", "finetune", "neggrad"):
        assert f"{method}: forget 0." in said
    assert "own:" not in said
    assert "duet" not in said
    assert ", 5% of pairs" not in said
    assert not (tmp_path / "out" / "bench").exists()


@pytest.mark.slow
def test_times_stand_beside_retraining(script: RunScript, finished: Path, tmp_path: Path) -> None:
    assert script("times", finished, "--out", tmp_path / "out") == 0
    assert "retrain 1, cocol 0." in figures(tmp_path / "out")["times"]
    bench = read_bench(finished)
    rows = list(csv.DictReader((tmp_path / "out" / "tables" / "times.csv").open(encoding="utf-8")))
    assert len(rows) == 4
    for row in rows:
        removal = row["removed"].removeprefix("25% by ")
        cells = bench.of("cocol", Setting(row["collection"], row["ranker"], removal, 0.25))
        expected = fmean(cell.time for cell in cells if cell.time is not None)
        assert float(row["cocol / retrain"]) == pytest.approx(expected, rel=1e-4)
        assert float(row["retrain: learning epochs"]) == pytest.approx(100 / 14, rel=1e-4)


def test_a_quarter_forgotten_is_a_table_a_method(script: RunScript, finished: Path, tmp_path: Path) -> None:
    assert script("quarter", finished, "--out", tmp_path / "out") == 0
    tables = tmp_path / "out" / "tables"
    assert {path.stem for path in tables.glob("*.csv")} >= {"primary", "control", "quarter-cocol", "quarter-retrain"}
    *rows, means = csv.DictReader((tables / "quarter-cocol.csv").open(encoding="utf-8"))
    bench = read_bench(finished)
    cells = [cell for cell in bench.of("cocol") if (cell.setting.ranker, cell.setting.share) == ("colbert", 0.25)]
    assert [row["ranker"] for row in rows] == ["colbert"] * len(cells)
    assert means["collection"] == f"mean of {len(cells)}"
    for column, values in {
        "time / retrain": [cell.time for cell in cells],
        "T / original": [cell.kept("test") for cell in cells],
        "T / retrain": [cell.kept_of_retrain("test") for cell in cells],
    }.items():
        assert [float(row[column]) for row in rows] == pytest.approx(values, rel=1e-4)
        assert float(means[column]) == pytest.approx(fmean(value for value in values if value is not None), rel=1e-4)


@pytest.mark.slow
def test_the_epoch_that_met_the_target_is_marked(script: RunScript, finished: Path, tmp_path: Path) -> None:
    assert script("word_curves", finished, "--out", tmp_path / "out") == 0
    drawn = figures(tmp_path / "out")["word-curves"]
    assert "target 0.600" in drawn
    table = (tmp_path / "out" / "tables" / "epochs.md").read_text()
    rows = [line for line in table.splitlines() if line.startswith("| cocol")]
    assert rows
    assert any(row.endswith("| 3 |") for row in rows) == ("met after epoch 3" in drawn)
    assert any(row.endswith("| none |") for row in rows)


def test_what_is_there_is_not_written_over(
    script: RunScript, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out" / "tables").mkdir(parents=True)
    assert script("opening", finished, "--out", tmp_path / "out") == 2
    assert "tables exists already" in capsys.readouterr().err


def test_a_bench_of_other_cells_is_refused_in_a_line(
    script: RunScript, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script("ablation", finished, "--out", tmp_path / "out") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ablation.py: ")
    assert line.endswith("holds no cell of ablation.toml: give this run a collection in its place")
    assert not (tmp_path / "out").exists()


def test_a_bench_and_a_collection_at_once_are_refused(
    script: RunScript, finished: Path, dense: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script("opening", dense.folder, finished, "--out", tmp_path / "out") == 2
    assert "is a bench: name it alone" in capsys.readouterr().err


@pytest.mark.slow
def test_score_ranges_of_an_initial_and_a_trained_ranker(
    script: RunScript, dense: Collection, encoder: Path, tmp_path: Path
) -> None:
    options = ["--base", encoder, "--device", "cpu"]
    quick = sets([*QUICK, "rankers=bi-encoder", "methods=ssd"])
    assert script("shares", dense.folder, *options, *quick, "--out", tmp_path / "shares") == 0
    ranges = [dense.folder, *options, "--rankers", "bi-encoder", "--bench", tmp_path / "shares" / "bench"]
    assert script("score_ranges", *ranges, "--out", tmp_path / "out") == 0
    said = figures(tmp_path / "out")["score-ranges"]
    for when in ("initial", "trained"):
        for kind in ("relevant", "other"):
            assert f"{kind} documents {when}: middle score" in said
    rows = (tmp_path / "out" / "tables" / "score-ranges.csv").read_text().splitlines()
    assert len(rows) == 5
