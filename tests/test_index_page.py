"""The page about an index: its commands run as they are printed, one after another, on tiny data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pages import ROOT, read, shell_commands
from tests.tiny import make_learnable_beir
from unrank.cli.main import run

PAGE = ROOT / "docs" / "how-to" / "update-an-index.md"
QUICK = {
    "train": ["--set", "epochs=1", "--set", "negatives=1", "--quiet"],
    "forget": ["--target", "0.001", "--set", "epochs=2", "--quiet"],
}


def test_the_whole_page(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("faiss", reason="FAISS is not installed: pip install 'unrank[faiss]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unrank.rankers.encoder.default_encoder", lambda: encoder)
    make_learnable_beir(tmp_path / "my-data", articles=6)
    (tmp_path / "removal.json").write_text(json.dumps({"documents": ["d12"]}))
    said: dict[str, list[str]] = {}
    for words in shell_commands(read(PAGE)):
        capsys.readouterr()
        status = run([*words[1:], *QUICK.get(words[1], [])])
        assert status in ((0, 3, 4) if words[1] == "forget" else (0,)), words
        said.setdefault(" ".join(words[1:3]), []).append(capsys.readouterr().out)
    deleted, switched = said["index update"]
    assert "1 document deleted, 0 encoded" in deleted
    assert "all texts were encoded beside the index" in switched and "0 documents deleted, 23 encoded" in switched
    assert "sound: all 23 points" in said["index check"][0]
    assert "✗ d12" in said["preview my-ranker"][0]
    assert "d12" not in {json.loads(line)["_id"] for line in (tmp_path / "next-data" / "corpus.jsonl").open()}
