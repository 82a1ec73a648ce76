"""A limit on the memory that a model may ask for: about what its stored weights fill.

A few characters in a config can ask for any number of layers of any size. So the model is first built without memory,
and the number of its weights is compared with the number that the folder holds.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from unrank.disk import read_json
from unrank.errors import BadFile
from unrank.rankers.model_folder import loading

SLACK = 4
SMALL = 2**22
"""A model may have `SLACK` times the stored weights and `SMALL` more, such as a head that is not yet trained."""
LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers")


def stored_weights(folder: Path) -> tuple[int, int]:
    """Return the number of tensors and of numbers in a folder's safetensors."""
    tensors, numbers = 0, 0
    for path in folder.rglob("*.safetensors"):
        try:
            with safe_open(str(path), "pt") as file:
                shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise BadFile(folder, f"cannot be loaded as a ranker: {path.name} is damaged ({error})") from error
        tensors += len(shapes)
        numbers += sum(int(torch.Size(shape).numel()) for shape in shapes)
    return tensors, numbers


def check_numbers(folder: Path, asked: int) -> None:
    """Refuse a model that asks for far more numbers than the folder holds."""
    if asked > SLACK * stored_weights(folder)[1] + SMALL:
        raise BadFile(folder, f"cannot be loaded as a ranker: it asks for {asked:,} weights, far more than it holds")


def check_size(folder: Path) -> None:
    """Refuse configs that ask for far more weights than the folder holds."""
    for path in folder.rglob("config.json"):
        value = read_json(path)
        if isinstance(value, dict) and "model_type" in value:
            check_numbers(folder, _weights(folder, path, value))
        elif isinstance(value, dict):
            check_numbers(folder, _product(value, "in_features", "out_features"))


def _weights(folder: Path, path: Path, config: Mapping[str, object]) -> int:
    """Return the number of weights of a model with this config."""
    from transformers import AutoConfig, AutoModel

    deep = [size for name in LAYERS if isinstance(size := config.get(name), int)]
    if deep and max(deep) > stored_weights(folder)[0]:
        raise BadFile(path, f"cannot be loaded as a ranker: it asks for {max(deep):,} layers, far more than it holds")
    with loading(folder, "a ranker"):
        read = AutoConfig.from_pretrained(str(path.parent), trust_remote_code=False, local_files_only=True)
        with torch.device("meta"):
            model = AutoModel.from_config(read, trust_remote_code=False)
    return sum(weight.numel() for weight in [*model.parameters(), *model.buffers()])


def device_memory(device: torch.device) -> int:
    """Return the bytes of memory that a device has."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _product(config: Mapping[str, object], *names: str) -> int:
    sizes = [size for name in names if isinstance(size := config.get(name), int)]
    return math.prod(sizes) if len(sizes) == len(names) else 0
