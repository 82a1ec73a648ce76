"""The folder of a ranker that no other library writes: `ranker.json` says what it is, safetensors holds its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from unrank.disk import read_json, write_json
from unrank.errors import BadFile

DESCRIPTION = "ranker.json"
WEIGHTS = "model.safetensors"
FORMAT_VERSION = 1


def is_own_folder(folder: Path) -> bool:
    return (folder / DESCRIPTION).is_file()


def read_description(folder: Path) -> tuple[str, dict[str, Any]]:
    """The ranker's kind and its settings."""
    path = folder / DESCRIPTION
    value = read_json(path)
    if not isinstance(value, dict) or not isinstance(value.get("settings"), dict):
        raise BadFile(path, "not a ranker's description: expected a JSON object with settings")
    if value.get("format_version") != FORMAT_VERSION:
        raise BadFile(path, f"format {value.get('format_version')}; this unrank reads format {FORMAT_VERSION}")
    return str(value.get("kind")), value["settings"]


def write_own_folder(folder: Path, kind: str, settings: dict[str, Any], model: nn.Module) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / DESCRIPTION, {"format_version": FORMAT_VERSION, "kind": kind, "settings": settings})
    weights = {name: weight.detach().cpu().contiguous() for name, weight in model.state_dict().items()}
    save_file(weights, folder / WEIGHTS)


def read_weights(folder: Path, model: nn.Module) -> None:
    """Fill a model with the folder's weights, every one of them."""
    try:
        model.load_state_dict(load_file(folder / WEIGHTS))
    except (OSError, RuntimeError, KeyError, ValueError, SafetensorError) as error:
        raise BadFile(folder, f"cannot be loaded as a ranker: {WEIGHTS} is not what {DESCRIPTION} describes") from error
