"""The settings of a method that a search tries, and their ranges.

A method may declare them: `search: ClassVar = {"beta": (0.01, 1.0), "teacher": ("initial", "random")}`. Two numbers are
the ends of a range, and texts are choices. Otherwise every setting that is a fraction is searched around its default.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from zlib import crc32

import numpy as np

from unrank.errors import UnrankError
from unrank.methods import settings_of
from unrank.methods.base import Method

AROUND = 8.0
"""A setting without a declared range is tried from its default divided by this to its default times this."""
Range = tuple[float, float]
Space = Mapping[str, Range | Sequence[str]]


def search_space(method: Method) -> dict[str, Range | Sequence[str]]:
    """Return the settings to search, with their ranges or choices. `method` has the settings that suit its ranker."""
    if method.run_kind == "training":
        raise UnrankError(f"{method.name} is the reference, so it is not tuned: tune a method that forgets")
    kinds = settings_of(type(method))
    if declared := method.search:
        for name, values in declared.items():
            if name not in kinds or len(values) < 2:
                raise UnrankError(f"{method.name} declares a search of {name!r}: expected a setting, and two values")
        return dict(declared)
    fractions = [name for name, kind in kinds.items() if kind is float]
    if method.run_kind == "edit":
        fractions.remove("learning_rate")  # it takes no steps
    found = {name: _around(method, name) for name in fractions if getattr(method, name) > 0}
    if not found:
        raise UnrankError(f"{method.name} has no setting to search: give it a 'search' of settings and ranges")
    return dict(found)


def _around(method: Method, name: str) -> Range:
    """Return the range of a setting: its limits if both are finite, else around its default."""
    least, most = method.limits.get(name, (0.0, math.inf))
    if math.isfinite(most):
        return max(least, 0.05 * most), most if name not in method.limits or most != 1 else 0.95
    default = getattr(method, name)
    return default / AROUND, default * AROUND


def draw_trials(method: Method, space: Space, trials: int, seed: int) -> Iterator[dict[str, str]]:
    """Yield the settings of each trial as text: first the method's own, then drawn at random.

    The draws depend on the method's name and the seed alone, so the first of many trials are those of few.
    """
    yield {}
    generator, seen = np.random.default_rng([seed, crc32(method.name.encode())]), set[tuple[str, ...]]()
    for _ in range(100 * trials):
        if len(seen) == trials - 1:
            return
        drawn = {name: _draw(generator, values) for name, values in space.items()}
        if tuple(drawn.values()) not in seen:
            seen.add(tuple(drawn.values()))
            yield drawn
    raise UnrankError(f"{method.name} has fewer than {trials} different settings to try: give fewer --trials")


def _draw(generator: np.random.Generator, values: Range | Sequence[str]) -> str:
    """Return a value as text: numbers with three digits, on a logarithmic scale if the range spans a factor of 4."""
    if isinstance(values[0], str):
        return str(values[int(generator.integers(len(values)))])
    low, high = (float(value) for value in values)
    share = generator.random()
    wide = low > 0 and high / low >= 4
    return f"{low * (high / low) ** share if wide else low + (high - low) * share:.3g}"
