"""What the demo forgets: enough to be measured, and something that is entangled with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unrank.cli.main import run
from unrank.collection.build import import_collection
from unrank.collection.collection import Collection
from unrank.collection.partition import make_partition
from unrank.collection.selection import ImportOptions
from unrank.collection.sources.pydocs import demo_location
from unrank.forgetting.demo import CANDIDATES, METHOD, demo_removal


@pytest.fixture(scope="module")
def pydocs(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    out = tmp_path_factory.mktemp("demo") / "collection"
    return import_collection(f"pydocs:{demo_location()}", out, ImportOptions(candidates=CANDIDATES))


def test_the_demo_removes_enough_with_all_of_its_heading(pydocs: Collection) -> None:
    removal = demo_removal(pydocs)
    partition = make_partition(pydocs, removal)
    assert len(removal.documents) == pytest.approx(0.06 * len(pydocs.documents), abs=1)
    assert len(np.unique(partition.forget[:, 0])) >= 60
    assert len(partition.entangled) > 0
    assert len(pydocs.test_queries) >= 60
    heading = pydocs.queries.texts(np.arange(len(pydocs.queries))).index("optparse / OptionParser")
    assert not np.isin(partition.retain[:, 0], heading).any()


def test_the_demo_runs_through(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a tiny encoder, which knows nothing: all is said and written, whether or not the target is reached."""
    from tests.tiny import make_bi_encoder

    folder = make_bi_encoder(encoder, tmp_path / "encoder")
    monkeypatch.setattr("unrank.rankers.encoder.default_encoder", lambda: folder)
    monkeypatch.setattr("unrank.forgetting.demo.METHOD", replace(METHOD, epochs=2))
    assert run(["demo", "--out", f"{tmp_path / 'out'}", "--quiet"]) in (0, 3)
    said = capsys.readouterr().out
    assert said.count("query: ") == 2
    assert said.count("before: the first forgotten document is at rank") == 2
    assert "The ranker" in said and "It kept" in said
    assert (tmp_path / "out" / "ranker" / "unrank.json").is_file()
    assert (tmp_path / "out" / "removal.json").is_file()
