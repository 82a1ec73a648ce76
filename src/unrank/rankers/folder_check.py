"""Checks of a model folder before any library opens it, against the lists of `allow_list.py`.

A file that is not listed is never opened. A listed file that asks for anything else is refused: pickles, other code,
files outside the folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unrank.disk import exists, fits, inside, read_json
from unrank.errors import BadFile, listed
from unrank.rankers.allow_list import (
    ACTIVATION,
    ACTIVATIONS,
    ADAPTER_CONFIG,
    ADAPTER_KEYS,
    ADAPTER_WEIGHTS,
    ARGUMENTS,
    ATTENTION,
    ATTENTIONS,
    CONFIGS,
    CONVERT,
    DESCRIPTION,
    HARMLESS,
    LABELS,
    LARGEST_CONFIG,
    LARGEST_FILE,
    LARGEST_NUMBER,
    LARGEST_TOKENIZER,
    LONGEST_TEXT,
    MODEL_TYPES,
    MODULE,
    MODULES,
    MOST_LABELS,
    MOST_RANK,
    ONLY_NOTED,
    OPENED,
    PICKLED,
    PROMPTED,
    SENTENCE_CONFIG,
    SHARDS,
    SUFFIXES,
    TOKENIZER,
    TOKENIZER_CLASSES,
)
from unrank.rankers.tokenizer_check import check_tokenizer

INNER_ADAPTER = "an adapter of a part of a model, which unrank does not read; merge it and save the model"
MOST_MODULES = 16
"""The most modules of a model, or of one of its routers; models of the hub have five or fewer."""
MOST_LEVELS = 32
"""The most folders within one another; models of the hub have a few."""


def model_files(folder: Path) -> list[Path]:
    """Return the files of a folder that may be opened; refuse links that lead elsewhere or to folders, and what is
    neither a file nor a folder. The hub's cache stores files in a folder of its own, `blobs`, and links to them."""
    home = folder.resolve()
    blobs = home.parent.parent / "blobs" if home.parent.name == "snapshots" else None
    found = []
    for path in sorted(_below(folder)):
        inside(folder, str(path.relative_to(folder)), besides=blobs)
        if path.is_file():
            found.append(path)
        elif path.is_dir() and path.is_symlink():
            raise BadFile(path, "a link to a folder, which is not followed; put the folder itself there")
        elif not path.is_dir():
            what = "a named pipe, a socket or a device, which is not read" if exists(path) else "a link to nothing"
            raise BadFile(path, f"{what}; remove it")
    own = (folder / DESCRIPTION).is_file()  # the class of another package may open any file of its own
    read = [path for path in found if own or path.suffix.lower() in SUFFIXES]
    for path in read:
        if path.suffix.lower() != ".safetensors" and path.stat().st_size > LARGEST_FILE:
            raise BadFile(path, f"{path.stat().st_size:,} bytes, though it holds no weights; at most {LARGEST_FILE:,}")
    return read


def _below(folder: Path) -> Iterator[Path]:
    """Yield all that is below a folder, without following links; refuse folders within folders without end."""
    for here, inner, names in os.walk(folder):
        if len(Path(here).relative_to(folder).parts) > MOST_LEVELS:
            raise BadFile(folder, f"holds folders within folders, more than {MOST_LEVELS} deep; remove them")
        yield from (Path(here) / name for name in (*inner, *names))


def check_folder(folder: Path) -> None:
    """Refuse a folder with files that could make a library open pickles, leave the folder or import other code."""
    for path in model_files(folder):
        _check_file(folder, path)
    for path in sorted(folder.rglob("*")):
        if path.suffix in PICKLED and path.name.startswith(OPENED) and not _replaced(path):
            raise BadFile(path, CONVERT)
    for path, module in module_settings(folder):
        _check_settings(path, module)


def _replaced(path: Path) -> bool:
    """Return whether every library opens safetensors in place of a pickled file.

    sentence-transformers does not look for weights in several files, and would open `pytorch_model.bin` beside them.
    """
    if path.name.startswith("adapter_model"):
        return path.with_name(ADAPTER_WEIGHTS).is_file()
    whole, several = path.with_name("model.safetensors"), path.with_name("model.safetensors.index.json")
    return whole.is_file() or (several.is_file() and path.name != "pytorch_model.bin")


def _check_file(folder: Path, path: Path) -> None:
    name = path.name.lower()  # some disks do not tell capitals apart
    if name == ADAPTER_CONFIG:
        check_adapter(folder, path)
    elif name.endswith(SHARDS):
        _check_shards(folder, path)
    elif name in CONFIGS or SENTENCE_CONFIG.fullmatch(name):
        value = read_config(path)
        if SENTENCE_CONFIG.fullmatch(name):
            _check_settings(path, "Transformer")
        if name == "config.json" and isinstance(value, dict) and "model_type" in value:
            _check_model_type(path, value["model_type"])
        for key, item in _items(value):
            _check_item(folder, path, key, item)
            if name in PROMPTED:
                _check_extent(path, "the model", key, item)
    elif name.endswith(".json") and path.stat().st_size > LARGEST_TOKENIZER:
        raise BadFile(path, f"cannot be loaded: {path.stat().st_size:,} bytes; at most {LARGEST_TOKENIZER:,} are read")


