"""Rankers made once: one of each kind, with weights large enough that different texts score differently."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.tiny import make_word_vectors
from unrank.rankers import RANKERS, create_ranker
from unrank.rankers.base import Ranker
from unrank.rankers.word_ranker import WordRanker

WORD_KINDS = [kind for kind, entry in RANKERS.items() if issubclass(entry.ranker, WordRanker)]
ENCODER_KINDS = [kind for kind in RANKERS if kind not in (*WORD_KINDS, "decoder")]


def enliven(ranker: Ranker, seed: int = 1) -> Ranker:
    """Random weights as they are drawn for training score all texts alike; noise makes the scores part."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in ranker.parameters():
            if weight.dim() > 1:
                weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
    return ranker


@pytest.fixture(autouse=True)
def without_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library writes no model cards: to make one takes longer than to save a tiny model."""
    monkeypatch.setattr("sentence_transformers.base.model.BaseModel._create_model_card", lambda *_: None)


@pytest.fixture(scope="session", params=list(RANKERS))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def bases(encoder: Path, language_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a ranker of each kind starts from."""
    words = make_word_vectors(tmp_path_factory.mktemp("words") / "tiny.txt")
    given = dict.fromkeys(WORD_KINDS, words) | {"decoder": language_model}
    return {kind: str(given.get(kind, encoder)) for kind in RANKERS}


@pytest.fixture(scope="session")
def rankers(bases: dict[str, str]) -> dict[str, Ranker]:
    """One ranker of each kind, to be left as it is."""
    return {kind: enliven(create_ranker(kind, bases[kind], seed=0)) for kind in RANKERS}


@pytest.fixture(scope="session")
def folders(rankers: dict[str, Ranker], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same rankers, saved."""
    folders = {kind: tmp_path_factory.mktemp("rankers") / kind for kind in rankers}
    for kind, ranker in rankers.items():
        ranker.save(folders[kind])
    return folders


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder is first loaded in a process of its own: tests of scores learn nothing from it."""
    monkeypatch.setattr("unrank.rankers.trial.in_limits", lambda limits, attempt: None)


@pytest.fixture(scope="session")
def ranker(kind: str, rankers: dict[str, Ranker]) -> Ranker:
    return rankers[kind]
