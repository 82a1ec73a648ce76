"""A trained bi-encoder, something to remove, and one run of forgetting, each made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tiny import make_large_collection
from unrank.collection.collection import Collection
from unrank.collection.inspect import pair_ids
from unrank.collection.removal import Removal
from unrank.forgetting.evaluate import evaluate
from unrank.forgetting.forget import Forgotten, forget
from unrank.forgetting.train import Trained, train
from unrank.methods.cocol import Cocol
from unrank.methods.retrain import Retrain

FAST = Cocol(learning_rate=1e-3, batch=16, min_steps=1, disjoint_per_epoch=100, place_rounds=1)
"""Steps large enough that a tiny ranker forgets within a few epochs."""

QUICK = Retrain(epochs=1, negatives=1, together=1, batch=64)
QUICK_TRAINING = Retrain(learning_rate=1e-3, epochs=6, enough=0.9, negatives=4, batch=48)


@pytest.fixture(scope="session")
def trained(encoder: Path, dense: Collection) -> Trained:
    return train(dense, "bi-encoder", str(encoder), method=QUICK_TRAINING)


@pytest.fixture(scope="session")
def removals(dense: Collection) -> dict[str, Removal]:
    """One of each kind."""
    ids = pair_ids(dense, dense.pairs)
    documents = sorted({document for _, document in ids})
    return {
        "documents": Removal(documents=documents[:8]),
        "queries": Removal(queries=[f"query{number}" for number in range(3, 9)]),
        "pairs": Removal(pairs=[(query, document) for query, document in ids[::7]]),
    }


@pytest.fixture(scope="session")
def removal(removals: dict[str, Removal]) -> Removal:
    return removals["documents"]


@pytest.fixture(scope="session")
def target(trained: Trained, dense: Collection, removal: Removal) -> float:
    """A little more than half of what the trained ranker still knows of the removal."""
    before = evaluate(trained.ranker, dense, removal).forget
    assert before is not None
    return 0.6 * before.mean


@pytest.fixture(scope="session")
def forgotten(trained: Trained, dense: Collection, removal: Removal, target: float) -> Forgotten:
    return forget(trained.ranker, dense, removal, method=FAST, target=target)


@pytest.fixture(scope="session")
def briefly(trained: Trained, dense: Collection) -> Callable[[Removal], Forgotten]:
    """Forgetting that never gets there: two epochs towards a target out of reach."""
    return lambda removal: forget(trained.ranker, dense, removal, method=replace(FAST, epochs=2), target=0.01)


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    """A collection that reserves queries."""
    return make_large_collection(tmp_path_factory.mktemp("large") / "large")


@pytest.fixture(scope="session")
def learned(large: Collection, encoder: Path) -> Trained:
    """A ranker that has learned a little of the large collection."""
    return train(large, "bi-encoder", str(encoder), method=QUICK, device="cpu")
