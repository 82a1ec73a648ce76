"""What a grid leaves behind: small records of each cell, written once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unrank
from tests.bench.conftest import Grid, RunBench, cells_of
from unrank.bench.cell import Job
from unrank.bench.runner import JobRunner, most_jobs, seconds_before
from unrank.bench.store import Store
from unrank.collection.collection import Collection
from unrank.disk import CHECKPOINT, clear_checkpoints
from unrank.engine.checkpoint import Checkpoint
from unrank.engine.resume import ResumableRun
from unrank.errors import BadFile, UnrankError
from unrank.evaluation.agreement import agreement
from unrank.evaluation.query_details import cell_figures
from unrank.methods import METHODS, MethodEntry
from unrank.methods.finetune import Finetune
from unrank.rankers import load_ranker

FILES = {"cell.json", "unrank.json", "history.jsonl", "ranks.json", "forget.json"}
THREE = 'removals = ["documents"]\nmethods = ["retrain", "cocol", "ssd"]'


@pytest.fixture(scope="module")
def done(
    dense: Collection, encoder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, dict[str, Any]]]:
    """A finished bench of three cells, and by label all that their files hold."""
    from unrank.cli.main import run

    folder = tmp_path_factory.mktemp("bench")
    head = f'collections = ["{dense.folder}"]\nrankers = ["bi-encoder"]\nbase = "{encoder}"\n'
    training = 'training = "epochs=2,negatives=1,batch=32,learning_rate=1e-3"\nepochs = 2\nrecovery = true\n'
    (folder / "grid.toml").write_text(head + training + THREE)
    assert run(["bench", str(folder / "grid.toml"), "--out", str(folder / "out"), "--quiet"]) == 0
    cells = {}
    for path in (folder / "out" / "cells").iterdir():
        assert {file.name for file in path.iterdir()} == FILES
        files: dict[str, Any] = {name: json.loads((path / name).read_text()) for name in FILES - {"history.jsonl"}}
        files["history.jsonl"] = [json.loads(line) for line in (path / "history.jsonl").read_text().splitlines()]
        cells[files["cell.json"]["label"]] = files | {"name": path.name}
    return folder, cells


def test_a_cell_says_what_it_is(done: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    folder, cells = done
    assert set(cells) == {"retrain", "cocol", "ssd"}
    planned = {cell.label: cell for cell in cells_of(folder / "grid.toml")}
    for label, files in cells.items():
        cell = files["cell.json"]
        assert cell.items() >= planned[label].describe().items()
        assert files["name"] == planned[label].name
        assert (cell["collection"], cell["ranker"], cell["base"]) == ("tiny", "bi-encoder", "tiny")
        assert cell["took"] > 0
        assert cell["jobs"] == 1
        assert set(cell["original"]) == {"epochs", "seconds", "learned"}
    assert [cells[label]["cell.json"]["target"] for label in ("retrain", "cocol", "ssd")] == [
        None, "destination-2", None,
    ]  # fmt: skip


def test_every_query_is_kept_so_that_a_comparison_needs_no_weights(
    done: tuple[Path, dict[str, dict[str, Any]]],
) -> None:
    """The record's agreement with the retrained ranker follows from the files of the two cells."""
    cells = done[1]
    retrained, figures = cells["retrain"], {}
    assert set(retrained["forget.json"]) == {"before", "after"}
    for label, files in cells.items():
        ranks = {side: np.array(values, float) for side, values in files["ranks.json"]["forget"].items()}
        figures[label] = cell_figures(files["forget.json"], {side: 1 / values for side, values in ranks.items()})
        after = figures[label]["after"]
        assert len(after.orders) == len(after.reciprocal) == files["unrank.json"]["after"]["forget"]["queries"]
        assert after.pair_scores is not None
        assert len(after.pair_scores) == len(files["forget.json"]["before"]["pair_scores"]) >= len(after.orders)
        assert bool(figures[label]["before"].orders) is (label == "retrain"), "the same for all cells of an original"
    theirs = figures["retrain"]
    for label in ("cocol", "ssd"):
        found = cells[label]["unrank.json"]["agreement"]
        assert found["after"] == pytest.approx(vars(agreement(figures[label]["after"], theirs["after"])))
        assert found["before"] == pytest.approx(vars(agreement(theirs["before"], theirs["after"])))
    assert "agreement" not in retrained["unrank.json"]


