"""A method as a grid writes it: `cocol`, `cocol:paper` with a preset, `cocol,batch=8` with settings, or both.

What `unrank forget` asks beside the method's settings stands among them: `cocol,train_layers=2,freeze=documents`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from unrank.errors import UnrankError
from unrank.forgetting.freezing import Freeze, check_freeze
from unrank.methods import make_method, read_settings
from unrank.methods.base import Method
from unrank.methods.retrain import Retrain
from unrank.rankers import ranker_class
from unrank.rankers.layers import Layers, read_layers
from unrank.record import current_settings


@dataclass(frozen=True)
class Choice:
    """A method with all its settings, and how the grid called it."""

    method: Method
    preset: str | None
    label: str
    train_layers: Layers | None = None
    freeze: Freeze | None = None


def read_choice(text: str, ranker: str, training: Retrain, epochs: int | None) -> Choice:
    """What a word of the grid means for a ranker. `epochs` bounds every method that is steered."""
    called, _, rest = text.partition(",")
    name, _, preset = (word.strip() for word in called.partition(":"))
    given = read_settings(listed_settings(rest))
    named, freeze = given.pop("train_layers", None), cast(Freeze | None, given.pop("freeze", None))
    layers = read_layers(named) if named is not None else None
    method = make_method(name, given, ranker, preset or None)
    check_freeze(freeze, ranker_class(ranker), method)
    told = {key: getattr(method, key) for key in current_settings(method.name, given)} | {
        "train_layers": layers,
        "freeze": freeze,
    }
    label = f"{method.name}{preset and f':{preset}'}{_told(told)}"
    if method.run_kind == "training":
        if label != method.name:
            raise UnrankError(
                f"{text!r}: retrain is the original's training over again; give its settings by 'training'"
            )
        return Choice(training, None, label)
    if method.run_kind == "steered" and epochs is not None:
        method = make_method(name, {"epochs": str(epochs)} | given, ranker, preset or None)
    return Choice(method, preset or None, label, layers, freeze)


def _told(settings: Mapping[str, object]) -> str:
    """Settings in one order and by their values, so that two spellings of one are one name.

    >>> _told({"negatives": 4, "learning_rate": 5e-5, "freeze": None, "without_disjoint": True, "batch": 32})
    ',batch=32,learning_rate=5e-05,negatives=4,without_disjoint=true'
    """
    return "".join(f",{name}={_shown(value)}" for name, value in sorted(settings.items()) if value is not None)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def listed_settings(text: str) -> list[str]:
    """
    >>> listed_settings("epochs=3, scale=paper"), listed_settings("")
    (['epochs=3', 'scale=paper'], [])
    """
    return [item for part in text.split(",") if (item := part.strip())]
