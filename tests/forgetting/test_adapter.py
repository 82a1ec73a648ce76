"""Forgetting with an adapter: it alone is trained, and it is written apart or merged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer

from tests.forgetting.conftest import FAST
from tests.forgetting.test_resume import assert_same, stopped_and_resumed, strides_of
from tests.rankers.conftest import enliven
from tests.tiny import make_decoder
from unrank.collection.collection import Collection
from unrank.collection.removal import Removal
from unrank.disk import read_json
from unrank.engine.checkpoint import digest
from unrank.errors import BadFile, UnrankError
from unrank.forgetting.evaluate import evaluate
from unrank.forgetting.forget import Forgotten, forget
from unrank.forgetting.options import ADAPTER_RATE, ForgetOptions
from unrank.forgetting.outcome import ForgetState
from unrank.rankers import create_ranker, load_ranker
from unrank.rankers.base import Ranker
from unrank.record import Record

ADAPTED: dict[str, Any] = {"method": replace(FAST, learning_rate=4e-3, epochs=6), "adapt": "lora:4", "target": "80%"}
TEXTS = ["bana cela", "rir tosa", "du fe"], ["kan gel lir", "sa bo", "nan pel hir mos"]


def library(ranker: Ranker) -> Any:
    """Return the model of sentence-transformers that a ranker is made of."""
    return ranker.model


@pytest.fixture(scope="module")
def saved(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a ranker whose layers change much of what they read: an adapter changes nothing else."""
    folder = tmp_path_factory.mktemp("adapters") / "original"
    enliven(create_ranker("bi-encoder", str(encoder), 0)).save(folder)
    return folder


@pytest.fixture(scope="module")
def apart(saved: Path, dense: Collection, removal: Removal) -> Forgotten:
    return forget(load_ranker(saved), dense, removal, saved_as="adapter", **ADAPTED)


@pytest.fixture(scope="module")
def adapter(apart: Forgotten, saved: Path) -> Path:
    folder = saved.parent / "adapter"
    apart.save(folder)
    return folder


def test_it_alone_is_trained_and_merged_into_a_folder_of_the_original_layout(
    saved: Path, dense: Collection, removal: Removal, tmp_path: Path
) -> None:
    original = load_ranker(saved)
    before = digest(original.state_dict())
    result = forget(original, dense, removal, **ADAPTED)
    assert result.reached and result.record.epochs and result.record.settings["adapt"] == "lora:4"
    assert digest(original.state_dict()) == before and all(weight.requires_grad for weight in original.parameters())
    assert all(weight.requires_grad for weight in result.ranker.parameters())
    theirs = original.state_dict()
    moved = {name for name, weight in result.ranker.state_dict().items() if not torch.equal(weight, theirs[name])}
    assert moved and all("encoder.layer" in name and name.endswith("weight") for name in moved)
    assert result.state is ForgetState.FORGOTTEN and result.record.adapter is None
    result.save(tmp_path / "merged")
    written = {path.name for path in (tmp_path / "merged").iterdir()}
    assert written == {path.name for path in saved.iterdir()} | {"unrank.json", "history.jsonl", "README.md"}
    assert evaluate(load_ranker(tmp_path / "merged"), dense, removal).to_json() == result.record["after"]


def test_an_adapter_apart_is_small_and_names_its_ranker_by_hash(apart: Forgotten, adapter: Path, saved: Path) -> None:
    assert {path.name for path in adapter.iterdir()} == {
        *("adapter_config.json", "adapter_model.safetensors", "unrank.json", "history.jsonl", "README.md")
    }
    record = Record.read(adapter)
    assert record is not None and record.adapter is not None and record.adapter.name == "original"
    assert record.state == "forgotten while the adapter is on" and apart.state is ForgetState.WHILE_ADAPTED
    assert "still remembers it" in apart.judgement.why
    assert read_json(adapter / "adapter_config.json")["base_model_name_or_path"] == "original"
    assert str(saved.parent) not in (adapter / "adapter_config.json").read_text()


def test_loaded_it_scores_as_it_was_measured(
    apart: Forgotten, adapter: Path, dense: Collection, removal: Removal
) -> None:
    loaded = load_ranker(adapter)
    np.testing.assert_allclose(loaded.score_texts(*TEXTS), apart.ranker.score_texts(*TEXTS), rtol=1e-5)
    assert evaluate(loaded, dense, removal).to_json() == apart.record["after"]


def test_the_library_loads_it_too_and_switched_off_scores_are_the_originals_to_the_bit(
    apart: Forgotten, adapter: Path, saved: Path
) -> None:
    model = SentenceTransformer(str(saved), device="cpu")
    before = model.encode(TEXTS[0])
    model.load_adapter(str(adapter))
    changed = model.encode(TEXTS[0])
    assert not np.allclose(changed, before, atol=1e-3)
    expected = library(apart.ranker).encode(TEXTS[0])
    np.testing.assert_allclose(changed, expected, rtol=1e-4, atol=1e-5)
    model.disable_adapters()
    np.testing.assert_array_equal(model.encode(TEXTS[0]), before)
    wrapped = SentenceTransformer(str(saved), device="cpu")
    PeftModel.from_pretrained(wrapped[0].model, str(adapter))
    np.testing.assert_allclose(wrapped.encode(TEXTS[0]), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["cross-encoder", "colbert", "decoder"])