def test_the_records_belong_together(done: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    records = {label: files["unrank.json"] for label, files in done[1].items()}
    retrained = records["retrain"]["after"]
    assert records["cocol"]["target"] == retrained["test"]["mrr"]
    assert records["cocol"]["target_name"] == "destination-2"
    assert records["retrain"]["target"] is records["ssd"]["target"] is records["ssd"]["target_name"] is None
    assert records["retrain"]["before"] == records["cocol"]["before"] == records["ssd"]["before"]
    for label, record in records.items():
        assert record["history"] == done[1][label]["history.jsonl"]
        assert record["recovery"]["before"] == pytest.approx(record["after"]["forget"]["mrr"])
        assert record["settings"] == done[1][label]["cell.json"]["settings"]


def test_ranks_are_those_of_the_scorecards(done: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    for files in done[1].values():
        for when in ("before", "after"):
            for name, measured in files["unrank.json"][when].items():
                ranks = np.array(files["ranks.json"][name][when], float)
                reciprocal = np.divide(1, ranks, out=np.zeros(len(ranks)), where=ranks > 0)
                assert len(ranks) == measured["queries"]
                assert reciprocal.mean() == pytest.approx(measured["mrr"])


@pytest.mark.slow
def test_a_cell_gives_what_train_and_forget_give(
    done: tuple[Path, dict[str, dict[str, Any]]], dense: Collection, encoder: Path
) -> None:
    folder, cells = done
    training = unrank.make_method("retrain", cells["cocol"]["cell.json"]["training"])
    removal = unrank.Removal.sample(dense, "documents", 0.25)
    retrained = unrank.train(dense, "bi-encoder", str(encoder), removal, method=training, device="cpu")
    original, _ = Store(folder / "out").load_original(cells_of(folder / "grid.toml")[0].original)
    assert cells["retrain"]["unrank.json"]["after"] == retrained.after.to_json()
    result = unrank.forget(
        original, dense, removal, method=unrank.make_method("cocol", {"epochs": "2"}), target="destination-2",
        reference=retrained.ranker, base=str(encoder), device="cpu",
    )  # fmt: skip
    assert cells["cocol"]["unrank.json"]["after"] == result.after.to_json()
    assert cells["cocol"]["unrank.json"]["target"] == result.target


def test_nothing_that_was_removed_is_in_the_records(done: tuple[Path, dict[str, dict[str, Any]]]) -> None:
    folder = done[0] / "out" / "cells"
    text = "".join(path.read_text() for path in folder.rglob("*.json*"))
    assert "doc1" not in text and "query1" not in text
    assert sum(path.stat().st_size for path in folder.rglob("*.json*")) < 60_000
    for files in done[1].values():
        removed = files["unrank.json"]["removed"]
        assert removed["documents"]["count"] > 0
        assert removed["documents"]["hashes"] == []


def worked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the jobs that are run from now on."""
    jobs: list[str] = []
    run_job = JobRunner.run

    def noted(self: JobRunner, job: Job) -> str:
        jobs.append(getattr(job, "label", "original"))
        return run_job(self, job)

    monkeypatch.setattr(JobRunner, "run", noted)
    return jobs


def test_a_finished_cell_is_never_run_again(
    grid: Grid, bench: RunBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = worked(monkeypatch)
    assert bench(grid('removals = ["documents"]\nmethods = ["retrain", "finetune"]')) == 0
    assert jobs == ["original", "retrain", "finetune"]
    assert bench(grid('removals = ["documents"]\nmethods = ["retrain", "finetune"]')) == 0
    assert len(jobs) == 3
    assert bench(grid('removals = ["documents"]\nmethods = ["retrain", "finetune", "finetune,negatives=2"]')) == 0
    assert jobs[3:] == ["finetune,negatives=2"]
    capsys.readouterr()
    assert bench(grid('removals = ["documents"]\nmethods = ["finetune", "neggrad"]'), "--dry-run") == 0
    said = capsys.readouterr().out
    assert "3 cells: 2 done, 1 to do, 0 rankers to train first; about " in said
    assert len(jobs) == 4


@pytest.mark.slow
def test_cells_of_two_folders_are_copied_together(grid: Grid, bench: RunBench, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    only = 'removals = ["documents"]\nmethods = '
    assert bench(grid(f'{only}["retrain"]'), out=here) == 0
    shutil.copytree(here / "cells", there / "cells")
    assert bench(grid(f'{only}["retrain", "finetune"]'), out=there) == 0
    assert len([*(there / "cells").iterdir()]) == 2


def test_a_dry_run_writes_nothing(
    grid: Grid, bench: RunBench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(grid(), "--dry-run") == 0
    assert not (tmp_path / "out").exists()
    said = capsys.readouterr().out
    assert "28 cells: 0 done, 28 to do, 1 ranker to train first; none is done yet" in said


def test_rankers_are_kept_if_so_asked(grid: Grid, bench: RunBench, tmp_path: Path) -> None:
    path = grid('removals = ["documents"]\nmethods = ["finetune"]\ndestinations = [0.9]')
    assert bench(path, "--keep-rankers") == 0
    (cell,) = cells_of(path)
    assert load_ranker(tmp_path / "out" / "rankers" / cell.name).kind == "bi-encoder"


def test_rankers_that_were_not_kept_are_told(
    done: tuple[Path, dict[str, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    from unrank.cli.main import run

    folder = done[0]
    command = ["bench", str(folder / "grid.toml"), "--out", str(folder / "out"), "--dry-run"]
    assert run([*command, "--keep-rankers"]) == run(command) == 0
    told = "3 finished cells without a ranker: --keep-rankers keeps those of later cells"
    assert capsys.readouterr().out.count(told) == 1


def test_what_a_cell_took_before_it_was_stopped_counts(tmp_path: Path) -> None:
    assert seconds_before(ResumableRun()) == seconds_before(ResumableRun(tmp_path)) == 0
    Checkpoint.of({"clock": Checkpoint({"teacher": 1.5, "steps": 30.0})}).save(tmp_path / CHECKPOINT)
    assert seconds_before(ResumableRun(tmp_path)) == 31.5


def test_who_ran_beside_a_cell_before_it_was_stopped_counts(tmp_path: Path) -> None:
    assert most_jobs(ResumableRun(), 2) == most_jobs(ResumableRun(tmp_path), 2) == 2
    assert most_jobs(ResumableRun(tmp_path), 1) == 1, "what left no checkpoint begins anew"
    assert most_jobs(ResumableRun(tmp_path), 3) == 3
    Checkpoint.of({}).save(tmp_path / CHECKPOINT)
    assert most_jobs(ResumableRun(tmp_path), 1) == 3
    clear_checkpoints(tmp_path)
    assert list(tmp_path.iterdir()) == []


class Broken(Finetune):
    name = "broken"

    def plan(self, task: Any) -> Any:
        raise UnrankError("this one breaks")


def test_a_failing_cell_is_told_and_the_others_go_on(
    grid: Grid, bench: RunBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from unrank.cli.main import run

    monkeypatch.setitem(METHODS, "broken", MethodEntry.of(Broken, "breaks"))
    path = grid('removals = ["documents"]\nmethods = ["broken", "finetune"]\ndestinations = [0.01]')
    assert run(["bench", str(path), "--out", str(tmp_path / "out")]) == 3
    said = capsys.readouterr()
    assert "broken to 0.01, seed 0: failed: this one breaks;" in said.err
    assert "1 job of 3 not done; the same command tries again" in said.out
    assert len([*(tmp_path / "out" / "cells").iterdir()]) == 1
    monkeypatch.setattr(Broken, "plan", Finetune.plan)
    jobs = worked(monkeypatch)
    assert bench(path) == 0
    assert jobs == ["broken"]


def test_without_an_original_there_are_no_cells(
    grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from unrank.cli.main import run

    def fails(*_: object, **__: object) -> None:
        raise ValueError("no such luck")

    monkeypatch.setattr("unrank.bench.runner.train", fails)
    assert run(["bench", str(grid('methods = ["retrain", "ssd"]')), "--out", str(tmp_path / "out")]) == 3
    said = capsys.readouterr()
    assert "failed: a bug in unrank: ValueError: no such luck" in said.err
    assert "4 cells cannot be run without it" in said.err
    assert "5 jobs of 5 not done" in said.out


def test_a_changed_original_is_not_worked_on(done: tuple[Path, dict[str, dict[str, Any]]], tmp_path: Path) -> None:
    original = cells_of(done[0] / "grid.toml")[0].original
    store = Store(Path(shutil.copytree(done[0] / "out", tmp_path / "out")))
    store.load_original(original)
    with (store.rankers / original.name / "model.safetensors").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(BadFile, match=r"is damaged|changed since unrank wrote it"):
        store.load_original(original)
    (store.rankers / original.name / "unrank.json").unlink()
    with pytest.raises(BadFile, match="without its record"):
        store.load_original(original)


def test_cells_that_a_report_would_take_for_others_are_named(
    done: tuple[Path, dict[str, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    from unrank.cli.main import run

    folder, cells = done
    changed = (folder / "grid.toml").read_text().replace("epochs = 2", "epochs = 3")
    (folder / "changed.toml").write_text(changed)
    assert run(["bench", str(folder / "changed.toml"), "--out", str(folder / "out"), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "1 cell in " in said and f"under the same names, {cells['cocol']['name']} the first" in said
    assert run(["bench", str(folder / "grid.toml"), "--out", str(folder / "out"), "--dry-run"]) == 0
    assert "same names" not in capsys.readouterr().out


def test_a_finished_cell_under_another_name_is_told(
    done: tuple[Path, dict[str, dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    from unrank.cli.main import run

    folder, _ = done
    (folder / "renamed.toml").write_text((folder / "grid.toml").read_text().replace('"cocol"', '"cocol,held=1"'))
    assert run(["bench", str(folder / "renamed.toml"), "--out", str(folder / "out"), "--dry-run"]) == 0
    assert "'cocol,anchors_per_pair=1' was run as 'cocol', the same method" in capsys.readouterr().out
