"""A method as a grid writes it: `cocol`, `cocol:paper` with a preset, `cocol,batch=8` with settings, or both.

`train_layers` and `freeze`, which are options of `unrank forget`, are written among the settings:
`cocol,train_layers=2,freeze=documents`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from unrank.errors import UnrankError
from unrank.forgetting.options import Freeze
from unrank.forgetting.validation import check_freeze
from unrank.methods import make_method, read_settings
from unrank.methods.base import Method
from unrank.methods.retrain import Retrain
from unrank.rankers import ranker_class
from unrank.rankers.layers import Layers, read_layers
from unrank.record import current_settings


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


def read_method_spec(text: str, ranker: str, training: Retrain, epochs: int | None) -> MethodSpec:
    """Read a method of the grid for a ranker. `epochs` is the limit of every method that is run to a target."""
    called, _, rest = text.partition(",")
    name, _, preset = (word.strip() for word in called.partition(":"))
    given = read_settings(split_settings(rest))
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
