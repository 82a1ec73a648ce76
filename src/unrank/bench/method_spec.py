"""A method as a grid writes it: `cocol`, `cocol:paper` with a preset, `cocol,batch=8` with settings, or both.

The preset `tuned` means the settings that `unrank tune` froze in the file that the grid names (`settings_from`).
`train_layers` and `freeze`, which are options of `unrank forget`, are written among the settings:
`cocol,train_layers=2,freeze=documents`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from unrank.disk import fits, read_json
from unrank.errors import BadFile, UnrankError
from unrank.forgetting.options import Freeze
from unrank.forgetting.validation import check_freeze
from unrank.methods import CATALOGUE, make_method, read_settings, source_hash
from unrank.methods.base import Method
from unrank.methods.retrain import Retrain
from unrank.parse import WrongValue, parse
from unrank.rankers import ranker_class
from unrank.rankers.layers import Layers, read_layers
from unrank.record import current_settings

TUNED = 1
"""The format of a file of frozen settings."""
PRESET = "tuned"


@dataclass(frozen=True)
class TunedSettings:
    """Settings of a method that were frozen for a ranker, and the collection that they were chosen on."""

    method: str
    ranker: str
    settings: Mapping[str, str]
    collection: str
    fingerprint: str
    method_source: str | None = None


Tuned = Mapping[tuple[str, str], TunedSettings]
"""Frozen settings by method and ranker."""
NONE_TUNED: Tuned = MappingProxyType({})


def read_tuned(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a file of frozen settings."""
    value = read_json(path)
    if not isinstance(value, dict) or value.get("format") != TUNED:
        raise BadFile(path, f"not a file of frozen settings (format {TUNED}), as 'unrank tune' writes them")
    if not fits(value.get("tuned"), [{"method": str, "ranker": str}]):
        raise BadFile(path, "damaged: an entry lacks its method or ranker; tune again")
    return cast(list[dict[str, Any]], value["tuned"])


def tuned_settings(path: Path) -> Tuned:
    """Return the frozen settings of a file by method and ranker."""
    try:
        found: list[TunedSettings] = [parse(TunedSettings, entry) for entry in read_tuned(path)]
    except WrongValue as error:
        raise BadFile(path, f"damaged: {error}; tune again") from error
    return {(each.method, each.ranker): each for each in found}


def _frozen(name: str, ranker: str, tuned: Tuned) -> dict[str, str]:
    """Return the frozen settings of a method for a ranker; refuse those of other code."""
    known, entry = CATALOGUE.find(name)
    if (known, ranker) not in tuned:
        there: Sequence[str] = sorted(f"{method} for {kind}" for method, kind in tuned)
        raise UnrankError(
            f"no frozen settings of {known} for {ranker} are known: run 'unrank tune {known}', and name its file in "
            f"'settings_from' (there: {', '.join(there) or 'none'})"
        )
    found = tuned[known, ranker]
    if found.method_source is not None and found.method_source != source_hash(entry.method):
        raise UnrankError(f"the code of {known} changed since its settings were frozen: tune it again")
    return {key: str(value) for key, value in found.settings.items()}


@dataclass(frozen=True)
class MethodSpec:
    """A method with its settings, and its name in the grid."""

    method: Method
    preset: str | None
    label: str
    train_layers: Layers | None = None
    freeze: Freeze | None = None

    @property
    def steered(self) -> bool:
        """True if the method is run until a target is reached."""
        return self.method.run_kind == "steered"


def read_method_spec(
    text: str, ranker: str, training: Retrain, epochs: int | None, tuned: Tuned = NONE_TUNED
) -> MethodSpec:
    """Read a method of the grid for a ranker. `epochs` is the limit of every method that is run to a target."""
    called, _, rest = text.partition(",")
    name, _, preset = (word.strip() for word in called.partition(":"))
    given = read_settings(split_settings(rest))
    if preset == PRESET:
        return _tuned_spec(name, given, ranker, epochs, tuned)
    named, freeze = given.pop("train_layers", None), cast(Freeze | None, given.pop("freeze", None))
    layers = read_layers(named) if named is not None else None
    method = make_method(name, given, ranker, preset or None)
    check_freeze(freeze, ranker_class(ranker), method)
    if method.needs_substitutes:
        raise UnrankError(f"{method.name} needs substitutes, and a sampled removal has none: use 'unrank forget'")
    settings = {key: getattr(method, key) for key in current_settings(method.name, given)}
    label = f"{method.name}{preset and f':{preset}'}{_written(settings | {'train_layers': layers, 'freeze': freeze})}"
    if method.run_kind == "training":
        if label != method.name:
            raise UnrankError(f"{text!r}: retrain trains as the original was trained; write its settings in 'training'")
        return MethodSpec(training, None, label)
    if method.run_kind == "steered" and epochs is not None:
        method = make_method(name, {"epochs": str(epochs)} | given, ranker, preset or None)
    return MethodSpec(method, preset or None, label, layers, freeze)


def _tuned_spec(name: str, given: Mapping[str, str], ranker: str, epochs: int | None, tuned: Tuned) -> MethodSpec:
    """Return a method with its frozen settings. Nothing is set beside them: they would not be the frozen ones."""
    if given:
        raise UnrankError(f"{name}:{PRESET} takes no other settings, so not {', '.join(given)}: they are frozen")
    limit = {"epochs": str(epochs)} if epochs is not None else {}
    method = make_method(name, limit | _frozen(name, ranker, tuned), ranker)
    return MethodSpec(method, PRESET, f"{method.name}:{PRESET}")


def _written(settings: Mapping[str, object]) -> str:
    """Write settings by name and value, so that two spellings of one setting give one label.

    >>> _written({"negatives": 4, "learning_rate": 5e-5, "freeze": None, "without_disjoint": True, "batch": 32})
    ',batch=32,learning_rate=5e-05,negatives=4,without_disjoint=true'
    """
    return "".join(f",{name}={_value(value)}" for name, value in sorted(settings.items()) if value is not None)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def split_settings(text: str) -> list[str]:
    """Split settings at commas.

    >>> split_settings("epochs=3, scale=paper"), split_settings("")
    (['epochs=3', 'scale=paper'], [])
    """
    return [item for part in text.split(",") if (item := part.strip())]
