from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from hypothesis import settings

from tests.tiny import GOLDEN, make_collection, make_dense_collection, make_encoder
from unrank.collection.collection import Collection

settings.register_profile("here", deadline=None)  # how long an example takes is up to what else the machine does
settings.load_profile("here")
torch.set_num_threads(1)  # models this small only lose by sharing their work


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state directory of the tests, in place of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("encoder") / "tiny")


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return make_collection(tmp_path_factory.mktemp("golden") / "golden", GOLDEN)


@pytest.fixture(scope="session")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return make_dense_collection(tmp_path_factory.mktemp("dense") / "dense")
