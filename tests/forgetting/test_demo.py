"""The demo: what it forgets, what it prints, and what it writes."""

from __future__ import annotations

import json
import re
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from unrank.cli.main import run
from unrank.collection.collection import open_collection
from unrank.collection.partition import make_partition, reserved_queries
from unrank.forgetting.demo import FULL, TINY, demo_removal

ARTICLES = ("argparse", "calendar", "configparser", "logging", "optparse", "pdb", "shlex", "zipfile")
"""Fewer than the demo has, but enough for queries to be reserved."""


@dataclass(frozen=True)
class Demo:
    """One run of the command: its exit status, its output and its folder."""

    status: int
    said: str
    folder: Path


@pytest.fixture(scope="module")
def demo(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The demo with a tiny encoder, which knows nothing, briefly trained."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as said:
        patch.setattr("unrank.rankers.encoder.default_encoder", lambda: encoder)
        training, method = replace(FULL.training, epochs=1), replace(FULL.method, epochs=1)
        patch.setattr("unrank.forgetting.demo.FULL", replace(FULL, articles=ARTICLES, training=training, method=method))
        status = run(["demo", "--out", f"{folder / 'out'}", "--device", "cpu"])
    return Demo(status, said.getvalue(), folder / "out")


def test_the_demo_removes_queries_that_the_ranker_was_trained_on(demo: Demo) -> None:
    pydocs = open_collection(demo.folder / "collection")
    removal = demo_removal(pydocs)
    partition = make_partition(pydocs, removal, reserve=True)
    assert len(removal.queries) == pytest.approx(0.07 * len(pydocs.training_queries), abs=5)
    assert not np.isin(partition.forget[:, 0], reserved_queries(pydocs)).any()
    assert len(partition.entangled) > 0


def test_the_demo_runs_through(demo: Demo) -> None:
    """Everything is printed and written, whether or not the pairs come to their places."""
    assert demo.status == 0
    assert ("ends such a run with exit code 3" in demo.said) == ("Not forgotten" in demo.said)
    assert "on its training queries" in demo.said
    assert f"{demo.folder / 'report.html'}\n" in demo.said and "unrank desk serve --demo\n" in demo.said
    assert "Its forget MRR went from" in demo.said and "with every pair at its place it is" in demo.said
    for name in ("forget", "entangled", "disjoint", "test"):
        assert re.search(rf"^ *{name} +\d\.\d{{3}} +\d\.\d{{3}}", demo.said, flags=re.MULTILINE)
    for name in ("original/unrank.json", "ranker/unrank.json", "removal.json", "report.html"):
        assert (demo.folder / name).is_file()


def test_the_demo_trains_the_last_layer_alone_and_forgets_to_places(demo: Demo) -> None:
    original, ranker = (json.loads((demo.folder / name / "unrank.json").read_text()) for name in ("original", "ranker"))
    assert original["settings"]["train_layers"] == ranker["settings"]["train_layers"] == 1
    assert original["reserved"] > 0 and ranker["target_name"] == "places"
    assert (ranker["places"]["proxies"], ranker["places"]["source"]) == (1, "made")
    assert ranker["places"]["calibrated_on"] > 0


def test_the_examples_of_the_demo_are_what_they_are_shown_for(demo: Demo) -> None:
    shown = re.findall(r"rank (\d+) of (\d+) before, (\d+) now; its place: (\d+)\n  This one (.*)", demo.said)
    assert 1 <= len(shown) <= 3
    for *ranks, why in shown:
        before, entries, after, place = map(int, ranks)
        assert min(before, after, place) >= 1 and max(before, after, place) <= entries
        assert {"fell": after > before, "may": before == after == place == 1, "is": after < place}[why.split()[0]]


def test_the_page_of_the_demo_shows_the_place_of_every_forget_query(demo: Demo) -> None:
    page = (demo.folder / "report.html").read_text()
    found = re.search(r'id="queries-data">(.*?)</script>', page)
    assert found is not None and "forgotten: place" in page
    rows = [row for row in json.loads(found[1])["queries"] if row[3][0]]
    assert len(rows) == len(json.loads((demo.folder / "removal.json").read_text())["queries"])
    assert all(len(row[3]) == 5 and row[3][2] >= 1 for row in rows)


@pytest.mark.slow
def test_the_tiny_demo_needs_no_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its encoder is made on the spot, and what it prints says that it is tiny."""
    monkeypatch.setattr("unrank.rankers.encoder.DEFAULT_PACKAGE", "not_installed")
    training, method = replace(TINY.training, epochs=1), replace(TINY.method, place_epochs=1)
    small = replace(TINY, articles=("argparse", "calendar", "shlex"), training=training, method=method)
    monkeypatch.setattr("unrank.forgetting.demo.TINY", small)
    with redirect_stdout(StringIO()) as said:
        assert run(["demo", "--tiny", "--out", f"{tmp_path / 'out'}", "--device", "cpu"]) == 0
    assert "random weights, made now" in said.getvalue() and "This was the tiny demo" in said.getvalue()
    config = json.loads((tmp_path / "out" / "encoder" / "config.json").read_text())
    assert (config["num_hidden_layers"], config["hidden_size"]) == (2, 32)
    assert (tmp_path / "out" / "ranker" / "model.safetensors").is_file()
