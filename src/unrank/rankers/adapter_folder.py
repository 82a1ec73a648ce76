"""Folders with an adapter: how one is found, merged into the model that it is for, and written, in peft's layout.

A folder is one of three. It may hold a whole model and an adapter on it; or a model of sentence-transformers without
the weights of its encoder, which the adapter names; or an adapter alone, for a ranker that lies elsewhere. An adapter
that unrank wrote names that ranker by a hash of its files.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from unrank.disk import exists
from unrank.errors import BadFile, UnrankError
from unrank.owner import recall
from unrank.rankers import base_hash, ranker_class
from unrank.rankers.allow_list import ADAPTER_CONFIG, ADAPTER_WEIGHTS, SHARDS
from unrank.rankers.base import Ranker
from unrank.rankers.encoder import find_encoder
from unrank.rankers.folder_check import read_config
from unrank.rankers.lora import SCALE, Adapter
from unrank.record import Record

INSTALL = "adapters need the package peft: pip install 'unrank[peft]'"
PREFIX = "base_model.model."
"""The beginning of every name in the file of an adapter."""


def has_adapter(folder: Path) -> bool:
    return (folder / ADAPTER_CONFIG).is_file()


def is_alone(folder: Path) -> bool:
    """Return whether a folder holds an adapter and no other part of a model."""
    return has_adapter(folder) and not any((folder / name).is_file() for name in ("modules.json", "config.json"))


def base_of(folder: Path) -> Path | None:
    """Return the folder of the model that an adapter is for; `None` if there is no adapter, or the model is there too.

    Refuse an adapter whose ranker, by the hash in its record, is not here.
    """
    if not has_adapter(folder) or (folder / "config.json").is_file():
        return None
    name = str(read_config(folder / ADAPTER_CONFIG)["base_model_name_or_path"])
    record = Record.read(folder)
    if record is None or record.adapter is None:
        return find_encoder(name)
    wanted, found = record.adapter.digest, {}
    for place in (recall("base", wanted), name, str(folder.parent / name)):
        if place is not None and (exists(Path(place)) or place == ranker_class(record.ranker).default_base):
            found[place] = base_hash(record.ranker, place)
            if found[place] == wanted:
                return find_encoder(place)
    others = "; ".join(f"{place} has {hashed[:12]}" for place, hashed in found.items())
    wrong = f" ({others})" if others else ""
    raise BadFile(
        folder,
        f"an adapter for the ranker {name} with hash {wanted[:12]}, which is not here{wrong}: put that ranker beside "
        f"it, as {folder.parent / name}",
    )


@contextmanager
def whole_model(folder: Path) -> Iterator[Path]:
    """Yield a folder with a whole model and no adapter, from a folder that may have one and was checked."""
    base = base_of(folder)
    if not has_adapter(folder) or (base is not None and is_alone(folder)):
        yield base or folder
        return
    with TemporaryDirectory() as temporary:
        parts = [path for path in folder.iterdir() if path.name not in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)]
        if base is not None:
            _check_head(folder, base)
            parts += [path for path in base.iterdir() if _is_weights(path) or path.name == "config.json"]
        for path in parts:
            (Path(temporary) / path.name).symlink_to(path.resolve())
        yield Path(temporary)


def _is_weights(path: Path) -> bool:
    return path.name.endswith((".safetensors", SHARDS)) and path.name != ADAPTER_WEIGHTS


def _check_head(folder: Path, base: Path) -> None:
    """Refuse a cross-encoder whose base has no layer that gives a score: the adapter does not hold one either."""
    described = folder / "config_sentence_transformers.json"
    kind = read_config(described).get("model_type") if described.is_file() else None
    built = read_config(base / "config.json").get("architectures") or [""]
    alone = len(read_config(folder / "modules.json")) == 1  # others may give the score
    if kind == "CrossEncoder" and alone and str(built[0]).endswith("Model"):
        raise BadFile(folder, f"an adapter for {base.name}, which has no layer that gives a score: {built[0]}")


def merge_stored(ranker: Ranker, folder: Path) -> None:
    """Merge the adapter of a folder into a ranker; refuse one that was made for another model."""
    model = adapted_model(ranker)
    if model is None:
        raise BadFile(folder, f"an adapter for a {ranker.kind}, to which unrank puts none")
    check_fits(model, folder)
    if find_spec("peft") is None:
        raise UnrankError(f"{folder}: {INSTALL}")
    from peft import LoraConfig, PeftModel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = LoraConfig.from_pretrained(str(folder))
        config.init_lora_weights = True  # others would first change the model's own weights
        PeftModel.from_pretrained(model, str(folder), config=config, torch_device="cpu").merge_and_unload()
    ranker.requires_grad_(True)
    for encoder in ranker.fast_encoders:
        encoder.find_weights()


def adapted_model(ranker: Ranker) -> Any:
    """Return the model of transformers that an adapter of a ranker is for; `None` if it has none, or several."""
    model = getattr(getattr(ranker, "model", None), "transformers_model", None)
    return model if len(ranker.encoders) == 1 else None


def check_fits(model: nn.Module, folder: Path) -> None:
    """Refuse an adapter with a weight that the model does not have, or has in another shape."""
    named = read_config(folder / ADAPTER_CONFIG)["base_model_name_or_path"]
    modules, weights = dict(model.named_modules()), {name: weight.shape for name, weight in model.named_parameters()}
    for key, shape in _shapes(folder).items():
        name = key.removeprefix(PREFIX)
        layer, lora, part = name.rpartition(".lora_")
        if not lora:
            there = weights.get(name)
            fits = there is not None and tuple(there) == shape
        else:
            there = getattr(modules.get(layer), "weight", None)
            there = None if there is None else there.shape
            fits = there is not None and _matches(part, shape, tuple(there))
        if not fits:
            what = f"{[*there]} there" if there is not None else "not there"
            raise BadFile(
                folder,
                f"an adapter for another model than the one it was put on: it is for {named}, and changes "
                f"{layer or name}, which is {what}, by a weight of {[*shape]}",
            )


def _matches(part: str, shape: tuple[int, ...], weight: tuple[int, ...]) -> bool:
    """Return whether a matrix of an adapter fits a weight [out, in]; an embedding is stored as [in, out]."""
    if part.startswith("embedding"):
        weight = weight[::-1]
    if part.startswith(("A", "embedding_A")):
        return len(shape) == 2 and shape[1] in weight[1:]
    return bool(shape) and shape[0] == weight[0]


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    try:
        with safe_open(str(folder / ADAPTER_WEIGHTS), "pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise BadFile(folder, f"cannot be loaded as a ranker: {ADAPTER_WEIGHTS} is damaged ({error})") from error


def check_apart(ranker: Ranker) -> None:
    """Refuse to write an adapter apart if nobody could load it again."""
    if not ranker.source:
        raise UnrankError("--as adapter names the ranker by its files: load it from a folder, or use --as merged")
    if adapted_model(ranker) is None:
        raise UnrankError(f"peft puts no adapter on this {ranker.kind}: use --as merged")
    if exists(Path(ranker.source)) and has_adapter(Path(ranker.source)):
        raise UnrankError(f"{ranker.source} is an adapter itself, and another one cannot be put on it: use --as merged")
    if find_spec("peft") is None:
        raise UnrankError(INSTALL)


def write_adapter(folder: Path, ranker: Ranker, adapter: Adapter, base: str) -> None:
    """Write an adapter in peft's layout; `base` is the public name of the ranker that it is for."""
    from peft import LoraConfig

    folder.mkdir(parents=True, exist_ok=True)
    names = _names_in_model(ranker, adapter.matrices)
    weights = {
        f"{PREFIX}{names[name]}.lora_{letter}.weight": matrix.contiguous()
        for name, both in adapter.matrices.items()
        for letter, matrix in zip("AB", both, strict=True)
    }
    save_file(weights, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    config = LoraConfig(
        r=adapter.rank,
        lora_alpha=SCALE * adapter.rank,
        target_modules=sorted(names.values()),
        base_model_name_or_path=base,
        inference_mode=True,
    )
    config.save_pretrained(str(folder))


def _names_in_model(ranker: Ranker, layers: Mapping[str, object]) -> dict[str, str]:
    """Return the names of layers within the model of transformers, by their names in the ranker."""
    inside = {id(module): name for name, module in adapted_model(ranker).named_modules()}
    return {name: inside[id(ranker.get_submodule(name))] for name in layers}
