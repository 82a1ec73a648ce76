"""A model folder from strangers: nothing in it runs, nothing outside it is read, and it takes no more than it holds."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.rankers.test_loading import Trap, refused
from tests.tiny import make_bi_encoder
from unrank.errors import BadFile
from unrank.rankers import create_ranker, load_ranker
from unrank.rankers.size_check import stored_weights
from unrank.rankers.word_file import read_vectors


@pytest.fixture
def bi_encoder(encoder: Path, tmp_path: Path) -> Path:
    return make_bi_encoder(encoder, tmp_path / "ranker")


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def change_module(folder: Path, number: int, **values: Any) -> None:
    modules = json.loads((folder / "modules.json").read_text())
    modules[number] |= values
    (folder / "modules.json").write_text(json.dumps(modules))


@pytest.mark.parametrize(
    "name",
    ["os.system", "sentence_transformers.util.misc.import_from_string", "modeling_mine.Transformer", "Transformer"],
)
def test_no_class_but_known_ones(bi_encoder: Path, name: str) -> None:
    (bi_encoder / "modeling_mine.py").write_text("raise SystemExit('run')")
    change_module(bi_encoder, 0, type=name)
    assert f"names '{name}' as a module" in refused(bi_encoder)


@pytest.mark.parametrize("name", ["torch.hub.load", "torch.distributed.run.main", "os.getcwd", "torch.nn.utils.clip"])
def test_no_function_but_activations(bi_encoder: Path, name: str) -> None:
    change(bi_encoder / "2_Dense" / "config.json", activation_function=name)
    assert f"names '{name}' as an activation" in refused(bi_encoder)
    change(bi_encoder / "2_Dense" / "config.json", activation_function="torch.nn.modules.linear.Identity")
    load_ranker(bi_encoder)


def test_code_beside_a_model_is_not_run(bi_encoder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "run"
    (bi_encoder / "modeling_mine.py").write_text(
        f"open({str(mark)!r}, 'w')\nclass Mine: pass\nclass MineConfig: pass\n"
    )
    auto_map = {"AutoConfig": "modeling_mine.MineConfig", "AutoModel": "modeling_mine.Mine"}
    change(bi_encoder / "config.json", auto_map=auto_map)
    change(bi_encoder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["modeling_mine.Mine", None]})
    load_ranker(bi_encoder)
    change(bi_encoder / "config.json", model_type="mine")
    assert "cannot be loaded" in refused(bi_encoder)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"attn_implementation": "someone/a-kernel"}, "code from elsewhere"),
        ({"quantization_config": {"quant_method": "mine"}}, "quantised weights"),
        ({"model_kwargs": {"subfolder": "../elsewhere"}}, "asks for 'subfolder'"),
    ],
)
def test_other_ways_to_code_and_files_elsewhere(bi_encoder: Path, values: dict[str, Any], problem: str) -> None:
    change(bi_encoder / "config.json", **values)
    assert problem in refused(bi_encoder)


def test_an_adapter_of_another_type_is_refused(bi_encoder: Path) -> None:
    (bi_encoder / "adapter_config.json").write_text('{"base_model_name_or_path": "/elsewhere"}')
    assert "an adapter of type None; unrank reads LORA alone" in refused(bi_encoder)


@pytest.mark.parametrize("path", ["../other", "/etc", "1_Pooling/../../other"])
def test_no_module_outside_the_folder(bi_encoder: Path, path: str) -> None:
    shutil.copytree(bi_encoder / "1_Pooling", bi_encoder.parent / "other")
    change_module(bi_encoder, 1, path=path)
    assert "leads outside ranker" in refused(bi_encoder)


def test_no_shard_outside_the_folder(bi_encoder: Path) -> None:
    (bi_encoder / "model.safetensors").rename(bi_encoder.parent / "model.safetensors")
    for name in ("../model.safetensors", str(bi_encoder.parent / "model.safetensors")):
        (bi_encoder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
        assert "leads outside ranker" in refused(bi_encoder)


def test_links_stay_in_the_folder(bi_encoder: Path, tmp_path: Path) -> None:
    weights = bi_encoder / "model.safetensors"
    weights.rename(bi_encoder / "weights")
    weights.symlink_to("weights")
    load_ranker(bi_encoder)
    weights.unlink()
    (bi_encoder / "weights").rename(tmp_path / "weights")
    weights.symlink_to(tmp_path / "weights")
    assert "leads outside ranker" in refused(bi_encoder)
    weights.unlink()
    weights.symlink_to("model.safetensors")
    assert "which is not a file" in refused(bi_encoder)


def test_the_hub_keeps_files_in_blobs(bi_encoder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models--someone--it" / "snapshots" / "0123"
    blobs = folder.parent.parent / "blobs"
    blobs.mkdir(parents=True)
    shutil.copytree(bi_encoder, folder)
    (folder / "model.safetensors").rename(blobs / "abc")
    (folder / "model.safetensors").symlink_to(os.path.relpath(blobs / "abc", folder))
    assert load_ranker(folder).kind == "bi-encoder"


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt", "pytorch_model-00001-of-00002.bin"])
def test_another_safe_file_does_not_make_a_pickle_safe(bi_encoder: Path, tmp_path: Path, name: str) -> None:
    """The library asks for `model.safetensors`, and opens the pickle where only others are beside it."""
    dense = bi_encoder / "2_Dense"
    (dense / "model.safetensors").rename(dense / "other.safetensors")
    (dense / name).write_bytes(pickle.dumps(Trap(tmp_path / "opened")))
    said = refused(bi_encoder)
    assert "never opened" in said
    assert "save_pretrained" in said
    assert not (tmp_path / "opened").exists()


def test_the_same_module_again_and_again(bi_encoder: Path) -> None:
    modules = json.loads((bi_encoder / "modules.json").read_text())
    (bi_encoder / "modules.json").write_text(json.dumps(modules * 100))
    assert f"names {100 * len(modules)} modules; unrank reads 16 at most" in refused(bi_encoder)


@pytest.mark.parametrize("ending", ["bin", "pt", "ckpt", "pkl"])
def test_a_pickle_in_place_of_a_folder(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"model.{ending}"
    path.write_bytes(pickle.dumps(Trap(tmp_path / "opened")))
    assert "never opened" in refused(path)
    with pytest.raises(BadFile, match="never opened; write the vectors as text"):
        read_vectors(path)
    assert not (tmp_path / "opened").exists()


@pytest.mark.parametrize(
    "values",
    [
        {"hidden_size": 10**9}, {"num_hidden_layers": 10**9}, {"vocab_size": 10**12}, {"intermediate_size": 10**10},
        {"max_position_embeddings": 10**11},
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["bi-encoder", pytest.param("parade", marks=pytest.mark.slow)])
def test_no_more_memory_than_there_are_weights(
    encoder: Path, tmp_path: Path, kind: str, values: dict[str, int]
) -> None:
    create_ranker(kind, str(encoder), 0).save(tmp_path / "ranker")
    change(tmp_path / "ranker" / "config.json", **values)
    assert "cannot be loaded as a ranker" in refused(tmp_path / "ranker")
    base = Path(shutil.copytree(encoder, tmp_path / "base"))
    change(base / "config.json", **values)
    with pytest.raises(BadFile, match="cannot be loaded as a ranker"):
        create_ranker(kind, str(base), 0)


def test_no_more_memory_for_words(tmp_path: Path) -> None:
    create_ranker("duet", "random", 0).save(tmp_path / "duet")
    change(tmp_path / "duet" / "ranker.json", settings={"width": 10**9})
    assert "far more than it holds" in refused(tmp_path / "duet")


def test_no_more_memory_for_a_dense_layer(bi_encoder: Path) -> None:
    change(bi_encoder / "2_Dense" / "config.json", in_features=10**6, out_features=10**6)
    assert "far more than it holds" in refused(bi_encoder)


def test_a_header_longer_than_its_file(bi_encoder: Path) -> None:
    (bi_encoder / "model.safetensors").write_bytes((2**40).to_bytes(8, "little") + b"{}")
    assert "model.safetensors is damaged" in refused(bi_encoder)


def test_what_is_stored_is_counted(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3, 4), "b": torch.zeros(5)}, tmp_path / "model.safetensors")
    assert stored_weights(tmp_path) == (2, 17)


def test_packed_vectors_that_grow_without_end(tmp_path: Path) -> None:
    for name, text in (("line", b"ba " + b"0 " * 2**21), ("lines", b"\n".join([b"ba 0 0 0"] * 2**19))):
        path = tmp_path / f"{name}.gz"
        path.write_bytes(gzip.compress(text))
        with pytest.raises(BadFile, match="far longer than a line of word vectors"):
            read_vectors(path)
