"""The journal of a run that forgets or trains: written while it is at work, gone when it is whole, and free."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.forgetting.conftest import FAST, QUICK_TRAINING
from tests.forgetting.test_forget import Listener
from tests.forgetting.test_resume import StopAtStep, assert_same
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.disk import JOURNAL, beside
from unrank.engine.resume import resumable
from unrank.errors import Stopped, UnrankError
from unrank.forgetting.forget import Forgotten, forget
from unrank.forgetting.train import Trained, train
from unrank.journal import Lines, read_journal

METHOD = replace(FAST, epochs=3)


class Watcher(Listener):
    """Reads the journal whenever the job says a line."""

    def __init__(self, out: Path) -> None:
        super().__init__()
        self._path, self.read = beside(out) / JOURNAL, list[Lines]()

    def say(self, line: str) -> None:
        found = read_journal(self._path)
        self.read += [found] if found else []


def watched_run(trained: Trained, dense: Collection, removal: Removal, out: Path) -> tuple[Forgotten, Watcher]:
    watcher = Watcher(out)
    with resumable(out) as run:
        result = forget(trained.ranker, dense, removal, method=METHOD, target=0.01, run=run, progress=watcher)
        last = read_journal(beside(out) / JOURNAL)
        watcher.read += [last] if last else []
    return result, watcher


def test_a_run_that_forgets_is_recorded_and_not_changed_by_it(
    trained: Trained, dense: Collection, removal: Removal, tmp_path: Path
) -> None:
    result, watcher = watched_run(trained, dense, removal, tmp_path / "out")
    found = watcher.read[-1]
    assert found.start.kind == "forget" and found.start.method == "cocol"
    assert found.start.collection == str(dense.folder.resolve()) and found.start.fingerprint == dense.fingerprint
    assert found.before is not None and found.before.target == 0.01
    assert found.before.mrrs == pytest.approx(result.before.mrrs)
    assert found.checks == result.record.history and found.checks[-1].steps
    assert found.epochs == 3 and not found.exact and found.ending == "done"
    assert len(watcher.read[0].checks) < len(found.checks), "it grew as the run went on"
    assert not [*tmp_path.iterdir()], "it is deleted with the checkpoints"
    assert_same(result, forget(trained.ranker, dense, removal, method=METHOD, target=0.01))


def test_the_lists_of_chosen_queries_are_those_that_a_check_ranks(
    trained: Trained, dense: Collection, removal: Removal, tmp_path: Path
) -> None:
    result, watcher = watched_run(trained, dense, removal, tmp_path / "out")
    first, last = watcher.read[-1].lists
    asked = {each.query for each in first if each.part == "forget"}
    assert len(asked) == 3 and {each.part for each in first} >= {"forget", "test"}
    assert {each.query for each in last} == asked, "a short run scores nothing apart"
    texts = {dense.queries.text(row) for row in range(len(dense.queries))}
    assert not any(text in str(watcher.read[-1]) for text in texts), "it holds rows, no text"
    forget_rows = np.unique(dense.documents.rows(removal.documents))
    for each in last:
        assert each.ranks and {int(row) for row in each.ranks} <= set(forget_rows.tolist())
        assert all(each.first[rank - 1] == int(row) for row, rank in each.ranks.items() if rank <= len(each.first))
    assert result.record.history


def test_queries_are_chosen_by_id(trained: Trained, dense: Collection, removal: Removal, tmp_path: Path) -> None:
    watcher, chosen = Watcher(tmp_path / "out"), np.unique(dense.pairs[:, 0])[0]
    with resumable(tmp_path / "out") as run:
        options: dict[str, Any] = {"method": METHOD, "target": 0.01, "follow": (dense.queries.id(chosen),)}
        forget(trained.ranker, dense, removal, run=run, progress=watcher, **options)
    assert {each.query for lists in watcher.read[-1].lists for each in lists} == {chosen}
    with pytest.raises(UnrankError, match=r"--follow: 1 query id not in the collection: 'nobody'"):
        forget(trained.ranker, dense, removal, method=METHOD, follow=("nobody",))


def test_a_training_is_recorded(dense: Collection, encoder: Path, tmp_path: Path) -> None:
    watcher = Watcher(tmp_path / "out")
    method = replace(QUICK_TRAINING, epochs=2, enough=1.1)
    with resumable(tmp_path / "out") as run:
        trained = train(dense, "bi-encoder", str(encoder), method=method, run=run, progress=watcher)
        found = read_journal(beside(tmp_path / "out") / JOURNAL)
    assert found is not None and found.start.kind == "train" and found.epochs == 2
    assert [check.learned for check in found.checks] == [check.learned for check in trained.record.history]
    assert len(found.lists) == 2
    assert not [*tmp_path.iterdir()]


def test_a_stopped_run_says_so_if_it_can_go_on(
    trained: Trained, dense: Collection, removal: Removal, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options: dict[str, Any] = {"method": METHOD, "target": 0.01}
    with pytest.raises(Stopped), resumable(out, every=0) as run:
        forget(trained.ranker, dense, removal, run=run, progress=StopAtStep(3), **options)
    found = read_journal(beside(out) / JOURNAL)
    assert found is not None and found.ending == "stopped"
    watcher = Watcher(out)
    with resumable(out) as run:
        forget(trained.ranker, dense, removal, run=run, progress=watcher, **options)
    assert watcher.read[0].ending is None and not [*tmp_path.iterdir()]


def test_the_journal_takes_a_small_share_of_the_time(
    trained: Trained, dense: Collection, removal: Removal, tmp_path: Path
) -> None:
    """The runs of these tests are short, so the bound is generous; benchmarks/watch.py measures a longer one."""
    with resumable(tmp_path / "out") as run:
        forget(trained.ranker, dense, removal, method=METHOD, target=0.01, run=run)
        lines = (beside(tmp_path / "out") / JOURNAL).read_text().splitlines()
    took = json.loads(lines[-1])
    assert 0 < took["seconds"] < 0.05 * took["elapsed"]
