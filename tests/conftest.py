"""Fixtures of all tests. This file imports no torch: the process that only hands tests out reads it too, and waits."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from unrank.collection.collection import Collection

settings.register_profile("here", deadline=None, max_examples=40)  # an example takes as long as the machine lets it
settings.load_profile("here")


def pytest_collection_finish() -> None:
    """Leave all that was imported and collected out of the searches for garbage: there is too much of it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state directory of the tests, in place of the user's."""
    from unrank.owner import remember

    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(folder))
        remember("told", "places")  # what is said once was said
        yield folder


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Models this small only lose by sharing their work."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def without_fsync() -> Iterator[None]:
    """Leave written files to the operating system: no test cuts the power, and each of them would wait for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def in_one_step() -> Iterator[None]:
    """Time an epoch of training and learn again in an audit in one step, and resample less: more would take long."""
    from unrank.audit.context import Thoroughness

    with pytest.MonkeyPatch.context() as patch:
        for module in ("unrank.desk.run_context", "unrank.audit.context"):
            patch.setattr(f"{module}.Thoroughness", partial(Thoroughness, relearning_steps=(1,)))
        patch.setattr("unrank.evaluation.bootstrap.RESAMPLES", 200)
        patch.setattr("unrank.forgetting.train.TIMED_STEPS", 1)
        patch.setattr("unrank.forgetting.train.WARM_UP", {"cpu": 0, "cuda": 0})
        yield


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    from transformers import PreTrainedConfig

    from tests.tiny import make_encoder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreTrainedConfig, "__repr__", object.__repr__)  # for a log that nobody reads: a tenth of a load
        yield make_encoder(tmp_path_factory.mktemp("encoder") / "tiny")


@pytest.fixture(scope="session")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.tiny import make_decoder

    return make_decoder(tmp_path_factory.mktemp("decoder") / "tiny")


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    from tests.tiny import GOLDEN, make_collection

    return make_collection(tmp_path_factory.mktemp("golden") / "golden", GOLDEN)


@pytest.fixture(scope="session")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    from tests.tiny import make_dense_collection

    return make_dense_collection(tmp_path_factory.mktemp("dense") / "dense")


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The charts of pages are empty: to draw those of one page takes a second, and some tests read its words alone."""
    monkeypatch.setattr("unrank.report.drawing.Drawing.shapes", "")
