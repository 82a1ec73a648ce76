"""Progress: one bar for a whole job; in Python too, if there is a terminal to show it on."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console
from rich.progress import Progress as Bars

from tests.forgetting.conftest import FAST
from tests.forgetting.test_forget import Listener
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.engine.runtime import Silence
from unrank.forgetting.forget import forget
from unrank.forgetting.progress import Bar, listening, show_progress
from unrank.forgetting.train import Trained


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_is_of_the_whole_job_and_never_goes_back() -> None:
    with Bars(console=Console(file=io.StringIO())) as bars:
        bar = Bar(bars)
        (task,) = bars.tasks
        assert task.total is None
        bar.begin("epoch 1: forget", 4)
        bar.advance(3)
        assert task.description == "epoch 1: forget  75%" and task.total is None, "how long the job is, is not known"
        bar.done(0.5)
        bar.begin("epoch 1: [hold]", 10)
        assert [task.completed, task.total] == [0.5, 1.0], "a new piece does not reset it"
        bar.done(0.3)
        bar.advance(20)
        assert task.completed == 0.5 and task.description.endswith("100%")
        bar.done(1.2)
        assert task.completed == 1.0


def test_python_shows_a_bar_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Silence()
    with listening(mine) as listener:
        assert listener is mine
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with listening(None) as listener:
        assert isinstance(listener, Silence)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with listening(None) as listener:
        assert isinstance(listener, Bar)
    with show_progress(quiet=True) as listener:
        assert isinstance(listener, Silence)


def test_forgetting_in_python_is_shown_on_a_terminal(
    trained: Trained, dense: Collection, removal: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    forget(trained.ranker, dense, removal, method=FAST, target="80%")
    assert "epoch 1: forget MRR" in shown.getvalue()


def test_a_run_says_which_share_of_the_way_to_its_target_is_done(
    trained: Trained, dense: Collection, removal: Removal
) -> None:
    heard = Listener()
    result = forget(trained.ranker, dense, removal, method=FAST, target="80%", progress=heard)
    assert result.before.forget is not None
    start = result.before.forget.mean
    path = [mrr for _, mrr in result.record.path("forget")]
    assert heard.shares == pytest.approx([(start - mrr) / (start - result.target) for mrr in path])
    assert heard.shares[-1] >= 1
