"""What the demo forgets: enough to be measured, and something that is entangled with it."""

from __future__ import annotations

from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from tests.tiny import make_bi_encoder
from unrank.cli.main import run
from unrank.collection.collection import open_collection
from unrank.collection.partition import make_partition
from unrank.forgetting.demo import METHOD, demo_removal


@dataclass(frozen=True)
class Demo:
    """One run of the command: its exit status, its output and its folder."""

    status: int
    said: str
    folder: Path


@pytest.fixture(scope="module")
def demo(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The demo with a tiny encoder, which knows nothing."""
    folder = tmp_path_factory.mktemp("demo")
    ranker = make_bi_encoder(encoder, folder / "encoder")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as said:
        patch.setattr("unrank.rankers.encoder.default_encoder", lambda: ranker)
        patch.setattr("unrank.forgetting.demo.METHOD", replace(METHOD, epochs=2))
        status = run(["demo", "--out", f"{folder / 'out'}", "--quiet"])
    return Demo(status, said.getvalue(), folder / "out")


@pytest.mark.slow
def test_the_demo_removes_enough_with_all_of_its_heading(demo: Demo) -> None:
    pydocs = open_collection(demo.folder / "collection")
    removal = demo_removal(pydocs)
    partition = make_partition(pydocs, removal)
    assert len(removal.documents) == pytest.approx(0.06 * len(pydocs.documents), abs=1)
    assert len(np.unique(partition.forget[:, 0])) >= 60
    assert len(partition.entangled) > 0
    assert len(pydocs.test_queries) >= 60
    heading = pydocs.queries.texts(np.arange(len(pydocs.queries))).index("optparse / OptionParser")
    assert not np.isin(partition.retain[:, 0], heading).any()


def test_the_demo_runs_through(demo: Demo) -> None:
    """Everything is said and written, whether or not the target is reached."""
    assert demo.status in (0, 3)
    assert demo.said.count("query: ") == 2
    assert demo.said.count("before: the first forgotten document is at rank") == 2
    assert "The ranker" in demo.said and "Share of the MRR kept: " in demo.said
    assert (demo.folder / "ranker" / "unrank.json").is_file()
    assert (demo.folder / "removal.json").is_file()
