"""Folders with adapters from elsewhere: loaded as their libraries load them, or refused in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from torch import nn

from tests.rankers.conftest import enliven
from tests.tiny import make_decoder, make_encoder
from unrank.errors import BadFile, UnrankError
from unrank.rankers import create_ranker, load_ranker
from unrank.rankers.base import Ranker

TEXTS = ["bana cela", "rir tosa", "du fe"], ["kan gel lir", "sa bo", "nan pel hir mos"]
CONFIG: dict[str, Any] = {"r": 4, "lora_alpha": 16, "target_modules": ["query", "value", "dense"]}


def stir(model: nn.Module) -> None:
    """Give the adapter of a model something to do."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                weight.add_(0.2 * torch.randn(weight.shape, generator=generator))


@pytest.fixture(scope="module")
def without_weights(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """A model of sentence-transformers that was saved with an adapter on it: its encoder lies elsewhere."""
    folder = tmp_path_factory.mktemp("adapters") / "model"
    ranker: Any = enliven(create_ranker("bi-encoder", str(encoder), 0))
    base = folder.parent / "base"
    ranker.model[0].model.save_pretrained(base)
    shutil.copy(encoder / "tokenizer.json", base)
    ranker.model[0].model.name_or_path = str(base)
    ranker.model.add_adapter(LoraConfig(**CONFIG))
    stir(ranker.model)
    ranker.fast = False
    expected = ranker.library_scores(*TEXTS)
    ranker.model.save_pretrained(str(folder), create_model_card=False)
    return folder, expected


@pytest.fixture
def alone(tmp_path: Path, encoder: Path) -> tuple[Path, list[float]]:
    """An adapter alone, with a head of its own, for a cross-encoder in another folder."""
    ranker: Any = enliven(create_ranker("cross-encoder", str(encoder), 0))
    ranker.save(tmp_path / "ranker")
    model = CrossEncoder(str(tmp_path / "ranker"), device="cpu")
    wrapped = get_peft_model(model[0].model, LoraConfig(**CONFIG, use_rslora=True, modules_to_save=["classifier"]))
    stir(wrapped)
    expected = [float(score) for score in model.predict([*zip(*TEXTS, strict=True)], activation_fn=nn.Identity())]
    wrapped.save_pretrained(str(tmp_path / "adapter"))
    described = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert described["base_model_name_or_path"] == str(tmp_path / "ranker")
    return tmp_path / "adapter", expected


def given(ranker: Ranker) -> list[float]:
    return ranker.score_texts(*TEXTS)


def assert_alike(found: Any, expected: Any, rtol: float = 1e-4) -> None:
    """Compare scores; one that is near zero is a difference of large numbers, which rounding moves as far as those."""
    np.testing.assert_allclose(found, expected, rtol, atol=rtol * np.abs(np.asarray(expected)).max())


def change(folder: Path, **values: object) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_model_without_the_weights_of_its_encoder(without_weights: tuple[Path, list[float]], tmp_path: Path) -> None:
    folder, expected = without_weights
    loaded = load_ranker(folder)
    assert_alike(given(loaded), expected)
    theirs = SentenceTransformer(str(folder), device="cpu")
    vectors = theirs.encode(TEXTS[0]), theirs.encode(TEXTS[1])
    assert_alike(given(loaded), theirs.similarity_pairwise(*vectors))
    loaded.save(tmp_path / "merged")
    assert not [*(tmp_path / "merged").glob("adapter*")]
    assert_alike(given(load_ranker(tmp_path / "merged")), expected)


def test_a_decoder_that_was_saved_with_an_adapter_on_it(tmp_path: Path) -> None:
    ranker: Any = create_ranker("decoder", str(make_decoder(tmp_path / "base")), 0)
    ranker.model.add_adapter(LoraConfig(r=4, target_modules=["q_proj", "down_proj"]))
    stir(ranker.model)
    ranker.fast = False
    expected = ranker.library_scores(*TEXTS)
    ranker.model.save_pretrained(str(tmp_path / "model"), create_model_card=False)
    assert not (tmp_path / "model" / "config.json").exists()
    loaded = load_ranker(tmp_path / "model")
    assert loaded.kind == "decoder"
    assert_alike(given(loaded), expected, 1e-3)


def test_an_adapter_alone_for_a_ranker_elsewhere(alone: tuple[Path, list[float]]) -> None:
    folder, expected = alone
    loaded = load_ranker(folder)
    assert loaded.kind == "cross-encoder" and loaded.source == str(folder)
    assert_alike(given(loaded), expected)


def test_a_whole_model_with_an_adapter_beside_its_weights(alone: tuple[Path, list[float]]) -> None:
    folder, expected = alone
    for path in (folder.parent / "ranker").iterdir():
        shutil.copy(path, folder)
    change(folder, base_model_name_or_path="somebody/else")
    assert_alike(given(load_ranker(folder)), expected)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"peft_type": "IA3"}, "an adapter of type 'IA3'; unrank reads LORA alone"),
        (
            {"megatron_config": {"a": 1}, "megatron_core": "os"},
            "asks for 'megatron_config', which unrank does not pass",
        ),
        ({"layer_replication": [[0, 2], [0, 2]]}, "asks for 'layer_replication'"),
        ({"r": 2**40}, "whose rank is not a whole number from 1 to 4,096"),
        ({"rank_pattern": {"query": 0}}, "whose rank is not"),
        ({"rank_pattern": [1]}, "whose rank is not"),
        ({"lora_alpha": "16"}, "whose lora_alpha, or a part of its alpha_pattern, is not a number"),
        ({"lora_alpha": None}, "whose lora_alpha, or a part of its alpha_pattern, is not a number"),
        ({"lora_alpha": float("nan")}, "whose lora_alpha, or a part of its alpha_pattern, is not a number"),
        ({"alpha_pattern": {"query": "16"}}, "whose lora_alpha, or a part of its alpha_pattern, is not a number"),
        ({"alpha_pattern": [16]}, "whose lora_alpha, or a part of its alpha_pattern, is not a number"),
        ({"base_model_name_or_path": None}, "expected a JSON object that names its base_model_name_or_path"),
        ({"base_model_name_or_path": "/nowhere/at/all"}, "/nowhere/at/all: no such folder"),
    ],
)
def test_a_description_that_asks_for_more_is_refused(
    values: dict[str, object], line: str, without_weights: tuple[Path, list[float]], tmp_path: Path
) -> None:
    folder = shutil.copytree(without_weights[0], tmp_path / "model")
    change(folder, **values)
    with pytest.raises(BadFile, match=line):
        load_ranker(folder)


