"""Models and collections from strangers: what they name elsewhere, what they open, and the room that they take."""

from __future__ import annotations

import base64
import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling, WeightedLayerPooling

from tests.collection.test_arrow import describe_again, write
from tests.rankers.test_loading import refused
from tests.rankers.test_model_folder import change, change_module
from tests.tiny import made_record, make_bi_encoder
from unrank.collection.collection import Collection, open_collection
from unrank.errors import BadFile
from unrank.forgetting.save import save_ranker
from unrank.rankers import create_ranker, load_ranker
from unrank.rankers.trial import STATM, Attempt, Limits, in_limits

LARGEST = 2**30


@pytest.fixture
def ranker(encoder: Path, tmp_path: Path) -> Path:
    return make_bi_encoder(encoder, tmp_path / "ranker")


@contextmanager
def in_little_room() -> Iterator[None]:
    """Only that much more memory than now, for this process and those that it starts; and only seconds."""
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    if STATM.exists():  # on Linux
        taken = int(STATM.read_text().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (taken + LARGEST, limits[1]))
    started = time.monotonic()
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
    assert time.monotonic() - started < 60


def secret(folder: Path, ranker: Path) -> Path:
    """A tokenizer that lies elsewhere, and knows a word that nobody else does."""
    folder.mkdir()
    value = json.loads((ranker / "tokenizer.json").read_text())
    value["model"]["vocab"]["secretword"] = len(value["model"]["vocab"])
    (folder / "tokenizer.0.1.json").write_text(json.dumps(value))
    (folder / "tokenizer.json").write_text(json.dumps(value))
    return folder


@pytest.mark.attack(11)
@pytest.mark.parametrize("link", ["../secret/tokenizer.0.1.json", "{secret}/tokenizer.0.1.json"])
def test_tokenizers_that_lie_elsewhere(ranker: Path, tmp_path: Path, link: str) -> None:
    elsewhere = secret(tmp_path / "secret", ranker)
    change(ranker / "tokenizer_config.json", fast_tokenizer_files=[link.format(secret=elsewhere)])
    assert "unrank opens tokenizer.json of the folder" in refused(ranker)


@pytest.mark.attack(11)
@pytest.mark.parametrize("name", ["tokenizer_name_or_path", "cache_dir", "subfolder", "tokenizer_file"])
@pytest.mark.parametrize("file", ["sentence_bert_config.json", "tokenizer_config.json", "config.json"])
def test_names_of_other_folders(ranker: Path, tmp_path: Path, file: str, name: str) -> None:
    change(ranker / file, **{name: str(secret(tmp_path / "secret", ranker))})
    line = refused(ranker)
    assert name in line
    assert file in line


@pytest.mark.attack(11)
@pytest.mark.parametrize(
    "values",
    [
        {"init_inputs": ["/etc/passwd"]}, {"vocab_file": "/etc/passwd"}, {"anything": ["/etc/passwd"]},
        {"sp_model_kwargs": {"model_file": "/etc/passwd"}}, {"chat_template": "/etc/passwd"},
    ],
)  # fmt: skip
def test_a_tokenizer_that_names_a_file_elsewhere(ranker: Path, values: dict[str, Any]) -> None:
    change(ranker / "tokenizer_config.json", **values)
    assert "tokenizer_config.json" in refused(ranker)


@pytest.mark.attack(11)
def test_nothing_of_other_code_is_in_a_saved_ranker(ranker: Path, tmp_path: Path) -> None:
    for file in ("config.json", "tokenizer_config.json"):
        change(ranker / file, auto_map={"AutoModel": "someone/code--modeling.Mine"}, custom_pipelines={"a": "b"})
    change(ranker / "tokenizer_config.json", fast_tokenizer_files=["tokenizer.json"], name_or_path="/home/someone")
    save_ranker(load_ranker(ranker), made_record(), tmp_path / "saved")
    text = "".join(path.read_text() for path in (tmp_path / "saved").rglob("*.json"))
    assert not [name for name in ("someone", "auto_map", "custom_pipelines", "fast_tokenizer_files") if name in text]


