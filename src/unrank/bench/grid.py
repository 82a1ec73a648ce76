"""A grid file: flat TOML. Values at its top apply to every table; each table is one section of the grid.

A section means every combination of its lists. Impossible values are refused before anything is run.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from unrank.collection.removal import Kind
from unrank.disk import fits
from unrank.errors import BadFile, UnknownName, UnrankError
from unrank.forgetting.options import Pace
from unrank.forgetting.target import ALSO_PLACES, PLACES, beyond_of, check_target_name
from unrank.methods import METHODS
from unrank.rankers import ranker_kind
from unrank.record import MARGIN

TOO_LARGE = 2**63
"""Libraries take seeds below this."""


@dataclass(frozen=True)
class Section:
    """The lists of a section, and the values that all its cells share."""

    collections: tuple[str, ...]
    rankers: tuple[str, ...]
    removals: tuple[str, ...] = ("documents", "queries")
    shares: tuple[float, ...] = (0.25,)
    methods: tuple[str, ...] = ()
    """Every method of unrank's own, if none is named. One of another package must be named."""
    destinations: tuple[str, ...] = ("destination-2",)
    seeds: tuple[int, ...] = (0,)
    removal_seeds: tuple[int, ...] = (0,)
    """Draws of what is removed. `removal_seed` in a grid is one draw."""
    base: str | None = None
    words: str | None = None
    training: str = ""
    epochs: int | None = None
    minutes: float | None = None
    check_every: int | None = None
    watch: int = 0
    recovery: bool = False
    reserve: bool = True
    settings_from: str = ""
    """The file of frozen settings, for methods with the preset `tuned`."""
    primary: str = ""
    """The method whose comparison with the others is said beforehand, as tables name it; empty if there is none."""
    margin: float | None = None
    """How much of the original's MRR on entangled, disjoint and test a method may lose, if it is said beforehand."""

    @property
    def lists(self) -> tuple[tuple[object, ...], ...]:
        """The lists whose combinations are the cells."""
        return tuple(getattr(self, name) for name in LISTS)

    def __post_init__(self) -> None:
        for ranker in self.rankers:
            ranker_kind(ranker)
        for removal in self.removals:
            if removal not in get_args(Kind):
                raise UnknownName("removal", removal, get_args(Kind))
        for share in self.shares:
            if not 0 < share < 1:
                raise UnrankError(f"a share of {share:g} cannot be removed: give one between 0 and 1, such as 0.05")
        for target in self.destinations:
            check_target_name(target)
            if beyond_of(target) is not None:
                raise UnrankError(f"a bench compares forget MRRs, and {target} is none: use it with 'unrank forget'")
        object.__setattr__(self, "destinations", tuple(map(_canonical, self.destinations)))
        if self.margin is not None and not 0 < self.margin < 1:
            raise UnrankError(f"the margin must be between 0 and 1, such as {MARGIN}, not {self.margin:g}")
        for number in (*self.seeds, *self.removal_seeds, self.watch):
            if number < 0:
                raise UnrankError(f"seeds and watch must be 0 or more, not {number}")
            if number >= TOO_LARGE:
                raise UnrankError(f"{number} is too large: seeds and watch are less than {TOO_LARGE}")
        Pace(self.check_every, self.minutes)
        if not self.methods:
            usual = [name for name, entry in METHODS.items() if not entry.method.needs_substitutes]
            object.__setattr__(self, "methods", tuple(usual))


LISTS: Mapping[str, type] = {
    "collections": str, "rankers": str, "removals": str, "shares": float, "methods": str, "destinations": str,
    "seeds": int, "removal_seeds": int,
}  # fmt: skip
VALUES: Mapping[str, type] = {
    "removal_seed": int, "settings_from": str, "primary": str, "margin": float,
    "base": str, "words": str, "training": str, "epochs": int, "minutes": float,
    "check_every": int, "watch": int, "recovery": bool, "reserve": bool,
}  # fmt: skip
KEYS = [*(field.name for field in fields(Section)), "removal_seed"]
KINDS = {str: "a text", float: "a number", int: "a whole number", bool: "true or false"}


def _canonical(target: str) -> str:
    """Return one spelling of a target.

    >>> _canonical(".50"), _canonical("50.0 %"), _canonical("unseen")
    ('0.5', '50%', 'places')
    """
    number = target.removesuffix("%")
    try:
        return f"{float(number):.12g}{target[len(number) :]}"
    except ValueError:
        return PLACES if target == ALSO_PLACES else target


def read_grid(path: Path, instead: Mapping[str, str] = MappingProxyType({})) -> dict[str, Section]:
    """Return the sections of a grid by name; '' is the name of the only section of a file without tables.

    `instead` replaces values of the file, in every section.
    """
    if not path.is_file():
        raise BadFile(path, "a folder, not a grid file" if path.is_dir() else "no such grid file")
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error
    except UnicodeDecodeError as error:
        raise BadFile(path, "not UTF-8 text") from error
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise BadFile(path, f"not TOML: {error}") from error
    tables = {key: table for key, table in value.items() if isinstance(table, dict)}
    top = {key: item for key, item in value.items() if key not in tables}
    given = {key: _value(key, text) for key, text in instead.items()}
    return {name: _section(path, name, top | table | given) for name, table in (tables or {"": {}}).items()}


def _value(key: str, text: str) -> Any:
    """Read a value of the command line: as in the file, but a text needs no quotes and one item no brackets."""
    value: Any = text
    if text.startswith("[") or LISTS.get(key, VALUES.get(key, str)) is not str:
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError as error:
            raise UnrankError(f"{key}={text}: expected a value as a grid writes it, such as 3 or [3, 4]") from error
    return [value] if key in LISTS and not isinstance(value, list) else value


def _section(path: Path, name: str, given: Mapping[str, object]) -> Section:
    where = f"{path}, [{name}]" if name else f"{path}"
    read = {key: _read(where, key, value) for key, value in given.items()}
    if "removal_seed" in read:
        if "removal_seeds" in read:
            raise BadFile(where, "'removal_seed' and 'removal_seeds' are both given: take one out")
        read["removal_seeds"] = (read.pop("removal_seed"),)
    for key in ("collections", "rankers"):
        if key not in read:
            raise BadFile(where, f"{key!r} is missing: a grid needs collections and rankers")
    try:
        return Section(**read)
    except UnrankError as error:
        raise BadFile(where, str(error)) from error


def _read(where: str, key: str, value: Any) -> Any:
    if key not in KEYS:
        raise UnknownName(f"key of {where}", key, KEYS)
    if key in VALUES:
        return _item(where, key, value, VALUES[key])
    if not isinstance(value, list) or not value:
        raise BadFile(where, f"{key!r} must be a list with at least one item")
    if key == "destinations":
        value = [str(item) if isinstance(item, int | float) else item for item in value]
    return tuple(_item(where, key, item, LISTS[key]) for item in value)


def _item(where: str, key: str, value: Any, kind: type) -> Any:
    if not fits(value, kind):
        raise BadFile(where, f"{key!r} takes {KINDS[kind]}, not {value!r}")
    return float(value) if kind is float else value
