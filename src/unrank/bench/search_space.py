"""The settings of a method that a search tries, and their ranges.

A method may declare them: `search: ClassVar = {"beta": (0.01, 1.0), "teacher": ("initial", "random")}`. Two numbers are
the ends of a range, of whole numbers if the setting is one. Texts are choices, and so are true and false. Otherwise
every setting that is a fraction is searched around its default, within its limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from zlib import crc32

import numpy as np

from unrank.bench.method_spec import split_settings
from unrank.disk import LARGEST
from unrank.errors import UnknownName, UnrankError
from unrank.methods import make_method, read_settings, settings_of
from unrank.methods.base import Method

AROUND = 8.0
"""A setting without a declared range is tried from its default divided by this to its default times this."""
NUMBERS: Mapping[object, str] = {int: "two whole numbers", float: "two numbers"}
"""The types of settings that have a range, and its ends in words."""
Range = tuple[float, float]
"""The ends of a range. Both are `int` if the setting is a whole number, else both are `float`."""
Searched = Range | tuple[str, ...]
Space = Mapping[str, Searched]


def search_space(method: Method) -> dict[str, Searched]:
    """Return the settings to search, with their ranges or choices. `method` has the settings that suit its ranker."""
    if method.run_kind == "training":
        raise UnrankError(f"{method.name} is the reference, so it is not tuned: tune a method that forgets")
    if declared := method.search:
        if not isinstance(declared, Mapping):
            raise UnrankError(f"{method.name} declares the search {declared!r}: expected settings with their ranges")
        return {name: _declared(method, name, values) for name, values in declared.items()}
    fractions = [name for name, kind in settings_of(type(method)).items() if kind is float]
    if method.run_kind == "edit":
        fractions.remove("learning_rate")  # it takes no steps
    around = {name: _around(method, name) for name in fractions if getattr(method, name) > 0}
    found: dict[str, Searched] = {name: (low, high) for name, (low, high) in around.items() if low < high}
    if not found:
        raise UnrankError(f"{method.name} has no setting to search: give it a 'search' of settings and ranges")
    return found


def _declared(method: Method, name: str, values: object) -> Searched:
    """Return the range or the choices that a method declares of a setting, by the type of the setting."""
    kinds = settings_of(type(method))
    if name not in kinds:
        raise UnknownName(f"setting in the search of {method.name}", str(name), kinds)
    kind, given = kinds[name], list(values) if isinstance(values, tuple | list) else []
    least, most = method.limits.get(name, (1 if kind is int else 0, math.inf))
    if kind in NUMBERS and len(given) == 2 and all(_is_number(end, kind) for end in given):
        low, high = given
        if max(least, -LARGEST) <= low < high <= min(most, LARGEST):
            return (low, high) if kind is int else (float(low), float(high))
    choices = [str(item).lower() if kind is bool and isinstance(item, bool) else item for item in given]
    if not all(isinstance(item, str) for item in choices) or len({*choices}) < 2:
        ends = f"from {least:.12g} {'on' if most == math.inf else f'to {most:.12g}'}, the lower one first, or "
        numbers = f"{NUMBERS[kind]} {ends}" if kind in NUMBERS else ""
        raise UnrankError(
            f"{method.name} declares the search {values!r} of {name!r}: expected {numbers}"
            f"{'True and False' if kind is bool else 'two or more different texts'}"
        )
    for text in choices:
        _check_choice(method, name, text)
    return tuple(choices)


def _is_number(value: object, kind: object) -> bool:
    return isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)


def _check_choice(method: Method, name: str, text: str) -> None:
    """Raise an error if a choice cannot be written as a setting, or is none of this setting."""
    try:
        if read_settings(split_settings(f"{name}={text}")) != {name: text}:
            raise UnrankError(f"{text!r} cannot be written as a setting: take out its commas and outer spaces")
        make_method(method.name, {name: text})
    except UnrankError as error:
        raise UnrankError(f"{method.name} declares a search of {name!r}: {error}") from error


def _around(method: Method, name: str) -> Range:
    """Return the range of a setting: its limits if the upper one is finite, else around its default within them."""
    least, most = method.limits.get(name, (0.0, math.inf))
    if math.isfinite(most):
        low, high = max(least, 0.05 * most), 0.95 if most == 1 else most
        return low, high if low < high else most
    default = getattr(method, name)
    return max(least, default / AROUND), default * AROUND


def draw_trials(
    method: Method, space: Space, trials: int, seed: int, ranker: str | None = None
) -> Iterator[dict[str, str]]:
    """Yield the settings of each trial as text: first the method's own, then drawn at random, no two alike.

    The draws depend on the method's name and the seed alone, so the first of many trials are those of few. They end
    early if no other settings are drawn from a small space. `method` has the settings that suit `ranker`.
    """
    yield {}
    generator, seen = np.random.default_rng([seed, crc32(method.name.encode())]), {method}
    for _ in range(100 * trials):
        if len(seen) == trials:
            return
        drawn = {name: _draw(generator, values) for name, values in space.items()}
        made = make_method(method.name, drawn, ranker)
        if made not in seen:
            seen.add(made)
            yield drawn


def _draw(generator: np.random.Generator, values: Searched) -> str:
    """Return a value as text: a choice, a whole number, or a number with three digits; more in a narrow range."""
    if isinstance(values[0], str):
        return str(values[int(generator.integers(len(values)))])
    low, high = (end for end in values if not isinstance(end, str))
    share, whole = generator.random(), isinstance(low, int)
    value = min(max(_between(low, high + whole, share), low), high)
    if whole:
        return str(math.floor(value))
    digits = 2 + max(1, math.ceil(math.log10(max(abs(low), abs(high)) / (high - low))))
    texts = (f"{value:.{number}g}" for number in range(min(digits, 17), 18))
    return next(text for text in texts if low <= float(text) <= high)


def _between(low: float, high: float, share: float) -> float:
    """Return the number at a share of a range, on a logarithmic scale if the range spans a factor of 4.

    >>> _between(1, 100, 0.5), _between(1, 3, 0.5)
    (10.0, 2.0)
    """
    wide = low > 0 and high / low >= 4
    return low * (high / low) ** share if wide else low + (high - low) * share