def test_pickled_weights_of_an_adapter_are_never_opened(
    without_weights: tuple[Path, list[float]], tmp_path: Path
) -> None:
    folder = shutil.copytree(without_weights[0], tmp_path / "model")
    weights = folder / "adapter_model.safetensors"
    (folder / "adapter_model.bin").write_bytes(b"\x80\x04")
    load_ranker(folder)  # as peft does, it opens the other file
    weights.unlink()
    with pytest.raises(BadFile, match=r"holds no weights of its adapter \(adapter_model.safetensors\)"):
        load_ranker(folder)
    shutil.copy(folder / "1_Pooling" / "config.json", weights)
    with pytest.raises(BadFile, match=r"adapter_model.safetensors is damaged"):
        load_ranker(folder)


def test_an_adapter_in_a_part_of_a_model_is_refused(without_weights: tuple[Path, list[float]], tmp_path: Path) -> None:
    folder = shutil.copytree(without_weights[0], tmp_path / "model")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (folder / name).rename(folder / "1_Pooling" / name)
    with pytest.raises(BadFile, match="an adapter of a part of a model"):
        load_ranker(folder)


def test_an_adapter_for_another_model_is_refused_with_what_differs(
    alone: tuple[Path, list[float]], tmp_path: Path
) -> None:
    folder, _ = alone
    weights = load_file(folder / "adapter_model.safetensors")
    wide = {name: weight.repeat(1, 2) if "lora_A" in name else weight for name, weight in weights.items()}
    save_file(wide, folder / "adapter_model.safetensors")
    with pytest.raises(BadFile, match=r"for another model .* for .*ranker, and changes .*, which is \[.*\] there"):
        load_ranker(folder)
    renamed = {name.replace("bert.encoder", "model.layers"): weight for name, weight in weights.items()}
    save_file(renamed, folder / "adapter_model.safetensors")
    with pytest.raises(BadFile, match=r"for another model .* model.layers.*, which is not there"):
        load_ranker(folder)
    grown = {name: torch.cat([weight] * (2 if "classifier.weight" in name else 1)) for name, weight in weights.items()}
    save_file(grown, folder / "adapter_model.safetensors")
    with pytest.raises(BadFile, match=r"classifier.weight, which is \[1, 32\] there, by a weight of \[2, 32\]"):
        load_ranker(folder)


def test_a_cross_encoder_whose_base_has_no_head_is_refused(encoder: Path, tmp_path: Path) -> None:
    base = make_encoder(tmp_path / "base")
    ranker: Any = create_ranker("cross-encoder", str(base), 0)
    ranker.model.add_adapter(LoraConfig(r=2, target_modules=["query"]))
    ranker.model.save_pretrained(str(tmp_path / "model"), create_model_card=False)
    with pytest.raises(BadFile, match="an adapter for base, which has no layer that gives a score: BertModel"):
        load_ranker(tmp_path / "model")


def test_without_peft_one_line_says_what_to_install(
    alone: tuple[Path, list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unrank.rankers.adapter_folder.find_spec", lambda _: None)
    with pytest.raises(UnrankError, match=r"adapters need the package peft: pip install 'unrank\[peft\]'"):
        load_ranker(alone[0])
