"""Moving only the last layers of an encoder."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path

import pytest

from tests.rankers.conftest import ENCODER_KINDS
from unrank.errors import UnrankError
from unrank.rankers import create_ranker
from unrank.rankers.base import Ranker
from unrank.rankers.fast import cpu
from unrank.rankers.layers import sharing_frozen_states, train_layers_of

UNUSED = {"model.0.model.pooler.dense.weight", "model.0.model.pooler.dense.bias"}


@pytest.mark.parametrize("kind", ENCODER_KINDS)
def test_only_the_last_layer_and_what_follows_it_moves(kind: str, encoder: Path) -> None:
    ranker = create_ranker(kind, str(encoder), 0)
    train_layers_of(ranker, 1)
    moving = {name for name, weight in ranker.named_parameters() if weight.requires_grad}
    assert any("layer.1." in name for name in moving)
    assert not any("layer.0." in name or "embedding" in name for name in moving)


def test_of_a_decoder_too(language_model: Path) -> None:
    ranker = create_ranker("decoder", str(language_model), 0)
    train_layers_of(ranker, 1)
    moving = {name for name, weight in ranker.named_parameters() if weight.requires_grad}
    assert any("layers.1." in name for name in moving)
    assert not any("layers.0." in name or "embed" in name for name in moving)


def test_no_more_layers_than_there_are(encoder: Path) -> None:
    with pytest.raises(UnrankError, match="the encoder has 2 layers, so 3 of them cannot be trained"):
        train_layers_of(create_ranker("bi-encoder", str(encoder), 0), 3)


def test_a_frozen_start_changes_no_score_and_is_computed_once(rankers: dict[str, Ranker]) -> None:
    original = rankers["bi-encoder"]
    student = copy.deepcopy(original)
    train_layers_of(student, 1)
    texts = ["ba ce di fo gu", "", "han kel", "can del fir gos " * 20]
    expected = score(original, texts)
    ran: list[str] = []
    for name, ranker in (("original", original), ("student", student)):
        layer = next(module for module in ranker.modules() if type(module).__name__ == "BertLayer")
        layer.register_forward_hook(partial(note, ran, name))
    with sharing_frozen_states(original, student):
        assert score(original, texts) == pytest.approx(expected, rel=1e-6)
        assert score(student, texts) == pytest.approx(expected, rel=1e-6)
        assert set(ran) == {"original"}
        loss = student(student.tokenize(texts, "query"), student.tokenize(texts, "document")).sum()
        loss.backward()
        moved = {name for name, weight in student.named_parameters() if weight.grad is not None}
        assert moved == {name for name, weight in student.named_parameters() if weight.requires_grad} - UNUSED
        assert set(ran) == {"original"}
    ran.clear()
    assert score(student, texts) == pytest.approx(expected, rel=1e-6)
    assert "student" in ran


def test_texts_beyond_the_room_are_computed_each_time(
    rankers: dict[str, Ranker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "CACHE_BYTES", 3000)
    original = rankers["bi-encoder"]
    student = copy.deepcopy(original)
    train_layers_of(student, 1)
    texts = ["ba ce", "can del fir gos " * 20]
    expected = score(original, texts)
    with sharing_frozen_states(original, student):
        for _ in range(2):
            assert score(student, texts) == pytest.approx(expected, rel=1e-6)


def note(ran: list[str], name: str, *_: object) -> None:
    ran.append(name)


def score(ranker: Ranker, texts: list[str]) -> list[float]:
    return ranker.score_texts(texts, texts[1:] + texts[:1])
