"""The fleet: every command that it holds can be given, and a call goes on where the one before was stopped."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unrank.bench.method_spec import read_method_spec, tuned_settings
from unrank.collection.collection import Collection
from unrank.methods.retrain import Retrain

ROOT = Path(__file__).parents[2]


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "runs"))
    return __import__("fleet")


def given(folder: Path) -> argparse.Namespace:
    return argparse.Namespace(data=folder, base="base", keep=folder / "keep", lines=folder / "lines", before=None)


def test_every_command_has_options_that_its_script_knows(fleet: Any, tmp_path: Path) -> None:
    assert len({part.name for part in fleet.PARTS}) == len(fleet.PARTS)
    for part in fleet.PARTS:
        _, script, *words = part.words(given(tmp_path))
        if script == "-m":
            script, words = f"src/unrank/cli/{words[1]}.py", words[2:]
        source = (ROOT / script).read_text() + (ROOT / "src/unrank/cli/option.py").read_text()
        for option in (word for word in words if word.startswith("--")):
            named = option.removeprefix("--").replace("-", "_")
            assert f'"{option}"' in source or f"{named}:" in source, (part.name, option)
        assert not any("{" in word for word in words)


def test_every_rival_is_a_method_with_settings(fleet: Any, tmp_path: Path) -> None:
    tuned, found = tuned_settings(ROOT / "results" / "tuned-bi-encoder.json"), 0
    for part in fleet.PARTS:
        words = part.words(given(tmp_path))
        if "--rivals" not in words:
            continue
        kinds = words[words.index("--rankers") + 1 : words.index("--removal-seed")]
        for rival in (word for word in words[words.index("--rivals") + 1 :]):
            if rival.startswith("--"):
                break
            for kind in kinds:
                read_method_spec(rival, kind, Retrain(), 12, tuned)
                found += 1
    assert found > 50


@pytest.mark.slow
def test_a_call_goes_on_where_the_one_before_was_stopped(dense: Collection, encoder: Path, tmp_path: Path) -> None:
    for name in ("car", "marco"):
        shutil.copytree(dense.folder, tmp_path / "data" / name)
    part = "share-0.15"
    command = ["--data", str(tmp_path / "data"), "--base", str(encoder), "--parts", part, "--keep", str(tmp_path)]

    def call(lines: str, *more: str) -> tuple[int, str]:
        words = [sys.executable, "runs/fleet.py", *command, "--lines", str(tmp_path / lines), *more]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
        return done.returncode, done.stdout

    status, said = call("first", "--minutes", "0.5")
    if status == 3:  # on a fast machine it is whole by now
        assert said.endswith(f"whole: none; left: {part}; failed: none\n")
    status, said = call("second", "--from", str(tmp_path / "first"), "--minutes", "14")
    assert status == 0, said + (tmp_path / "second" / "fleet.log").read_text()
    before = (tmp_path / "first" / f"{part}.jsonl").read_text()
    after = (tmp_path / "second" / f"{part}.jsonl").read_text()
    assert after.startswith(before.rpartition("\n")[0]), "what was written is not done again"
    lines = [json.loads(line) for line in after.splitlines()]
    assert len(lines) == 2 * 2 * 2 * 4, "of two collections, two rankers and both kinds of removal"
    assert call("second") == (0, f"whole: {part}; left: none; failed: none\n")
