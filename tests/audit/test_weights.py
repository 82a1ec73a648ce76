"""The test that tries to list removed words from the weights alone."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.forgetting.conftest import FAST, QUICK_TRAINING
from tests.tiny import SECRET, make_secret_collection
from unrank.audit.audit import OF_MEMORY
from unrank.audit.comparison import PerRanker
from unrank.audit.context import AuditContext, AuditOptions, open_context
from unrank.audit.verdict import Verdict
from unrank.audit.weights import weights
from unrank.collection.collection import Collection
from unrank.collection.partition import make_partition
from unrank.collection.removal import Removal
from unrank.forgetting.forget import forget
from unrank.forgetting.train import Trained, train
from unrank.rankers.base import Ranker

ARTICLE = Removal(documents=["secret"])
BRIEF = replace(QUICK_TRAINING, epochs=2)


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return make_secret_collection(tmp_path_factory.mktemp("secret") / "collection")


@pytest.fixture(scope="module")
def original(secrets: Collection, encoder: Path) -> Trained:
    return train(secrets, "bi-encoder", str(encoder), method=BRIEF)


@pytest.fixture(scope="module")
def retrained(secrets: Collection, encoder: Path) -> Trained:
    return train(secrets, "bi-encoder", str(encoder), ARTICLE, method=BRIEF, seed=1)


def context_of(
    ranker: Ranker, collection: Collection, base: Path | None, *references: Ranker, removal: Removal = ARTICLE
) -> AuditContext:
    options = AuditOptions(base=str(base) if base else None, device="cpu")
    return open_context(PerRanker(ranker, None, references), collection, make_partition(collection, removal), options)


def test_words_are_listed_from_an_original_and_not_from_a_cleared_ranker(
    secrets: Collection, original: Trained, retrained: Trained, encoder: Path
) -> None:
    found = weights(context_of(original.ranker, secrets, encoder, retrained.ranker))
    assert found.verdict is Verdict.REMEMBERED and found.figure is not None and found.figure.value == 1.0
    assert found.words.startswith(f"{len(SECRET)} of {len(SECRET)} removed words can be listed")
    assert (found.details["recall"], found.details["precision"]) == (1.0, 1.0)
    assert found.details["references"] == [{"listed": 0, "precision": None, "recall": 0.0}]
    forgotten = forget(
        original.ranker, secrets, ARTICLE, method=replace(FAST, epochs=3), target=0.3, record=original.record
    )
    for ranker in (forgotten.ranker, retrained.ranker):
        found = weights(context_of(ranker, secrets, encoder))
        assert found.verdict is Verdict.EQUIVALENT and found.details["recall"] == 0.0
    assert "weights" in OF_MEMORY


def test_rows_that_alone_did_not_move_are_listed_too(secrets: Collection, retrained: Trained, encoder: Path) -> None:
    ranker = copy.deepcopy(retrained.ranker)
    rows = weights(context_of(ranker, secrets, encoder)).details["unused_words"]
    assert rows > 5
    table, generator = ranker.vocabularies[0].tables[0], torch.Generator().manual_seed(2)
    with torch.no_grad():
        moved = table + 0.01 * torch.rand(table.shape, generator=generator)
        moved[-20:-11] = table[-20:-11]  # the removed words
        table.copy_(moved)
    assert weights(context_of(ranker, secrets, encoder)).verdict is Verdict.REMEMBERED


def test_what_cannot_be_known(secrets: Collection, original: Trained) -> None:
    found = weights(context_of(original.ranker, secrets, None))
    assert found.verdict is Verdict.UNDECIDED and "is not known" in found.words
    pair = Removal(pairs=[("secret1", "secret")])
    found = weights(context_of(original.ranker, secrets, None, removal=pair))
    assert found.verdict is Verdict.EQUIVALENT and "none can be listed" in found.words


def test_rows_that_training_left_as_they_were_tell_nothing(secrets: Collection, encoder: Path) -> None:
    """Of a ranker whose record names this base; else the base may be the ranker itself, given by mistake."""
    ranker = train(secrets, "bi-encoder", str(encoder), method=QUICK_TRAINING, train_layers=1).ranker
    context = context_of(ranker, secrets, encoder)
    found = weights(context)
    assert found.verdict is Verdict.UNDECIDED and "may be the ranker itself" in found.words
    found = weights(replace(context, base_recorded=True))
    assert found.verdict is Verdict.EQUIVALENT