def check_adapter(folder: Path, path: Path) -> None:
    """Refuse the description of an adapter that is no LoRA, has no weights, or asks for more than matrices."""
    value = read_config(path)
    if path != folder / ADAPTER_CONFIG:
        raise BadFile(path, INNER_ADAPTER)
    if not isinstance(value, dict) or not fits(value.get("base_model_name_or_path"), str):
        raise BadFile(path, "cannot be loaded: expected a JSON object that names its base_model_name_or_path")
    if value.get("peft_type") != "LORA":
        raise BadFile(path, f"an adapter of type {value.get('peft_type')!r}; unrank reads LORA alone")
    if odd := sorted(key for key, item in value.items() if key not in ADAPTER_KEYS and item):
        raise BadFile(path, f"asks for {listed(odd)}, which unrank does not pass on; merge the adapter with peft")
    pattern = value.get("rank_pattern") or {}
    ranks = [value.get("r"), *(pattern.values() if isinstance(pattern, dict) else [None])]
    if not all(fits(rank, int) and 1 <= rank <= MOST_RANK for rank in ranks):
        raise BadFile(path, f"an adapter whose rank is not a whole number from 1 to {MOST_RANK:,}")
    pattern = value.get("alpha_pattern") or {}
    alphas = [value.get("lora_alpha", 1), *(pattern.values() if isinstance(pattern, dict) else [None])]
    if not all(fits(alpha, float) for alpha in alphas):
        raise BadFile(path, "an adapter whose lora_alpha, or a part of its alpha_pattern, is not a number")
    for key, item in _items(value):
        _check_extent(path, "the adapter", key, item)
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise BadFile(folder, f"holds no weights of its adapter ({ADAPTER_WEIGHTS})")


def check_tokenizers(folder: Path) -> None:
    """Refuse a folder with a tokenizer that makes texts too long. Its file may be large, and takes time to read."""
    for path in model_files(folder):
        if TOKENIZER.fullmatch(path.name.lower()):
            check_tokenizer(path, read_config(path, LARGEST_TOKENIZER))


def read_config(path: Path, most: int = LARGEST_CONFIG) -> Any:
    """Return the value of a JSON file; refuse one that is longer than any description of a model."""
    if path.is_file() and path.stat().st_size > most:
        raise BadFile(path, f"cannot be loaded: {path.stat().st_size:,} bytes; at most {most:,} are read")
    return read_json(path)


def _check_model_type(path: Path, name: object) -> None:
    if not isinstance(name, str) or name not in MODEL_TYPES:
        raise BadFile(path, f"cannot be loaded as a ranker: a model of type {name!r}, which unrank does not know")


def _check_shards(folder: Path, path: Path) -> None:
    value = read_config(path)
    if not fits(value, {"weight_map": dict}) or not all(fits(name, str) for name in value["weight_map"].values()):
        raise BadFile(path, "cannot be loaded: expected a weight_map with the name of a file for each weight")
    for name in sorted(set(value["weight_map"].values())):
        inside(folder, str(path.parent.relative_to(folder) / name))
        if not name.endswith(".safetensors"):
            raise BadFile(path, f"names {name!r} as weights; unrank opens *.safetensors and nothing else")


def _check_item(folder: Path, path: Path, key: str, item: Any) -> None:
    """Refuse a key that names code, or a file that lies elsewhere."""
    if key in ACTIVATIONS and isinstance(item, str) and "." in item and not ACTIVATION.fullmatch(item):
        raise BadFile(path, f"names {item!r} as an activation; unrank imports those of torch.nn alone")
    if key in ATTENTION and item not in ATTENTIONS:
        raise BadFile(path, f"names {item!r} as its attention, which is code from elsewhere")
    if key in ARGUMENTS and isinstance(item, dict) and (odd := sorted(set(item) - HARMLESS)):
        raise BadFile(path, f"asks for {listed(odd)} when it is loaded, which unrank does not pass on")
    if key == "quantization_config" and item:
        raise BadFile(path, "quantised weights, which unrank does not read; save the model without quantisation")
    if key == "fast_tokenizer_files" and item and not (fits(item, [str]) and all(map(TOKENIZER.fullmatch, item))):
        raise BadFile(path, f"names {item!r} as its tokenizers; unrank opens tokenizer.json of the folder")
    if key == "transformers_weights" and item and not str(item).endswith((".safetensors", SHARDS)):
        raise BadFile(path, f"names {item!r} as weights; unrank opens *.safetensors and nothing else")
    if key in LABELS and isinstance(item, int | float) and not item <= MOST_LABELS:
        raise BadFile(path, f"asks for {item:,} labels; a ranker has one")
    if key == "tokenizer_class" and item and not _known_tokenizer(str(item)):
        raise BadFile(path, f"names {item!r} as its tokenizer_class, which unrank does not know")
    if key == "init_inputs" and item:
        raise BadFile(path, "asks for init_inputs when its tokenizer is made, which unrank does not pass on")
    if key not in ONLY_NOTED:
        _check_place(folder, path, key, item)


