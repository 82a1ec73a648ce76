"""The page about outdated documents: its commands run as they are printed, one after another, on tiny data."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.pages import ROOT, blocks, read, shell_commands
from tests.tiny import make_learnable_beir
from unrank.audit.context import Thoroughness
from unrank.cli.main import run
from unrank.record import read_record

PAGE = ROOT / "docs" / "how-to" / "replace-an-outdated-document.md"
QUICK = {
    "forget": ["--target", "0.001", "--set", "learning_rate=3e-3", "--set", "epochs=6", "--quiet"],
    "desk run": ["--target", "beyond:15", "--set", "epochs=1", "--queries", "5", "--quiet"],
}


def test_the_whole_page(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unrank.rankers.encoder.default_encoder", lambda: encoder)
    monkeypatch.setattr("unrank.desk.run_context.Thoroughness", partial(Thoroughness, relearning_steps=(1,)))
    make_learnable_beir(tmp_path / "my-data", articles=6)
    assert run(["import", "beir:my-data", "--out", "my-collection"]) == 0
    trained = ["--set", "epochs=1", "--set", "negatives=1", "--quiet"]
    assert run(["train", "my-collection", "--ranker", "bi-encoder", "--out", "my-ranker", *trained]) == 0
    removal = next(block for block in blocks(read(PAGE)) if block.language == "json")
    (tmp_path / "removal.json").write_text("\n".join(removal.lines))
    said: dict[str, str] = {}
    for words in shell_commands(read(PAGE)):
        if "demo/collection" in words:
            continue
        capsys.readouterr()
        name = " ".join(words[1:3]) if words[1] == "desk" else words[1]
        status = run([*words[1:], *QUICK.get(name, [])])
        assert status in ((0, 3, 4) if "method" in " ".join(words) else (0,)), words
        said[name] = capsys.readouterr().out
    record = read_record(tmp_path / "corrected")
    assert record is not None and record.substitutes is not None
    assert record.substitutes.after.mrr > record.substitutes.before.mrr
    assert "✗ d12" in said["preview"] and "+ d7" in said["preview"]
    assert "request 1: substitutes of" in said["desk run"], said["desk run"]
    named = json.loads((tmp_path / "removal.json").read_text())
    assert named == {"documents": ["d12"], "substitutes": {"d12": "d7"}}
