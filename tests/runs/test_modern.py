"""The rankers of today: each part on tiny random models, and its tables."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import make_decoder, make_encoder
from unrank import open_collection
from unrank.collection.collection import Collection

RUNS = Path(__file__).parents[2] / "runs"
QUICK = ["epochs=1", "negatives=1", "batch=32", "learning_rate=1e-3"]
FORGET = ["--forget", "place_epochs=1", "place_rounds=1", "epochs=1"]

Modern = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def modern(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Modern:
    """Run the script as a user does; the lines that it wrote."""
    monkeypatch.syspath_prepend(RUNS)

    def run(part: str, collection: Collection, *arguments: object) -> list[dict[str, Any]]:
        out = tmp_path / f"{part}.jsonl"
        given = [part, collection.folder, "--out", out, "--device", "cpu", *arguments]
        monkeypatch.setattr(sys, "argv", ["modern.py", *map(str, given)])
        runpy.run_path(str(RUNS / "modern.py"), run_name="__main__")
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        assert not [line["failed"] for line in lines if "failed" in line]
        return lines

    return run


@pytest.mark.slow
def test_a_decoder_forgets_with_an_adapter_and_without(
    modern: Modern,
    dense: Collection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--base", make_decoder(tmp_path / "tiny"), "--set", *QUICK, *FORGET, "--keep", tmp_path / "kept"]
    lines = modern("decoder", dense, *options)
    runs = [(line.get("by"), line["run"]) for line in lines]
    first, second = ("documents", "queries")
    assert runs[:4] == [(None, "trained"), (first, "retrained"), (first, "places, adapter"),
                        (first, "destination-1, adapter")]  # fmt: skip
    assert (second, "places, adapter") in runs and (second, "destination-1, all weights") in runs
    adapted = next(line for line in lines if line["run"] == "places, adapter")
    assert adapted["off equals original"] and adapted["original scores again"] and 0 < adapted["bytes"] < 10e6
    assert adapted["off differs from before"] < 1e-5
    assert modern("decoder", dense, *options) == lines  # nothing is done again
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["modern.py", str(tmp_path / "decoder.jsonl")])
    runpy.run_path(str(RUNS / "modern.py"), run_name="__main__")
    assert "| decoder | documents | places, adapter |" in capsys.readouterr().out


@pytest.mark.slow
def test_splade_takes_the_recipe_of_the_development_collection(
    modern: Modern, dense: Collection, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--base", encoder, "--development", dense.folder, "--set", *QUICK[:3], *FORGET]
    lines = modern("splade", dense, *options)
    tried = {line["run"]: line for line in lines if line["part"] == "development" and "learned" in line}
    trained = next(line for line in lines if line["run"] == "trained")
    best = max(tried.values(), key=lambda line: line["test"])
    assert len(tried) == 2 and "the recipe is" in capsys.readouterr().out
    assert trained["settings"]["learning_rate"] == float(best["settings"]["learning_rate"])
    forgotten = [line for line in lines if line["run"] == "destination-1, all weights"]
    assert [line["by"] for line in forgotten] == ["documents", "queries"]
    assert all(line["entries"]["before"] > 0 for line in forgotten)


@pytest.mark.slow
def test_mpnet_forgets_as_both_kinds(modern: Modern, dense: Collection, tmp_path: Path) -> None:
    lines = modern("mpnet", dense, "--base", make_encoder(tmp_path / "mpnet", "mpnet"), "--set", *QUICK, *FORGET)
    assert [(line["ranker"], line["run"]) for line in lines] == [
        (kind, run)
        for kind in ("bi-encoder", "cross-encoder")
        for run in ("trained", "retrained", "places, all weights")
    ]
    assert all("distance" in line for line in lines if line["run"].startswith("places"))


@pytest.mark.slow
def test_forms_of_an_adapter_stand_beside_those_of_all_weights(
    modern: Modern, dense: Collection, encoder: Path
) -> None:
    lines = modern("forms", dense, "--base", encoder, "--set", *QUICK, *FORGET)
    assert [line["run"] for line in lines if "4 bits" in line] == [
        "original, other forms", "retrained, other forms", "places, all weights", "places, adapter",
    ]  # fmt: skip
    assert all(0 < line["back"] <= 1 for line in lines if "back" in line)


def test_a_part_without_time_names_what_it_leaves_out(
    modern: Modern, dense: Collection, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert modern("forms", dense, "--base", encoder, "--set", *QUICK, "--minutes", 1e-9) == []
    assert "no time is left for documents places, adapter" in capsys.readouterr().out


def test_a_smaller_collection_keeps_the_test_queries(
    dense: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(RUNS)
    runpy.run_path(str(RUNS / "smaller.py"), run_name="smaller")["smaller"](dense, tmp_path / "few", 6, (3, 5))
    few = open_collection(tmp_path / "few")
    assert len(set(few.pairs[:, 0])) == 6 and len(few.test_pairs) == len(dense.test_pairs)
    counts = few.negatives.counts
    assert set(counts[few.pairs[:, 0]]) == {3} and set(counts[few.test_pairs[:, 0]]) == {5}


def test_held_out_queries_are_no_training_queries(
    dense: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(RUNS)
    write = runpy.run_path(str(RUNS / "smaller.py"), run_name="smaller")["smaller"]
    few = write(dense, tmp_path / "few", 6, (3, 5), held_out=4)
    known = set(dense.queries.ids(dense.test_pairs[:, 0]))
    train, test = (set(few.queries.ids(pairs[:, 0])) for pairs in (few.pairs, few.test_pairs))
    assert len(train) == 6 and len(test) == 4 and not train & test and not known & (train | test)
