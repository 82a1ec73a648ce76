"""A method as a grid writes it: `cocol`, `cocol:paper` with a preset, `cocol,held=4` with settings, or both."""

from __future__ import annotations

from dataclasses import dataclass

from unrank.errors import UnrankError
from unrank.methods import make_method
from unrank.methods.base import Method
from unrank.methods.retrain import Retrain


@dataclass(frozen=True)
class Choice:
    """A method with all its settings, and how the grid called it."""

    method: Method
    preset: str | None
    label: str


def read_choice(text: str, ranker: str, training: Retrain, epochs: int | None) -> Choice:
    """What a word of the grid means for a ranker. `epochs` bounds every method that is steered."""
    called, _, rest = text.partition(",")
    name, _, preset = (word.strip() for word in called.partition(":"))
    given = read_settings(rest)
    method = make_method(name, given, ranker, preset or None)
    label = f"{method.name}{preset and f':{preset}'}{''.join(f',{key}={value}' for key, value in given.items())}"
    if isinstance(method, Retrain):
        if label != method.name:
            raise UnrankError(
                f"{text!r}: retrain is the original's training over again; give its settings by 'training'"
            )
        return Choice(training, None, label)
    if method.steered and epochs is not None:
        method = make_method(name, {"epochs": str(epochs)} | given, ranker, preset or None)
    return Choice(method, preset or None, label)


def read_settings(text: str) -> dict[str, str]:
    """
    >>> read_settings("epochs=3, scale=paper"), read_settings("")
    ({'epochs': '3', 'scale': 'paper'}, {})
    """
    settings = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        name, equals, value = item.partition("=")
        if not equals:
            raise UnrankError(f"{item!r} is no setting: expected name=value, such as epochs=10")
        settings[name.strip().replace("-", "_")] = value.strip()
    return settings
