"""Model folders: checks before any library opens one, and the layout of folders that only unrank writes.

A model may come from strangers, and the libraries that load it do what its files say: which classes to import, which
files to read. So nothing pickled is opened, no path and no link leads outside the folder, and only the classes listed
here may be named. `size_check.py` limits the memory that a model may ask for.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers.utils import logging as transformers_logging

from unrank.disk import exists, fits, inside, read_json, sha256, write_json
from unrank.errors import BadFile, UnrankError, listed
from unrank.record import RECORD

PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
OPENED = ("pytorch_model", "model", "adapter_model")
"""Prefixes of the pickled files that a library opens if it finds no safetensors."""
SAFE_WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
CONVERT = (
    "pickled weights, which can run code and are never opened; load the model once where you trust it and write it "
    "again with save_pretrained(..., safe_serialization=True)"
)

MODULES = {
    "Transformer", "Pooling", "Normalize", "Dense", "LayerNorm", "Dropout", "WeightedLayerPooling", "Router", "Asym",
    "MultiVectorMask", "HierarchicalTokenPooling", "LogitScore",
}  # fmt: skip
MODULE = re.compile(r"(sentence_transformers|pylate)\.[\w.]*?(\w+)")
ACTIVATION = re.compile(r"torch\.nn\.(modules\.\w+\.)?[A-Z]\w*")
ATTENTIONS = (None, "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
ACTIVATIONS = {"activation_fn", "activation_function", "sbert_ce_default_activation_function"}
ATTENTION = {"attn_implementation", "_attn_implementation", "_attn_implementation_internal"}
ARGUMENTS = {
    f"{part}_{word}" for part in ("model", "config", "tokenizer", "processor") for word in ("args", "kwargs")
}  # fmt: skip
DESCRIPTION = "ranker.json"
WEIGHTS = "model.safetensors"
FORMAT_VERSION = 1
HARMLESS = {"dtype", "torch_dtype", "attn_implementation", "model_max_length", "do_lower_case", "use_fast"}


def check_folder(folder: Path) -> None:
    """Refuse a folder with files that could make a library open pickles, leave the folder or import other code."""
    blobs = folder.resolve().parent.parent / "blobs" if folder.resolve().parent.name == "snapshots" else None
    for path in sorted(folder.rglob("*")):
        inside(
            folder, str(path.relative_to(folder)), besides=blobs
        )  # the hub's cache stores files there and links to them
        if not path.is_dir() and not path.is_file():
            raise BadFile(path, "a named pipe, a socket or a device, which is not read; remove it from the folder")
        if path.suffix in PICKLED:
            _check_pickled(path)
        elif path.name == "adapter_config.json":
            raise BadFile(path, "an adapter, which unrank does not read; merge it into its base model and save that")
        elif path.suffix == ".json" and path.is_file():
            _check_json(folder, path)


def check_unchanged(folder: Path) -> None:
    """Refuse a ranker that unrank wrote if its files differ from its record."""
    record = read_json(folder / RECORD) if (folder / RECORD).is_file() else {}
    hashes = record.get("hashes", {}) if isinstance(record, dict) else None
    if not isinstance(hashes, dict):
        raise BadFile(folder / RECORD, "damaged; restore it, or remove it")
    for name, written in hashes.items():
        path = inside(folder, name)
        if not exists(path) or not path.is_file() or sha256(path) != written:
            raise BadFile(path, f"changed since unrank wrote it; restore it, or remove {RECORD} if you changed it")


def _check_pickled(path: Path) -> None:
    if path.name.startswith(OPENED) and not any((path.parent / name).is_file() for name in SAFE_WEIGHTS):
        raise BadFile(path, CONVERT)


def _check_json(folder: Path, path: Path) -> None:
    if path.name in ("tokenizer.json", "vocab.json", "added_tokens.json"):
        return  # vocabularies name no code
    value = read_json(path)
    if path.name == "modules.json":
        if not fits(value, [{"type": str, "path": str}]):
            raise BadFile(path, "cannot be loaded: expected a list of modules, each with its type and path")
        for module in value:
            _check_module(path, module["type"])
            inside(folder, module["path"])
    if path.name.endswith(".index.json"):
        if not fits(value, {"weight_map": dict}) or not all(fits(name, str) for name in value["weight_map"].values()):
            raise BadFile(path, "cannot be loaded: expected a weight_map with the name of a file for each weight")
        for name in set(value["weight_map"].values()):
            inside(folder, str(path.parent.relative_to(folder) / name))
    for key, item in _items(value):
        _check_item(folder, path, key, item)


def _check_item(folder: Path, path: Path, key: str, item: Any) -> None:
    if key == "types" and isinstance(item, dict):  # a router's modules: folder and class of each
        for name, module in item.items():
            inside(folder, str(path.parent.relative_to(folder) / name))
            _check_module(path, str(module))
    elif key in ACTIVATIONS and isinstance(item, str) and "." in item and not ACTIVATION.fullmatch(item):
        raise BadFile(path, f"names {item!r} as an activation; unrank imports those of torch.nn alone")
    elif key in ATTENTION and item not in ATTENTIONS:
        raise BadFile(path, f"names {item!r} as its attention, which is code from elsewhere")
    elif key in ARGUMENTS and isinstance(item, dict) and (odd := sorted(set(item) - HARMLESS)):
        raise BadFile(path, f"asks for {listed(odd)} when it is loaded, which unrank does not pass on")
    elif key == "quantization_config" and item:
        raise BadFile(path, "quantised weights, which unrank does not read; save the model without quantisation")


def _check_module(path: Path, name: str) -> None:
    found = MODULE.fullmatch(name)
    if found is None or found.group(2) not in MODULES:
        raise BadFile(path, f"names {name!r} as a module; unrank imports {', '.join(sorted(MODULES))} and no other")


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key with its value, at any depth."""
    if isinstance(value, list):
        value = {str(place): item for place, item in enumerate(value)}
    if isinstance(value, dict):
        for key, item in value.items():
            yield key, item
            yield from _items(item)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the progress bars and notices of transformers and sentence-transformers."""
    logger = logging.getLogger("sentence_transformers")
    level, usual = transformers_logging.get_verbosity(), logger.level
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        transformers_logging.enable_progress_bar()
        logger.setLevel(usual)


@contextmanager
def loading(path: Path, what: str) -> Iterator[None]:
    """Load quietly, and turn any error of a library into one line."""
    try:
        with quiet():
            yield
    except UnrankError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise BadFile(path, f"cannot be loaded as {what}: {reason}") from error


def is_own_folder(folder: Path) -> bool:
    """Return whether unrank alone writes folders of this layout: `ranker.json` and `model.safetensors`."""
    return (folder / DESCRIPTION).is_file()


def read_description(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the ranker's kind and its settings."""
    path = folder / DESCRIPTION
    value = read_json(path)
    if not isinstance(value, dict) or not isinstance(value.get("settings"), dict):
        raise BadFile(path, "not a ranker's description: expected a JSON object with settings")
    if value.get("format_version") != FORMAT_VERSION:
        raise BadFile(path, f"format {value.get('format_version')}; this unrank reads format {FORMAT_VERSION}")
    return str(value.get("kind")), value["settings"]


def write_own_folder(folder: Path, kind: str, settings: Mapping[str, Any], model: nn.Module) -> None:
    """Write a ranker's kind, settings and weights."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / DESCRIPTION, {"format_version": FORMAT_VERSION, "kind": kind, "settings": settings})
    weights = {name: weight.detach().cpu().contiguous() for name, weight in model.state_dict().items()}
    save_file(weights, folder / WEIGHTS)


def read_weights(folder: Path, model: nn.Module) -> None:
    """Fill all weights of a model from a folder."""
    try:
        model.load_state_dict(load_file(folder / WEIGHTS))
    except (OSError, RuntimeError, KeyError, ValueError, SafetensorError) as error:
        raise BadFile(folder, f"cannot be loaded as a ranker: {WEIGHTS} is not what {DESCRIPTION} describes") from error
