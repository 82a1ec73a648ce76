"""The command `watch` on what the command line wrote."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Refused
from unrank.cli.main import run
from unrank.disk import JOURNAL, beside
from unrank.journal import Journal, Process


def test_a_training_that_is_done_is_shown_in_words_and_in_json(
    ranker: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["watch", str(ranker)]) == 0
    shown = capsys.readouterr().out
    assert "It is done: 4 epochs in" in shown and "MRR, training queries" in shown
    assert run(["watch", str(ranker), "--json", "--page", str(tmp_path / "page.html")]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "done"
    assert "It is done" in (tmp_path / "page.html").read_text()


def test_a_run_that_has_not_begun_and_one_that_was_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["watch", str(tmp_path / "out")]) == 0
    assert "It has not begun" in capsys.readouterr().out
    beside(tmp_path / "out").mkdir()
    journal = Journal(beside(tmp_path / "out") / JOURNAL)
    journal.write("start", process=vars(Process.this()), kind="train", ranker="bi-encoder")
    journal.write("end", how="stopped")
    page = tmp_path / "page.html"
    assert run(["watch", str(tmp_path / "out"), "--page", str(page)]) == 3
    assert "It was stopped" in page.read_text() and page.stat().st_mode & 0o777 == 0o600
    assert "delete it after use" not in capsys.readouterr().out, "it has no list"
    assert "No text of the collection is on this page." in page.read_text()
    journal.write("lists", lists=[{"query": 1, "part": "forget", "entries": 2, "first": [4], "ranks": {"4": 1}}])
    assert run(["watch", str(tmp_path / "out"), "--page", str(page)]) == 3
    shown = "shows texts that are to be forgotten"
    assert f"{page} {shown}: delete it after use" in capsys.readouterr().out and f"page {shown}." in page.read_text()
    assert run(["watch", str(tmp_path / "out"), "--page", str(page)]) == 3, "its own page may be written again"
    capsys.readouterr()
    assert run(["watch", str(tmp_path / "out"), "--page", str(page), "--json"]) == 3
    said = capsys.readouterr()
    assert json.loads(said.out)["state"] == "stopped" and f"{page} {shown}: delete it after use" in said.err


def test_what_cannot_be_watched_is_refused(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "mine.html").write_text("my diary")
    assert "choose another --page" in refused("watch", tmp_path / "out", "--page", tmp_path / "mine.html")
    assert "holds no run and no bench" in refused("watch", tmp_path)
    assert "holds no run and no bench" in refused("watch", tmp_path, "--serve", 8000)
    os.mkfifo(tmp_path / "pipe.html")
    assert "a named pipe" in refused("watch", tmp_path / "out", "--page", tmp_path / "pipe.html")
    for more in (("--page", tmp_path / "page.html"), ("--json",), ("--once",)):
        said = refused("watch", tmp_path / "out", "--serve", 8000, *more)
        assert said == "--serve shows the page until it is stopped: leave out --page, --json and --once"


def test_the_folder_itself_is_named_by_a_dot(
    ranker: Path, refused: Refused, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ranker)
    assert run(["watch", ".", "--once"]) == 0
    assert "It is done" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    for name in (".", ""):
        assert f"{tmp_path} holds no run and no bench" in refused("watch", name, "--once")
    for name in ("/", ".unfinished"):
        assert "names no run and no bench: name the --out of" in refused("watch", name, "--once")