class Watched(Attempt):
    """An attempt that is refused if Python opens a file that belongs neither to the model nor to Python."""

    def make(self) -> None:
        opened: list[str] = []
        sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "open" else None)
        super().make()
        own = ("/proc/", "/sys/", "/dev/", str(Path(self.folder).resolve()), *map(str, map(Path.resolve, PYTHON)))
        paths = [str(Path(path).resolve()) for path in opened if not path.isdecimal()]
        if odd := sorted({path for path in paths if not path.startswith(own)}):
            raise BadFile(self.folder, f"opens {odd}")
        assert f"{Path(self.folder).resolve()}/config.json" in paths


PYTHON = [Path(path or ".") for path in {*sys.path, sys.prefix, sys.base_prefix}]


@pytest.mark.attack(11)
def test_nothing_else_is_opened(ranker: Path, tmp_path: Path) -> None:
    """Some keys say where a model once lay, and are common. Nobody looks there."""
    elsewhere = str(secret(tmp_path / "secret", ranker))
    change(ranker / "config.json", _name_or_path=elsewhere)
    change(ranker / "tokenizer_config.json", name_or_path=elsewhere, special_tokens_map_file=f"{elsewhere}/a.json")
    (tmp_path / "secret" / "a.json").write_text("{}")
    assert in_limits(Limits(2 * LARGEST, 60), Watched(str(ranker))) is None


@pytest.mark.attack(11)
@pytest.mark.parametrize("name", ["RagTokenizer", "BertJapaneseTokenizer", "../mine.Tokenizer"])
def test_tokenizers_that_read_more_than_the_folder(ranker: Path, name: str) -> None:
    change(ranker / "tokenizer_config.json", tokenizer_class=name)
    assert "as its tokenizer_class, which unrank does not know" in refused(ranker)


@pytest.mark.attack(11)
def test_a_module_behind_a_link(ranker: Path) -> None:
    (ranker / "1_Pooling").rename(ranker / "hidden")
    (ranker / "1_Pooling").symlink_to("hidden")
    assert "a link to a folder" in refused(ranker)


@pytest.mark.attack(11)
def test_only_families_that_read_text(ranker: Path) -> None:
    for name in ("timm_wrapper", "rag", "vision-text-dual-encoder", ["bert"]):
        change(ranker / "config.json", model_type=name)
        assert "a model of type" in refused(ranker)


@pytest.mark.attack(11)
@pytest.mark.parametrize(("folder", "key"), [("1_Pooling", "cache_folder"), ("2_Dense", "init_weight")])
def test_settings_that_a_module_does_not_have(ranker: Path, folder: str, key: str) -> None:
    change(ranker / folder / "config.json", **{key: 7})
    assert f"with {key!r}" in refused(ranker)


