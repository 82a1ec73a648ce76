"""Model folders: how a library loads one in silence, and the layout of folders that only unrank writes.

`allow_list.py` says what a folder may hold, `size_check.py` limits the weights that it may ask for, and `trial.py`
loads a stranger's in a process of its own first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers.utils import logging as transformers_logging

from unrank.disk import exists, inside, read_json, sha256, write_json
from unrank.errors import BadFile, UnrankError
from unrank.rankers.allow_list import DESCRIPTION
from unrank.rankers.folder_check import read_config
from unrank.record import RECORD

WEIGHTS = "model.safetensors"
FORMAT_VERSION = 1
DESCRIBED = ("config.json", "tokenizer_config.json", "processor_config.json")
NAMES = ("auto_map", "custom_pipelines", "fast_tokenizer_files")
"""Keys of a model's description that name code or other files. They do not pass into a saved ranker."""
DRAWS = frozenset({Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_})
"""What initialises weights with random numbers."""
OUT_OF_MEMORY = "it asks for more memory than it may take"


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
        with quiet(), _NoRandomMeta():
            yield
    except UnrankError:
        raise
    except Exception as error:
        too_large = isinstance(error, MemoryError) or "allocate memory" in str(error)
        reason = OUT_OF_MEMORY if too_large else " ".join(str(error).split())[:200]
        raise BadFile(path, f"cannot be loaded as {what}: {reason}") from error


class _NoRandomMeta(TorchFunctionMode):
    """Draw no random numbers for tensors without storage, which a library makes before it reads the weights.

    There are no values to draw, but the first draw makes torch import a part of its compiler: half a second.
    """

    def __torch_function__(
        self, function: Any, types: Any, given: tuple[Any, ...] = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        named = named or {}
        if function in DRAWS:
            tensor: Tensor = given[0] if given else named["tensor"]
            if tensor.is_meta:
                return tensor
        return function(*given, **named)


def save_library_model(model: Any, folder: Path) -> None:
    """Write a model of sentence-transformers in its own layout, without a card and without names of other files."""
    with quiet():
        model.save_pretrained(str(folder), create_model_card=False)
    drop_names(folder)


def drop_names(folder: Path) -> None:
    """Take out of a folder that a library wrote the names of code and of other files that its model came with."""
    for path in [path for name in DESCRIBED for path in sorted(folder.rglob(name))]:
        value = read_json(path)
        kept = {key: item for key, item in value.items() if key not in NAMES}
        if len(kept) < len(value):
            write_json(path, kept)


def is_own_folder(folder: Path) -> bool:
    """Return whether unrank alone writes folders of this layout: `ranker.json` and `model.safetensors`."""
    return (folder / DESCRIPTION).is_file()


def read_description(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the ranker's kind and its settings."""
    path = folder / DESCRIPTION
    value = read_config(path)
    if not isinstance(value, dict) or not isinstance(value.get("settings"), dict):
        raise BadFile(path, "not a ranker's description: expected a JSON object with settings")
    if value.get("format_version") != FORMAT_VERSION:
        raise BadFile(path, f"format {value.get('format_version')}; this unrank reads format {FORMAT_VERSION}")
    return str(value.get("kind")), value["settings"]


def write_own_folder(folder: Path, kind: str, settings: Mapping[str, object], model: nn.Module) -> None:
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
