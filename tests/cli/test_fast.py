"""`--no-fast`: a command leaves all passes to the encoder's own library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unrank.cli.main import run
from unrank.rankers.fast.encoder import FastEncoder

GRID = """
collections = ["{collection}"]
rankers = ["bi-encoder"]
base = "{base}"
training = "epochs=1,negatives=1,batch=48"
epochs = 1
removals = ["documents"]
methods = ["retrain"]
"""


@pytest.fixture
def no_fast_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: FastEncoder, *inputs: Any, **options: Any) -> Any:
        raise AssertionError("a fast pass was used")

    monkeypatch.setattr(FastEncoder, "__call__", fail)


@pytest.mark.usefixtures("no_fast_pass")
def test_no_fast_pass_is_used(ranker: Path, collection: Path, encoder: Path, removal: Path, tmp_path: Path) -> None:
    quick = ["--set", "epochs=1", "--set", "batch=48", "--quiet", "--no-fast"]
    where = [str(collection), "--ranker", "cross-encoder", "--base", str(encoder)]
    assert run(["train", *where, "--out", str(tmp_path / "trained"), *quick]) == 0
    assert run(["evaluate", str(tmp_path / "trained"), str(collection), "--quiet", "--no-fast"]) == 0
    named = [str(ranker), str(collection), "--removal", str(removal)]
    command = ["forget", *named, "--target", "0.1", "--base", str(encoder), "--out", str(tmp_path / "forgotten")]
    assert run([*command, *quick]) in (0, 3)
    command = ["audit", *named, "--original", str(ranker), "--out", str(tmp_path / "audit"), "--queries", "5"]
    assert run([*command, "--quiet", "--no-fast"]) in (0, 3)


@pytest.mark.usefixtures("no_fast_pass")
def test_a_bench_uses_no_fast_pass(collection: Path, encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(GRID.format(collection=collection, base=encoder))
    assert run(["bench", str(tmp_path / "grid.toml"), "--out", str(tmp_path / "out"), "--quiet", "--no-fast"]) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("no_fast_pass")
def test_a_desk_uses_no_fast_pass(ranker: Path, collection: Path, tmp_path: Path) -> None:
    ledger = ["--ledger", str(tmp_path / "desk.ledger")]
    assert run(["desk", "add", str(collection), "--document", "doc1", *ledger]) == 0
    quick = ["--set", "epochs=1", "--set", "batch=48", "--queries", "5", "--quiet", "--no-fast", "--yes"]
    command = ["desk", "run", str(ranker), str(collection), "--out", str(tmp_path / "out"), *ledger]
    assert run([*command, *quick]) in (0, 3)
    assert (tmp_path / "out").is_dir()


def test_a_fast_pass_is_used_otherwise(
    ranker: Path, collection: Path, no_fast_pass: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["evaluate", str(ranker), str(collection), "--quiet"]) == 2
    assert "a fast pass was used" in capsys.readouterr().err
