"""The fleet: every command that it holds can be given, and a call goes on where the one before was stopped."""

from __future__ import annotations

import argparse
import json
import shutil
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
    return argparse.Namespace(data=folder, base="base", keep=folder / "keep", lines=folder / "lines",
                              weights=folder, before=None)  # fmt: skip


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
def test_a_call_goes_on_where_the_one_before_was_stopped(
    fleet: Any, dense: Collection, encoder: Path, tmp_path: Path
) -> None:
    shutil.copytree(dense.folder, tmp_path / "data" / "car")
    command = "runs/places.py {car} --base {base} --keep {keep} --out {out} --rankers bi-encoder --device cpu"
    part = fleet.Part("small", "a run for this test", command)

    def call(lines: str, before: str | None, minutes: float) -> int:
        folder = tmp_path / lines
        folder.mkdir(exist_ok=True)
        given = argparse.Namespace(data=tmp_path / "data", base=str(encoder), keep=tmp_path / "keep", lines=folder)
        given.before, given.minutes, given.beside, given.weights = before and tmp_path / before, minutes, 1, None
        status: int = fleet.run([part], given)
        return status

    assert call("first", None, 0.02) == 3, "the time is up"
    assert call("second", "first", 25) == 0, (tmp_path / "second" / "fleet.log").read_text()
    whole = (tmp_path / "second" / part.file).read_text()
    assert [json.loads(line)["by"] for line in whole.splitlines()] == ["documents"] * 3 + ["queries"] * 3
    assert json.loads((tmp_path / "second" / fleet.DONE).read_text()) == {"whole": ["small"]}
    assert call("second", None, 1) == 0 and (tmp_path / "second" / part.file).read_text() == whole
