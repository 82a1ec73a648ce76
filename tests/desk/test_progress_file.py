"""The progress of a run as a file: whole at any time, and readable before there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from unrank.desk import progress_file
from unrank.desk.progress_file import LINES, ProgressFile, RunProgress, progress_to
from unrank.engine.runtime import Silence


def test_what_a_run_says_can_be_read_by_others(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    assert RunProgress.read(path) == RunProgress()
    with progress_to(path, Silence()) as listener:
        assert RunProgress.read(path).what == "starting"
        listener.begin("training", 10)
        listener.advance(4)
        listener.done(0.5)
        listener.done(0.25)  # a bar never goes back
        for number in range(LINES + 1):
            listener.say(f"line\x1b[31m {number}")
    found = RunProgress.read(path)
    assert (found.what, found.steps, found.advanced, found.share) == ("training", 10, 4, 0.5)
    assert len(found.lines) == LINES and found.lines[-1] == f"line\\x1b[31m {LINES}"
    assert [*tmp_path.iterdir()] == [path]


def test_a_file_that_is_not_progress_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    for text in ("", "{", "[]", '{"lines": 3}', '{"lines": [], "other": 1}'):
        path.write_text(text)
        assert RunProgress.read(path) == RunProgress()


def test_steps_are_not_each_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_file, "monotonic", lambda: 1.0)
    written = []
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: written.append(1))
    monkeypatch.setattr(Path, "replace", lambda *_: None)
    listener = ProgressFile(tmp_path / "progress.json", Silence())
    for _ in range(1_000):
        listener.advance()
    assert written == [1]