def _known_tokenizer(name: str) -> bool:
    return name == "TokenizersBackend" or name.removesuffix("Fast").removesuffix("Tokenizer") in TOKENIZER_CLASSES


def _check_place(folder: Path, path: Path, key: str, item: Any) -> None:
    """Refuse the name of a file or folder that exists elsewhere, and any other model that is to be loaded."""
    if not isinstance(item, str) or not item:
        return
    if key.endswith("name_or_path"):
        raise BadFile(path, f"names {item!r} as its {key}; unrank loads nothing that is not in the folder")
    names_file = re.search(r"(^|_)(file|path|dir|folder)$", key) is not None
    if not names_file and os.sep not in item and not item.startswith("~"):
        return
    places = [Path(item), path.parent / item] + ([Path(item).expanduser()] if item.startswith("~") else [])
    home = folder.resolve()
    for place in places:
        if exists(place) and not place.resolve().is_relative_to(home):
            raise BadFile(path, f"names {item!r} as its {key}, which leads outside {folder.name}, and is not followed")


def module_settings(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the file of settings of each module of sentence-transformers, and the module's type."""
    described = folder / "modules.json"
    if not described.is_file():
        return
    modules = read_config(described)
    if not fits(modules, [{"type": str, "path": str}]):
        raise BadFile(described, "cannot be loaded: expected a list of modules, each with its type and path")
    _check_number(described, len(modules))
    for module in modules:
        kind = _module(described, module["type"])
        yield from _settings(folder, inside(folder, module["path"]), kind)


def _settings(folder: Path, place: Path, kind: str) -> Iterator[tuple[Path, str]]:
    """Yield the settings of a module; those of a router's own modules too."""
    if kind in ("Transformer", "MLMTransformer"):
        return  # its settings have a name of their own, and are checked wherever they are
    names = ("router_config.json", "config.json") if kind in ("Router", "Asym") else ("config.json",)
    for path in [place / name for name in names if (place / name).is_file()][:1]:
        yield path, kind
        types = read_config(path).get("types") if kind in ("Router", "Asym") else None
        _check_number(path, len(types) if isinstance(types, dict) else 0)
        for name, each in types.items() if isinstance(types, dict) else ():
            inner = _module(path, str(each))
            if inner in ("Router", "Asym"):
                raise BadFile(path, "a router within a router, which unrank does not read")
            yield from _settings(folder, inside(folder, str(place.relative_to(folder) / name)), inner)


def _check_number(path: Path, modules: int) -> None:
    """Refuse a list that would load the same weights again and again."""
    if modules > MOST_MODULES:
        raise BadFile(path, f"names {modules:,} modules; unrank reads {MOST_MODULES} at most")


def _module(path: Path, name: str) -> str:
    found = MODULE.fullmatch(name)
    if found is None or found.group(2) not in MODULES:
        raise BadFile(path, f"names {name!r} as a module; unrank imports {', '.join(sorted(MODULES))} and no other")
    return found.group(2)


def _check_settings(path: Path, module: str) -> None:
    value = read_config(path)
    if not isinstance(value, dict):
        raise BadFile(path, f"cannot be loaded: not the settings of {module}, which are a JSON object")
    if odd := sorted(set(value) - MODULES[module]):
        raise BadFile(path, f"{module} with {listed(odd)}; unrank knows {', '.join(sorted(MODULES[module]))}")
    for key, item in _items(value):
        _check_extent(path, module, key, item)


def _check_extent(path: Path, module: str, key: str, item: Any) -> None:
    """Refuse a number or a text that is far larger than any that a module is given."""
    if isinstance(item, int | float) and not abs(item) <= LARGEST_NUMBER:
        raise BadFile(path, f"{module} with {key} {item}; unrank reads numbers up to {LARGEST_NUMBER:,}")
    if isinstance(item, str) and len(item) > LONGEST_TEXT:
        raise BadFile(path, f"{module} with {key} of {len(item):,} characters; unrank reads up to {LONGEST_TEXT:,}")


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every key with its value, at any depth. A list's items have its key."""
    if isinstance(value, dict):
        for key, item in value.items():
            for each in item if isinstance(item, list) and key != "fast_tokenizer_files" else [item]:
                yield key, each
                yield from _items(each)
    elif isinstance(value, list):
        for item in value:
            yield from _items(item)
