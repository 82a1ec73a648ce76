"""Equal bits where they are asked for, one line where they cannot be had, and the old state afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file

from tests.tiny import make_word_vectors
from unrank.collection.collection import Collection
from unrank.engine.runtime import WORKSPACE, deterministic
from unrank.errors import UnrankError
from unrank.forgetting.train import train
from unrank.methods.retrain import Retrain
from unrank.rankers import RANKERS

SHORT = Retrain(epochs=1, batch=16)


def test_the_switch_is_set_and_put_back() -> None:
    with deterministic():
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ[WORKSPACE]
    assert not torch.are_deterministic_algorithms_enabled()
    with deterministic(False):
        assert not torch.are_deterministic_algorithms_enabled()


def test_what_cannot_be_had_is_one_line() -> None:
    with pytest.raises(UnrankError, match="--deterministic is not possible here: scatter does not"), deterministic():
        raise RuntimeError("scatter does not have a deterministic implementation")
    with pytest.raises(RuntimeError, match="out of memory"), deterministic():
        raise RuntimeError("out of memory")
    assert not torch.are_deterministic_algorithms_enabled()


SLOW = ("colbert", "colbert-dot", "cross-encoder", "decoder", "duet", "parade")
"""Kinds that are trained by the operations of the bi-encoder and the match-pyramid."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] if kind in SLOW else []) for kind in RANKERS]
)
def test_every_ranker_trains_to_the_same_bits(
    kind: str, dense: Collection, encoder: Path, language_model: Path, tmp_path: Path
) -> None:
    base = make_word_vectors(tmp_path / "words.txt") if kind in ("duet", "match-pyramid") else encoder
    base = language_model if kind == "decoder" else base
    for name in ("first", "second"):
        with deterministic():
            train(dense, kind, str(base), method=SHORT, device="cpu").save(tmp_path / name)
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("first", "second")]
    assert weights[0].keys() == weights[1].keys()
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", ["cross-encoder", "bi-encoder", "colbert", "parade"])
def test_a_gpu_gives_the_same_bits(kind: str, dense: Collection, encoder: Path) -> None:
    with deterministic():
        runs = [train(dense, kind, str(encoder), method=SHORT, device="cuda").ranker.state_dict() for _ in range(2)]
    assert all(torch.equal(weight, runs[1][name]) for name, weight in runs[0].items())