@pytest.mark.attack(12)
@pytest.mark.parametrize("name", ["weights.dat", "pytorch_model.bin", "model.safetensors.dat", "weights"])
def test_a_weight_map_with_other_files(
    ranker: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """A library would give such a file to torch.load."""
    opened = tmp_path / "opened"
    monkeypatch.setattr("torch.load", lambda *_, **__: opened.touch())
    weights = load_file(ranker / "model.safetensors")
    (ranker / "model.safetensors").rename(ranker / name)
    index = {"weight_map": dict.fromkeys(weights, name)}
    (ranker / "model.safetensors.index.json").write_text(json.dumps(index))
    assert f"names {name!r} as weights" in refused(ranker)
    assert not opened.exists()


@pytest.mark.attack(12)
@pytest.mark.parametrize("name", ["adapter_model.bin", "weights.dat"])
def test_a_config_that_names_other_weights(ranker: Path, name: str) -> None:
    (ranker / name).write_bytes(b"anything")
    change(ranker / "config.json", transformers_weights=name)
    assert f"names {name!r} as weights" in refused(ranker)


@pytest.mark.attack(12)
def test_a_pickle_beside_an_index(ranker: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A module of sentence-transformers knows no index, and would open the pickle."""
    opened = tmp_path / "opened"
    monkeypatch.setattr("torch.load", lambda *_, **__: opened.touch())
    dense = ranker / "2_Dense"
    (dense / "model.safetensors").rename(dense / "one.safetensors")
    (dense / "model.safetensors.index.json").write_text('{"weight_map": {"linear.weight": "one.safetensors"}}')
    (dense / "pytorch_model.bin").write_bytes(b"anything")
    assert "pickled weights" in refused(ranker)
    assert not opened.exists()


@pytest.mark.attack(11)
def test_settings_of_a_model_without_modules(encoder: Path, tmp_path: Path) -> None:
    create_ranker("cross-encoder", str(encoder), 0).save(tmp_path / "ranker")
    (tmp_path / "ranker" / "modules.json").unlink()
    change(tmp_path / "ranker" / "sentence_bert_config.json", backend="onnx")
    assert "Transformer with 'backend'" in refused(tmp_path / "ranker")


@pytest.mark.attack(12)
def test_weights_in_several_files_are_read(ranker: Path) -> None:
    """The layout itself is no attack."""
    weights = load_file(ranker / "model.safetensors")
    names = {name: f"model-0000{number % 2 + 1}-of-00002.safetensors" for number, name in enumerate(weights)}
    for file in set(names.values()):
        save_file({name: weights[name] for name in weights if names[name] == file}, ranker / file, {"format": "pt"})
    (ranker / "model.safetensors").unlink()
    (ranker / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    assert load_ranker(ranker).kind == "bi-encoder"


@pytest.mark.attack(13)
@pytest.mark.parametrize("packed", [{"compression": "zstd"}, {}])
def test_a_table_with_a_dictionary(dense: Collection, tmp_path: Path, packed: dict[str, str]) -> None:
    folder = Path(shutil.copytree(dense.folder, tmp_path / "made"))
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 50_000, pa.int32()), pa.array(["a" * 200_000]))
    write(folder / "documents.arrow", pa.table({"id": texts, "text": texts}), **packed)
    describe_again(folder)
    with in_little_room(), pytest.raises(BadFile, match=r"it keeps values in a dictionary|it is compressed"):
        open_collection(folder)


@pytest.mark.attack(13)
def test_a_table_that_lists_a_part_many_times(dense: Collection, tmp_path: Path) -> None:
    """A footer has 24 bytes for each part: those of the second are replaced by those of the first."""
    folder = Path(shutil.copytree(dense.folder, tmp_path / "made"))
    path = folder / "documents.arrow"
    table = pa.ipc.open_file(path).read_all()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
        writer.write_table(table)
    data = path.read_bytes()
    footer = len(data) - 10 - int.from_bytes(data[-10:-6], "little")
    first = next(place for place in range(footer, len(data), 4) if _is_list_of_two(data, place)) + 4
    path.write_bytes(data[: first + 24] + data[first : first + 24] + data[first + 48 :])
    describe_again(folder)
    with pytest.raises(BadFile, match="listed twice"):
        open_collection(folder)


def _is_list_of_two(data: bytes, place: int) -> bool:
    number, first, size, body, second = struct.unpack_from("<iqi4xqq", data, place)
    return bool(number == 2 and size > 0 and body > 0 and second == first + size + body)


@pytest.mark.attack(13)
def test_a_pooling_of_many_layers(encoder: Path, tmp_path: Path) -> None:
    transformer = Transformer(str(encoder))
    modules = [transformer, WeightedLayerPooling(32, num_hidden_layers=2, layer_start=1), Pooling(32, "mean")]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(tmp_path / "ranker"))
    load_ranker(tmp_path / "ranker")
    change(tmp_path / "ranker" / "1_WeightedLayerPooling" / "config.json", num_hidden_layers=900_000_000)
    with in_little_room():
        assert "num_hidden_layers 900000000" in refused(tmp_path / "ranker")


def doubling(part: str) -> dict[str, Any]:
    """The parts of a tokenizer that doubles a text 31 times."""
    double = {
        "normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 2,
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {},
        },
    }[part]
    name = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors"}[part]
    return {part: {"type": "Sequence", name: [double] * 31}}


@pytest.mark.attack(13)
@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer", "post_processor"])
def test_a_tokenizer_that_doubles_a_text_31_times(ranker: Path, part: str) -> None:
    change(ranker / "tokenizer.json", **doubling(part))
    with in_little_room():
        line = refused(ranker)
    assert "times as long" in line or "repeats a text" in line


@pytest.mark.attack(13)
def test_a_tokenizer_that_writes_a_long_text_for_a_letter(ranker: Path) -> None:
    packed = base64.b64encode((4).to_bytes(4, "little") + b"\0\0\0\0" + b"a" * 10_000 + b"\0").decode()
    change(ranker / "tokenizer.json", normalizer={"type": "Precompiled", "precompiled_charsmap": packed})
    assert "a long text for one character" in refused(ranker)


@pytest.mark.attack(13)
@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("config.json", {"num_labels": 400_000_000}),
        ("sentence_bert_config.json", {"max_seq_length": 2**40}),
        ("config_sentence_transformers.json", {"prompts": {"query": "a " * 10**6}}),
        ("tokenizer.json", {"padding": {"strategy": {"Fixed": 2**40}, "pad_id": 0, "pad_token": "[PAD]"}}),
    ],
)
def test_other_ways_to_ask_for_memory(ranker: Path, file: str, values: dict[str, Any]) -> None:
    change(ranker / file, **values)
    with in_little_room():
        assert str(ranker) in refused(ranker)


@pytest.mark.attack(13)
@pytest.mark.parametrize("name", ["config.json", "vocab.txt", "unrank.json"])
def test_a_file_that_claims_a_terabyte(ranker: Path, name: str) -> None:
    with (ranker / name).open("a") as file:
        file.truncate(2**40)
    with in_little_room():
        assert "1,099,511,627,776 bytes" in refused(ranker)


@pytest.mark.attack(13)
def test_folders_within_folders_without_end(ranker: Path) -> None:
    here = os.open(ranker, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("a", dir_fd=here)  # no path is that long
        inner = os.open("a", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    try:
        assert "folders within folders, more than 32 deep" in refused(ranker)
    finally:
        subprocess.run(["rm", "-r", str(ranker)], check=True)  # Python's own way to delete it recurses


class Greedy(Attempt):
    """A model that no check has foreseen."""

    def make(self) -> None:
        bytearray(3 * LARGEST)


class Endless(Attempt):
    def make(self) -> None:
        while True:
            pass


class Deadly(Attempt):
    def make(self) -> None:
        os.abort()


@pytest.mark.attack(13)
def test_whatever_a_model_does_is_done_in_a_process_with_limits() -> None:
    limits = Limits(LARGEST, 1)
    assert "MemoryError" in str(in_limits(limits, Greedy("somewhere")))
    assert in_limits(limits, Endless("somewhere")) == "somewhere: was not loaded within 1 s, and is refused"
    assert "ended the process" in str(in_limits(limits, Deadly("somewhere")))


@pytest.mark.attack(15)
def test_a_pipe_among_the_files_of_a_base(encoder: Path, tmp_path: Path) -> None:
    base = Path(shutil.copytree(encoder, tmp_path / "base"))
    (base / "config.json").unlink()
    os.mkfifo(base / "config.json")
    with pytest.raises(BadFile, match="a named pipe"):
        create_ranker("bi-encoder", str(base), 0)


@pytest.mark.attack(0)
def test_a_forged_record_does_not_make_a_model_known(ranker: Path) -> None:
    save = {"record_version": 1, "hashes": {}, "seal": "0" * 64}
    (ranker / "unrank.json").write_text(json.dumps(save))
    change_module(ranker, 0, type="os.system")
    assert "names 'os.system' as a module" in refused(ranker)
