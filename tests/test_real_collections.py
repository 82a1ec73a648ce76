"""The command line on real collections, with a tiny random encoder: every step works, whatever it learns.

Skipped where the collections are not at hand: UNRANK_DATA names their folder, `../shared/data` is the default.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from unrank.cli.main import run

DATA = Path(os.environ.get("UNRANK_DATA", Path(__file__).parents[2] / "shared" / "data"))
COLLECTIONS = {"trec-car-test200": (4_689, 1_752, 198), "nfcorpus": (3_633, 2_590, 323)}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason="the real collections are not here"),
]


@pytest.mark.parametrize("name", COLLECTIONS)
def test_counts_of_a_real_collection(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", f"beir:{DATA / name}", "--out", f"{tmp_path / 'whole'}"]) == 0
    capsys.readouterr()
    assert run(["inspect", f"{tmp_path / 'whole'}", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    documents, training, testing = COLLECTIONS[name]
    assert (counts["documents"], counts["training_queries"], counts["test_queries"]) == (documents, training, testing)
    assert counts["relevant_per_query"] <= 25


@pytest.mark.parametrize("name", COLLECTIONS)
def test_the_whole_walk_from_the_command_line(
    name: str, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collection, removal, ranker, clean = (f"{tmp_path / part}" for part in ("c", "removal.json", "ranker", "clean"))
    limits = ["--train-queries", "60", "--test-queries", "20", "--relevant", "3", "--candidates", "20"]
    assert run(["import", f"beir:{DATA / name}", "--out", collection, *limits]) == 0
    assert run(["split", collection, "--remove", "documents", "--share", "0.25", "--out", removal]) == 0
    training = ["--base", f"{encoder}", "--set", "epochs=1", "--set", "negatives=2", "--quiet"]
    assert run(["train", collection, "--ranker", "bi-encoder", "--out", ranker, *training]) == 0
    forgetting = ["--target", "90%", "--set", "epochs=2", "--quiet"]
    assert run(["forget", ranker, collection, "--removal", removal, "--out", clean, *forgetting]) in (0, 3)
    capsys.readouterr()
    assert run(["evaluate", clean, collection, "--removal", removal, "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    recorded = json.loads((Path(clean) / "unrank.json").read_text())["after"]
    assert measured["forget"]["queries"] > 0
    assert measured["forget"]["mrr"] == pytest.approx(recorded["forget"]["mrr"], abs=1e-6)
    assert measured["test"]["mrr"] == pytest.approx(recorded["test"]["mrr"], abs=1e-6)
