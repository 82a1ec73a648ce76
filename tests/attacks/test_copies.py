"""A removed text that stays or comes back: disguised, or as a copy under another id."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import write_beir
from unrank.cli.main import run

TEXT = "Mr Quixote of Dulcinea Street owns a windmill"
DISGUISES = {
    "byte order mark": f"\ufeff{TEXT}",
    "zero-width space": TEXT.replace("Quixote", "Qui\u200bxote"),
    "soft hyphen": TEXT.replace("windmill", "wind\u00admill"),
    "left-to-right mark": TEXT.replace(" ", " \u200e"),
    "NUL": f"{TEXT}\0",
    "NUL between words": TEXT.replace(" ", "\0 "),
    "full stop": f"{TEXT}.",
    "quotes": f"“{TEXT}!”",
    "tag characters": f"{TEXT}\U000e0041",
    "variation selector": TEXT.replace("M", "M\ufe0f"),
    "fullwidth letters": TEXT.replace("windmill", "ｗｉｎｄｍｉｌｌ"),
}


def make_desk(folder: Path, texts: dict[str, str]) -> Path:
    """A collection in which document d0 has the text, further documents have others, and a request that names d0."""
    beir = write_beir(folder / "beir", [(f"q{i}", f"d{i}") for i in range(6)], documents=4)
    lines = [json.loads(line) for line in (beir / "corpus.jsonl").read_text().splitlines()]
    rows = [{**line, "text": texts.get(line["_id"], line["text"])} for line in lines]
    (beir / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(["import", f"beir:{beir}", "--out", str(folder / "collection"), "--candidates", "4"]) == 0
    assert run(["desk", "add", str(folder / "collection"), "--document", "d0", "--ledger", str(folder / "ledger")]) == 0
    return folder / "collection"


@pytest.mark.attack(20)
def test_a_disguised_text_does_not_pass_the_filter(tmp_path: Path) -> None:
    make_desk(tmp_path, {"d0": TEXT})
    rows = [{"query": f"question {name}", "positive": text} for name, text in DISGUISES.items()]
    other = {"query": "another question", "positive": "Mr Quixote owns a windmill"}
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, other]))
    command = ["filter", f"triples:{tmp_path / 'new.jsonl'}", "--out", str(tmp_path / "kept.jsonl")]
    assert run([*command, "--ledger", str(tmp_path / "ledger")]) == 0
    assert [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()] == [other]
