"""What the README tells people to type works, on tiny data under the README's own names."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import unrank
from tests.tiny import make_learnable_beir
from unrank.cli.main import run
from unrank.record import Record

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands() -> list[list[str]]:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("unrank ")]


@pytest.fixture
def empty_home(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the README's names of what a user brings: my-data, removal.json, the grids."""
    monkeypatch.chdir(tmp_path)
    make_learnable_beir(tmp_path / "my-data", articles=12)
    monkeypatch.setattr("unrank.rankers.encoder.default_encoder", lambda: encoder)
    shutil.copytree(ROOT / "grids", tmp_path / "grids")
    (tmp_path / "removal.json").write_text(json.dumps({"documents": ["d12"]}))
    return tmp_path


@pytest.fixture(scope="module")
def made(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The README's my-collection and my-ranker, made once."""
    folder = tmp_path_factory.mktemp("readme")
    make_learnable_beir(folder / "my-data")
    collection, ranker = str(folder / "my-collection"), str(folder / "my-ranker")
    assert run(["import", f"beir:{folder / 'my-data'}", "--out", collection]) == 0
    options = ["--base", str(encoder), "--out", ranker, "--set", "epochs=1", "--quiet"]
    assert run(["train", collection, "--ranker", "bi-encoder", *options]) == 0
    return folder


@pytest.fixture
def home(empty_home: Path, made: Path) -> Path:
    """The same folder with my-collection and my-ranker in it."""
    for name in ("my-collection", "my-ranker"):
        shutil.copytree(made / name, empty_home / name)
    return empty_home


@pytest.mark.usefixtures("undrawn")
def test_the_shell_commands(empty_home: Path) -> None:
    quick = {
        "train": ["--set", "epochs=1", "--set", "negatives=1", "--quiet"],
        "forget": ["--set", "epochs=2", "--quiet"],
        "bench": ["--set", "epochs=2", "--quiet"],
        "audit": ["--quiet"],
    }
    imports, *rest = commands()
    trains = [command for command in rest if command[1] in ("train", "split")]
    others = [command for command in rest if command[1] not in ("train", "split")]
    assert len(trains) == 3 and len(others) == 13
    assert run(imports[1:]) == 0
    for command in [*trains, *others]:
        assert run([*command[1:], *quick.get(command[1], [])]) in (
            (0, 3, 4) if command[1] in ("forget", "audit") else (0,)
        ), command
    assert (empty_home / "clean-ranker" / "unrank.json").is_file()
    assert len([*(empty_home / "bench" / "cells").iterdir()]) == 3


def test_the_python_lines(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (lines,) = blocks("python")
    assert len([line for line in lines.splitlines() if line.strip()]) <= 12
    capsys.readouterr()
    exec(compile(lines, "README.md", "exec"), {})
    assert "entangled" in capsys.readouterr().out
    assert (home / "clean-ranker" / "model.safetensors").is_file()


def test_the_example_forgets_a_document(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from examples.forget_a_document import main

    short = unrank.make_method("cocol", {"epochs": "2"})
    monkeypatch.setattr(unrank, "forget", partial(unrank.forget, method=short))

    main("my-collection", "my-ranker", "d12", "out", "50%")
    assert "forget MRR" in capsys.readouterr().out
    assert (home / "out" / "unrank.json").is_file()


def test_the_example_of_a_ranker_of_ones_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from examples import own_ranker

    from unrank import RANKERS, load_ranker

    assert len((ROOT / "examples" / "own_ranker.py").read_text().splitlines()) < 45
    monkeypatch.setitem(RANKERS, "shared-words", RANKERS["bi-encoder"])  # taken out again at the end
    own_ranker.main("my-collection", "d12", "out")
    record = json.loads((home / "out" / "unrank.json").read_text())
    assert record["after"]["forget"]["mrr"] < record["before"]["forget"]["mrr"]
    loaded = load_ranker("out")
    assert type(loaded) is own_ranker.SharedWords is RANKERS["shared-words"].ranker
    shared, apart = loaded.score_texts(["ba be"] * 2, ["be ba", "cel dan"])
    assert shared > apart == 0


def test_the_example_of_a_method_of_ones_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from examples import own_method

    from unrank import METHODS, load_ranker, make_method

    source = (ROOT / "examples" / "own_method.py").read_text()
    assert len(source.splitlines()) < 45
    assert source in (ROOT / "docs" / "how-to" / "add-a-method.md").read_text(encoding="utf-8")
    monkeypatch.setitem(METHODS, "demote", METHODS["cocol"])  # taken out again at the end
    own_method.main("my-collection", "my-ranker", "d12", "out")
    record = json.loads((home / "out" / "unrank.json").read_text())
    assert (record["method"], record["settings"]["hold"], record["reached"]) == ("demote", 1.0, True)
    assert record["after"]["forget"]["mrr"] < record["before"]["forget"]["mrr"]
    assert load_ranker("out").kind == "bi-encoder"
    assert make_method("demote") == own_method.Demote()
    assert run(["list", "methods"]) == 0


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("forget_a_document", ["my-collection", "my-ranker", "no such", "out"]),
        ("own_method", ["my-collection", "my-ranker", "no such", "out"]),
        ("own_ranker", ["nowhere", "d12", "out"]),
    ],
)
def test_an_example_says_what_is_wrong_in_one_line(home: Path, name: str, arguments: list[str]) -> None:
    def said(*given: str) -> str:
        command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), *given]
        ended = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 1 and "Traceback" not in ended.stderr
        return ended.stderr.strip()

    assert "COLLECTION" in said() and said() == said(*arguments, "50%", "too many")
    lines = said(*arguments).splitlines()
    assert len(lines) == 1 and ("'no such'" in lines[0] or "nowhere: no such collection" in lines[0])


def test_every_path_that_the_readme_names_is_there() -> None:
    named = re.findall(r"^(\w[\w./-]*/)\s", README, flags=re.MULTILINE)
    assert {"src/unrank/", "tests/", "docs/"} <= set(named)
    assert [path for path in [*named, "CITATION.cff", "constraints.txt"] if not (ROOT / path).exists()] == []


def test_every_key_of_a_record_is_explained() -> None:
    told = (ROOT / "docs" / "reference" / "report.md").read_text(encoding="utf-8")
    assert [name for name in Record.__dataclass_fields__ if f"`{name}`" not in told] == []
