"""What stands in data never steers the terminal that shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unrank.cli.main import run

EVIL = "\x1b[2J\x9b31m\u202e\x07evil\nunrank: done"


@pytest.fixture
def poisoned(tmp_path: Path) -> Path:
    """A collection whose ids and texts would clear a screen, change its colours and write lines of their own."""
    source = tmp_path / "train.jsonl"
    rows = [{"query": f"word{n} {EVIL}", "positive": f"word{n} right {EVIL}", "negative": EVIL} for n in range(4)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "out"
    assert run(["import", f"triples:{source}", "--out", str(out), "--candidates", "2"]) == 0
    return out


def is_plain(said: str) -> bool:
    return not any(character in said for character in "\x1b\x9b\u202e\x07") and "\nunrank: done" not in said


@pytest.mark.parametrize("more", [["inspect"], ["find", "word1"], ["find", "word1", "--exact"]])
def test_texts(poisoned: Path, capsys: pytest.CaptureFixture[str], more: list[str]) -> None:
    capsys.readouterr()
    assert run([more[0], str(poisoned), *more[1:]]) == 0
    said = capsys.readouterr().out
    assert "evil" in said
    assert is_plain(said)


def test_json_stays_what_it_was(poisoned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["find", str(poisoned), "word1", "--queries", "--json"]) == 0
    said = capsys.readouterr().out
    assert is_plain(said)
    assert json.loads(said)["queries"][0]["text"] == f"word1 {EVIL}"


def test_errors(poisoned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    removal = tmp_path / "removal.json"
    removal.write_text(json.dumps({"queries": [EVIL, "x" * 10_000]}))
    capsys.readouterr()
    assert run(["inspect", str(poisoned), "--removal", str(removal)]) == 2
    assert run(["inspect", f"{tmp_path}/{EVIL}"]) == 2
    said = capsys.readouterr().err
    assert is_plain(said)
    assert len(said.splitlines()) == 2
    assert len(said) < 2_000


def test_every_file_is_verified(poisoned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(poisoned), "--verify"]) == 0
    assert "all files are unchanged" in capsys.readouterr().out
