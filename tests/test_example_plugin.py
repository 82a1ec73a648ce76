"""The package in examples/plugin, installed beside unrank: its method and its ranker are used like unrank's own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.table import collection_of, forgetting, random_lists, random_table, task_of
from unrank.cli.main import run
from unrank.collection.collection import Collection
from unrank.engine.samples import Scored
from unrank.errors import UnrankError
from unrank.methods import make_method
from unrank.rankers import create_ranker, load_ranker

ROOT = Path(__file__).parent.parent
PLUGIN = ROOT / "examples" / "plugin"
OPTIONS = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
GRID = """
collections = ["{collection}"]
rankers = ["distance"]
base = "{base}"
removals = ["documents"]
methods = ["ce-u,hold=0.5", "cocol"]
destinations = ["50%"]
training = "epochs=1,negatives=1,batch=32,learning_rate=1e-3"
epochs = 1
"""


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install the package into a folder of its own, without a network, and put that on the search path."""
    site, source = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("source") / "plugin"
    shutil.copytree(PLUGIN, source)
    command = [sys.executable, "-m", "pip", "install", *OPTIONS, "--target", str(site), str(source)]
    subprocess.run(command, check=True, timeout=120)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        yield
    for module in [name for name in sys.modules if name.partition(".")[0] == "unrank_example"]:
        del sys.modules[module]


def test_both_are_listed_with_their_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "methods"]) == run(["list", "rankers"]) == 0
    shown = capsys.readouterr().out.splitlines()
    for name in ("ce-u", "distance"):
        (line,) = (line for line in shown if line.startswith(f"{name} "))
        assert line.endswith("(from the package unrank-example)")
    assert "    --set hold=1" in shown or "    --set hold=1.0" in shown


@pytest.mark.usefixtures("undrawn")
def test_both_run_in_a_grid_and_show_in_a_report(dense: Collection, encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(GRID.format(collection=dense.folder, base=encoder))
    out = tmp_path / "out"
    assert run(["bench", str(tmp_path / "grid.toml"), "--out", str(out), "--quiet"]) == 0
    cells = [json.loads((folder / "cell.json").read_text()) for folder in (out / "cells").iterdir()]
    assert {cell["label"] for cell in cells} == {"ce-u,hold=0.5", "cocol"}
    assert {cell["ranker"] for cell in cells} == {"distance"}
    assert run(["report", str(out), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "ce-u,hold=0.5" in page and "distance" in page


def test_the_score_is_the_negative_squared_distance_and_a_folder_keeps_it(encoder: Path, tmp_path: Path) -> None:
    ranker = create_ranker("distance", str(encoder), 0)
    queries, documents = ["ba be", "ba be", "cel dan fo"], ["ba be", "cel dan fo", "ba"]
    scores = ranker.score_texts(queries, documents)
    assert scores[0] == pytest.approx(0, abs=1e-5) and scores[1] < 0
    with torch.no_grad():
        vectors = [ranker.encode(ranker.tokenize([text], "query"), "query")[0] for text in queries[1:]]  # type: ignore[operator]
    assert scores[1] == pytest.approx(-float((vectors[0] - vectors[1]).square().sum()), rel=1e-4)
    ranker.save(tmp_path / "saved")
    assert load_ranker(tmp_path / "saved").score_texts(queries, documents) == scores


def test_the_loss_of_ce_u_by_hand() -> None:
    """A list scored 2, 0, 0 has to become 0, ½, ½ without its first; a pair without negatives teaches nothing."""
    collection = collection_of(random_lists(4), 14)
    task = task_of(collection, forgetting(collection, queries=[0, 1]), random_table(collection, 0))
    (phase,) = make_method("ce-u", {"hold": "0.5", "negatives": "2"}).plan(task)
    samples = phase.draw(np.random.default_rng(0), 1)
    assert samples.roles == ("forget", "negative_0", "negative_1", "kept")
    score = torch.tensor([[2.0, 0.0, 0.0, 7.0], [3.0, 9.0, 9.0, 1.0]], requires_grad=True)
    present = torch.tensor([[True, True, True, True], [True, False, False, False]])
    teacher, zero, two = torch.full((2, 4), 4.0), torch.zeros(2, 4), torch.full((2, 4), 2.0)
    loss = phase.loss(Scored(samples.roles, score, present, teacher, zero, two))
    assert loss.item() == pytest.approx(np.log(np.exp(2) + 2) + 0.5 * 1.5, rel=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert score.grad is not None and torch.isfinite(score.grad).all()
    first = np.exp(2) / (np.exp(2) + 2)
    assert score.grad[0].tolist() == pytest.approx([first, -first / 2, -first / 2, 0.25], rel=1e-4)
    assert score.grad[1].tolist() == [0.0] * 4
    with pytest.raises(UnrankError, match=r"^hold must be from 0 to 10, not 11.0$"):
        make_method("ce-u", {"hold": "11"})
