"""Rows of the vocabulary that only removed texts touch: which they are, and what they are set to."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.forgetting.conftest import FAST, QUICK_TRAINING
from tests.tiny import SECRET, SPECIAL, WORDS, make_secret_collection, make_word_vectors
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.errors import UnrankError
from unrank.forgetting import vocabulary
from unrank.forgetting.forget import forget
from unrank.forgetting.previous_requests import hashed
from unrank.forgetting.train import Trained, train
from unrank.forgetting.validation import find_base
from unrank.forgetting.vocabulary import (
    CLEARED,
    NEVER_SEEN,
    NOTHING,
    OWN_WEIGHTS,
    UNKNOWN_BASE,
    as_untouched,
    find_clearing,
)
from unrank.forgetting.workspace import Workspace
from unrank.methods.neggrad import NegGrad
from unrank.methods.retrain import Retrain
from unrank.methods.ssd import SelectiveDampening
from unrank.rankers import create_ranker
from unrank.rankers.base import Ranker
from unrank.record import PreviousRequest, Record

ARTICLE = Removal(documents=["secret"])
SECRET_ROWS = [len(SPECIAL) + WORDS.index(word) for word in SECRET]
ROWS = np.array([2, 5])


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    return make_secret_collection(tmp_path_factory.mktemp("secret") / "collection")


@pytest.fixture(scope="module")
def original(secrets: Collection, encoder: Path) -> Trained:
    return train(secrets, "bi-encoder", str(encoder), method=replace(QUICK_TRAINING, epochs=2))


def table_of(ranker: Ranker) -> torch.Tensor:
    return ranker.vocabularies[0].tables[0]


def cleared_words(
    ranker: Ranker, collection: Collection, removal: Removal, base: Path, record: Record | None = None
) -> set[str]:
    workspace = Workspace.for_removal(ranker, collection, removal, record, device="cpu")
    (rows,) = find_clearing(ranker, workspace, str(base)).rows
    return {[*SPECIAL, *WORDS][row] for row in rows.tolist()}


@pytest.mark.parametrize("small", [0, vocabulary.SMALL])
@pytest.mark.parametrize("kind", ["bi-encoder", "cross-encoder", "colbert", "parade", "splade"])
def test_rows_that_only_removed_texts_touch(
    secrets: Collection, encoder: Path, kind: str, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocabulary, "SMALL", small)
    monkeypatch.setattr(vocabulary, "FIRST", 5)
    monkeypatch.setattr(vocabulary, "AT_ONCE", 7)
    ranker = create_ranker(kind, str(encoder), 0)
    assert cleared_words(ranker, secrets, ARTICLE, encoder) == {*SECRET}
    one = Removal(pairs=[("secret1", "secret")])
    assert cleared_words(ranker, secrets, one, encoder) == set()  # its document is still a candidate of others


def test_what_was_removed_before_is_not_kept(secrets: Collection, original: Trained, encoder: Path) -> None:
    earlier = PreviousRequest(**vars(hashed(ARTICLE)), by="cocol")
    record, later = replace(original.record, removed_before=(earlier,)), Removal(documents=["doc1"])
    assert cleared_words(original.ranker, secrets, later, encoder, record) >= {*SECRET}
    assert not cleared_words(original.ranker, secrets, later, encoder) & {*SECRET}


def test_only_queries_move_the_importance_of_a_word(secrets: Collection, tmp_path: Path) -> None:
    base = str(make_word_vectors(tmp_path / "vectors.txt"))
    ranker = create_ranker("duet", base, 0)
    workspace = Workspace.for_removal(ranker, secrets, ARTICLE, device="cpu")
    words = {word: row for row, word in enumerate(WORDS, 1)}
    used = [words[word] for word in (*SECRET[:8], *WORDS[:50])]
    with torch.no_grad():
        table_of(ranker)[used] += 0.25
    clearing = find_clearing(ranker, workspace, None)  # its base need not be known
    assert clearing.rows[0].tolist() == sorted(words[word] for word in SECRET[:8]) and clearing.moved == 8
    clearing.put(ranker)
    rows = clearing.rows[0]
    assert torch.equal(table_of(ranker)[rows], table_of(create_ranker("duet", base, 0))[rows])


@pytest.mark.parametrize(
    "method", [replace(FAST, epochs=3), SelectiveDampening(), NegGrad(epochs=2)], ids=lambda method: method.name
)
def test_no_method_moves_a_row_that_is_held(secrets: Collection, original: Trained, encoder: Path, method: Any) -> None:
    base, before = table_of(create_ranker("bi-encoder", str(encoder), 0)), table_of(original.ranker).clone()
    result = forget(original.ranker, secrets, ARTICLE, method=method, target=0.3, record=original.record)
    assert torch.equal(table_of(result.ranker)[SECRET_ROWS], base[SECRET_ROWS])
    assert not (before[SECRET_ROWS] == base[SECRET_ROWS]).all(1).any()
    assert torch.equal(table_of(original.ranker), before)  # the original is left alone


def test_retraining_never_moves_them(secrets: Collection, original: Trained, encoder: Path) -> None:
    result = forget(original.ranker, secrets, ARTICLE, method=Retrain(epochs=1), record=original.record)
    base = table_of(create_ranker("bi-encoder", str(encoder), 0))
    assert torch.equal(table_of(result.ranker)[SECRET_ROWS], base[SECRET_ROWS])
    assert result.record.cleared is not None
    assert (result.record.cleared.how, result.record.rows_left) == (NEVER_SEEN, 0)


def test_without_a_base_they_are_left(secrets: Collection, original: Trained) -> None:
    brief = replace(FAST, epochs=1)
    result = forget(original.ranker, secrets, ARTICLE, method=brief, target=0.3)
    assert result.record.cleared is not None
    assert (result.record.cleared.how, result.record.rows_left) == (UNKNOWN_BASE, len(SECRET))
    pair = Removal(pairs=[("secret1", "secret")])
    other = forget(original.ranker, secrets, pair, method=brief, target=0.9)
    assert other.record.cleared is not None and other.record.cleared.how == NOTHING


def test_rows_that_training_left_as_they_were_need_no_clearing(secrets: Collection, encoder: Path) -> None:
    """A ranker whose last layer alone was trained has the rows of its base, which its record names by its hash."""
    known = train(secrets, "bi-encoder", str(encoder), method=replace(QUICK_TRAINING, epochs=2), train_layers=1)
    result = forget(known.ranker, secrets, ARTICLE, method=replace(FAST, epochs=1), target=0.3, record=known.record)
    assert result.record.cleared is not None
    assert (result.record.cleared.how, result.record.rows_left) == (CLEARED, 0)
    workspace = Workspace.for_removal(known.ranker, secrets, ARTICLE, known.record, device="cpu")
    assert find_clearing(known.ranker, workspace, str(encoder)).how == OWN_WEIGHTS
    assert find_clearing(known.ranker, workspace, str(encoder), recorded=True).moved == 0


def test_the_base_is_found_again_until_it_changes(
    secrets: Collection, original: Trained, encoder: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "base"
    shutil.copytree(encoder, copied)
    (copied / "added.txt").write_text("another base\n")
    known = train(secrets, "bi-encoder", str(copied), method=Retrain(epochs=1)).record
    for method in (FAST, Retrain()):
        assert find_base(original.ranker, method, None, known).place == str(copied.resolve())
    (copied / "added.txt").write_text("changed\n")
    found = find_base(original.ranker, FAST, None, known)
    assert (found.place, found.name, found.digest) == (None, "base", known.base_digest)
    assert found.warning is not None and f"at {copied.resolve()}, which is gone or has changed" in found.warning
    with pytest.raises(UnrankError, match=r"retrain needs the model .* gone or has changed"):
        find_base(original.ranker, Retrain(), None, known)


@pytest.fixture
def base() -> torch.Tensor:
    return torch.randn(400, 16, generator=torch.Generator().manual_seed(3))


def moved(base: torch.Tensor, share: float) -> torch.Tensor:
    """A table of which a share of the rows moved, those at ROWS among them."""
    generator = torch.Generator().manual_seed(5)
    which = torch.rand(len(base), 1, generator=generator) < share
    which[ROWS] = True
    return base + 0.1 * torch.randn(base.shape, generator=generator) * which


def test_a_row_is_as_those_that_no_text_touches(base: torch.Tensor) -> None:
    found = as_untouched(moved(base, 0.5), base, ROWS)
    assert found is not None and torch.equal(found, base[ROWS])
    found = as_untouched(moved(base, 0.5).half().float(), base, ROWS)
    assert found is not None and torch.equal(found, base.half().float()[ROWS])
    decayed = as_untouched(0.97 * moved(base, 0.5), base, ROWS)
    assert decayed is not None and torch.allclose(decayed, 0.97 * base[ROWS], atol=1e-5)


def test_a_row_does_not_stand_out_if_all_have_moved(base: torch.Tensor) -> None:
    table = moved(base, 1.1)
    found = as_untouched(table, base, ROWS)
    assert found is not None
    distance, others = (found - base[ROWS]).norm(dim=1), (table - base).norm(dim=1)
    assert (distance > others.min() / 2).all() and (distance < others.max()).all()
    assert not (found == base[ROWS]).any() and not (found == table[ROWS]).any()


def test_another_base_does_not_fit(base: torch.Tensor) -> None:
    assert as_untouched(moved(base, 0.5), base.flip(0), ROWS) is None
    assert as_untouched(base, base[:-1], ROWS) is None
