"""The command `proxies`, and `train --proxies`."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from unrank.cli.main import run
from unrank.collection.collection import Collection
from unrank.record import HeldOut, Record

FEW = ("--set", "epochs=1", "--set", "negatives=1", "--device", "cpu", "--quiet")


def test_too_many_proxies_are_refused_before_the_ranker_is_trained(
    dense: Collection, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "ranker"
    train = ("train", str(dense.folder), "--ranker", "bi-encoder", "--base", str(encoder), "--out", str(out), *FEW)
    assert run([*train, "--proxies", "100000"]) == 2
    assert "so some would hold out nothing: choose fewer" in capsys.readouterr().err
    assert not out.exists()


def test_proxies_are_written_beside_a_ranker_and_added_later(
    dense: Collection,
    encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("UNRANK_STATE", str(tmp_path / "state"))  # no other test finds them
    out, beside, data = tmp_path / "ranker", tmp_path / "ranker-proxies", str(dense.folder)
    train = ("train", data, "--ranker", "bi-encoder", "--base", str(encoder), "--out", str(out), *FEW)
    assert run([*train, "--proxies", "2"]) == 0
    said = capsys.readouterr().out
    assert "2 proxies made, 0 trained again, 0 left as they are, in" in said and str(beside) in said
    assert "never ship this folder" in said
    assert not (out / "proxy-1").exists()
    records = [Record.read(beside / f"proxy-{fold}") for fold in (1, 2)]
    assert [record and record.held_out for record in records] == [HeldOut(2, 1), HeldOut(2, 2)]
    prepare = ("proxies", str(out), data, "--out", str(beside), "--device", "cpu", "--quiet")
    assert run([*prepare, "--count", "2"]) == 0
    assert "0 proxies made, 0 trained again, 2 left as they are" in capsys.readouterr().out
    assert run(["evaluate", str(beside / "proxy-1"), data, "--device", "cpu", "--quiet"]) == 0
    assert run([*prepare, "--count", "3"]) == 2
    assert "proxy-1: holds out fold 1 of 2 by seed 0" in capsys.readouterr().err
    assert run(["proxies", str(out), data, "--out", str(out / "inside")]) == 2
    assert "is inside" in capsys.readouterr().err


def test_a_training_that_is_stopped_at_its_proxies_says_how_to_go_on(
    dense: Collection,
    encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("UNRANK_STATE", str(tmp_path / "state"))

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    data, out = str(dense.folder), str(tmp_path / "my ranker")
    train = ["train", data, "--ranker", "bi-encoder", "--base", str(encoder), "--out", out, "--seed", "3", *FEW]
    with monkeypatch.context() as stopping:
        stopping.setattr("unrank.forgetting.prepared_proxies.prepare_proxies", stop)
        assert run([*train, "--proxies", "2"]) == 130
    said = capsys.readouterr().err
    assert said.startswith("unrank: stopped; the ranker is written, go on with: unrank proxies ")
    command = said.split("go on with: ")[1]
    assert run([*train, "--proxies", "2"]) == 2
    again = capsys.readouterr().err
    assert "exists already" in again and again.endswith(
        f"if this command wrote it and was stopped then, go on with: {command}"
    )
    assert run([*train, *FEW]) == 2 and "go on with" not in capsys.readouterr().err, "it asks for no proxies"
    assert run([*shlex.split(command)[1:], "--quiet"]) == 0
    records = [Record.read(tmp_path / "my ranker-proxies" / f"proxy-{fold}") for fold in (1, 2)]
    assert [record and record.held_out for record in records] == [HeldOut(2, 1, 3), HeldOut(2, 2, 3)]
