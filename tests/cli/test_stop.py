"""A job that is told to stop says so in one line, and the same command goes on."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from time import sleep

import pytest

from unrank.cli.main import run
from unrank.disk import CHECKPOINT, beside, sha256
from unrank.forgetting.forget import Forgotten


def stop_at_first_checkpoint(out: Path) -> threading.Thread:
    def wait() -> None:
        while not (beside(out) / CHECKPOINT).exists():
            sleep(0.005)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_details_are_written_before_the_ranker_and_neither_without_the_other(
    collection: Path, ranker: Path, removal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, details = tmp_path / "out", tmp_path / "details"
    asked = ["forget", str(ranker), str(collection), "--removal", str(removal), "--out", str(out), "--quiet"]
    asked += ["--details", str(details), "--target", "0.9", "--set", "epochs=1", "--device", "cpu"]
    seen: list[bool] = []

    def stop(*_: object) -> None:
        seen.append((details / "details.json").exists())
        raise KeyboardInterrupt

    with monkeypatch.context() as stopping:
        stopping.setattr(Forgotten, "save", stop)
        assert run(asked) == 130
    assert seen == [True] and not details.exists() and not out.exists()
    assert run(asked) in (0, 3, 4)
    assert (details / "details.json").exists() and (out / "unrank.json").exists()


def test_a_signal_is_answered_in_one_line(
    collection: Path, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(out: Path, *more: str) -> int:
        command = ["train", str(collection), "--ranker", "bi-encoder", "--base", str(encoder), "--device", "cpu"]
        settings = [word for item in ("epochs=2", "batch=16", "negatives=2") for word in ("--set", item)]
        return run([*command, *settings, "--quiet", "--out", str(out), *more])

    stopping = stop_at_first_checkpoint(tmp_path / "out")
    assert train(tmp_path / "out", "--checkpoint-every", "0") == 130
    stopping.join(10)
    left = beside(tmp_path / "out")
    assert capsys.readouterr().err.splitlines()[-1] == f"unrank: stopped; the same command goes on from {left}"
    assert [path.name for path in tmp_path.iterdir()] == [left.name]
    assert left.stat().st_mode & 0o777 == 0o700
    assert train(tmp_path / "out", "--seed", "1") == 2
    assert "seed is 0 there and 1 here" in capsys.readouterr().err
    assert train(tmp_path / "out") == 0
    assert train(tmp_path / "whole") == 0
    weights = [sha256(tmp_path / name / "model.safetensors") for name in ("out", "whole")]
    assert weights[0] == weights[1]
    assert {path.name for path in tmp_path.iterdir()} == {"out", "whole"}


def test_a_stopped_demo_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(folder: Path, how: object) -> None:
        (folder / "collection").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr("unrank.cli.demo.make_inputs", stop)
    assert run(["demo", "--tiny", "--quiet", "--out", str(tmp_path / "out")]) == 130
    assert list(tmp_path.iterdir()) == []


def test_a_demo_whose_output_breaks_off_keeps_what_it_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(result: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("unrank.cli.demo.make_all", lambda folder, how: (folder.mkdir(), None))
    monkeypatch.setattr("unrank.cli.demo.show_change", stop)
    assert run(["demo", "--tiny", "--quiet", "--out", str(tmp_path / "out")]) == 130
    assert (tmp_path / "out").is_dir()