def test_other_rankers_have_adapters_too(
    kind: str, encoder: Path, dense: Collection, removal: Removal, tmp_path: Path
) -> None:
    base = make_decoder(tmp_path / "base") if kind == "decoder" else encoder
    enliven(create_ranker(kind, str(base), 0)).save(tmp_path / "original")
    brief = {**ADAPTED, "method": replace(FAST, epochs=1), "target": 0.01}
    ranker = load_ranker(tmp_path / "original")
    result = forget(ranker, dense, removal, saved_as="adapter", **brief)
    result.save(tmp_path / "adapter")
    loaded = load_ranker(tmp_path / "adapter")
    np.testing.assert_allclose(loaded.score_texts(*TEXTS), result.ranker.score_texts(*TEXTS), rtol=1e-4)
    assert not np.allclose(loaded.score_texts(*TEXTS), ranker.score_texts(*TEXTS), rtol=1e-6)
    classes: dict[str, Any] = {"colbert": MultiVectorEncoder}
    model = classes.get(kind, CrossEncoder)(str(tmp_path / "original"), device="cpu")
    model.load_adapter(str(tmp_path / "adapter"))
    theirs = type(loaded)(model).eval()
    np.testing.assert_allclose(theirs.score_texts(*TEXTS), result.ranker.score_texts(*TEXTS), rtol=1e-3, atol=1e-4)


def test_a_stopped_run_goes_on_to_the_same_adapter(
    saved: Path, dense: Collection, removal: Removal, tmp_path: Path
) -> None:
    def job(**more: Any) -> Forgotten:
        method = replace(FAST, epochs=1)
        return forget(load_ranker(saved), dense, removal, method=method, target=0.01, adapt="lora:2", **more)

    whole, strides = strides_of(job)
    assert_same(stopped_and_resumed(job, tmp_path / "out", strides), whole)


def test_an_adapter_whose_ranker_changed_or_is_gone_is_refused_with_its_hash(
    adapter: Path, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = tmp_path / "adapter"
    adapter.rename(moved)
    try:
        monkeypatch.setattr("unrank.rankers.adapter_folder.recall", lambda *_: None)
        record = Record.read(moved)
        assert record is not None and record.adapter is not None
        with pytest.raises(BadFile, match=f"the ranker original with hash {record.adapter.digest[:12]}, .* not here:"):
            load_ranker(moved)
        other = tmp_path / "original"
        load_ranker(saved).save(other)
        weights = load_file(other / "model.safetensors")
        save_file({name: weight * 2 for name, weight in weights.items()}, other / "model.safetensors")
        with pytest.raises(
            BadFile, match=rf"{record.adapter.digest[:12]}, which is not here \(.*original has [0-9a-f]"
        ):
            load_ranker(moved)
    finally:
        moved.rename(adapter)


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"adapt": "ia3"}, "--adapt ia3: expected lora"),
        ({"adapt": "lora:0"}, "--adapt lora:0: expected lora, or lora:RANK with a rank from 1 to 256"),
        ({"saved_as": "adapter"}, "--as adapter needs --adapt lora"),
        ({"adapt": "lora", "saved_as": "patch"}, "unknown form of a ranker 'patch'"),
        ({"adapt": "lora", "method": "retrain"}, "retrain takes no steps .* takes no --adapt"),
        ({"adapt": "lora", "method": "ssd"}, "ssd takes no steps .* takes no --adapt"),
        ({"adapt": "lora", "saved_as": "adapter", "freeze": "documents"}, "--as adapter takes no --freeze"),
        ({"adapt": "lora", "saved_as": "adapter"}, "names the ranker by its files: load it from a folder"),
    ],
)
def test_what_cannot_be_adapted_is_refused(
    wrong: dict[str, Any], line: str, dense: Collection, removal: Removal, encoder: Path
) -> None:
    ranker = create_ranker("bi-encoder", str(encoder), 0)
    with pytest.raises(UnrankError, match=line):
        forget(ranker, dense, removal, base=str(encoder), device="cpu", **wrong)


def test_an_adapter_is_put_on_no_adapter(adapter: Path, dense: Collection, removal: Removal) -> None:
    with pytest.raises(UnrankError, match="is an adapter itself, and another one cannot be put on it: use --as merged"):
        forget(load_ranker(adapter), dense, removal, saved_as="adapter", **ADAPTED)


def test_with_documents_frozen_the_query_side_alone_is_adapted(
    saved: Path, dense: Collection, removals: dict[str, Removal]
) -> None:
    brief = {**ADAPTED, "method": replace(FAST, epochs=1), "target": 0.01}
    original = load_ranker(saved)
    result = forget(original, dense, removals["queries"], freeze="documents", **brief)
    assert result.record.index_valid
    same = [library(ranker).encode_document(TEXTS[1]) for ranker in (original, result.ranker)]
    np.testing.assert_array_equal(*same)


def test_an_adapter_has_a_higher_rate_unless_one_is_given() -> None:
    own = ForgetOptions().method_for("bi-encoder").learning_rate
    assert ForgetOptions(adapt="lora").method_for("bi-encoder").learning_rate == pytest.approx(ADAPTER_RATE * own)
    given = ForgetOptions(adapt="lora", settings={"learning_rate": "0.001"})
    assert given.method_for("bi-encoder").learning_rate == 0.001
