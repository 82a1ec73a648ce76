"""Read JSON values as frozen dataclasses: every field is checked, and an error names the field."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from unrank.disk import LARGEST

NAMES = {float: "a number", int: "a whole number", str: "text", bool: "true or false"}


class WrongValue(ValueError):
    """A JSON value that does not have the form of its field."""


def parse(kind: Any, value: Any, where: str = "") -> Any:
    """Return a JSON value as `kind`: a number, text, bool, tuple, mapping, optional or dataclass of these.

    A number is finite, and true is not a number. A mapping leaves out null values. A field of a dataclass that is
    missing or null takes its default; its metadata may name another JSON key.

    >>> parse(Mapping[str, float], {"a": 1, "b": None})
    {'a': 1}
    """
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _parse_object(kind, value, where)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _parse_union(inner, value, where)
    if origin is tuple:
        items = _expect(value, list, "a list", where)
        return tuple(parse(inner[0], item, f"{where}[{place}]") for place, item in enumerate(items))
    if origin is not None and issubclass(origin, Mapping):
        found = _expect(value, dict, "an object", where)
        return {key: parse(inner[1], item, _below(where, key)) for key, item in found.items() if item is not None}
    if kind is float:
        if type(value) not in (int, float) or not -LARGEST < value < LARGEST:
            raise WrongValue(f"{where or 'the value'} is not a number")
        return value
    return _expect(value, kind, NAMES.get(kind, "null"), where)


def _expect(value: Any, kind: Any, name: str, where: str) -> Any:
    if type(value) is not kind:
        raise WrongValue(f"{where or 'the value'} is not {name}")
    return value


def _parse_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    """Try the kinds in their order; if only one is not null, report its error."""
    if value is None and types.NoneType in kinds:
        return None
    kinds = tuple(kind for kind in kinds if kind is not types.NoneType)
    for kind in kinds[:-1]:
        try:
            return parse(kind, value, where)
        except WrongValue:
            continue
    return parse(kinds[-1], value, where)


def _parse_object(kind: Any, value: Any, where: str) -> Any:
    found = _expect(value, dict, "an object", where)
    given = {}
    for field, of in _typed_fields(kind):
        key = field.metadata.get("key", field.name)
        if found.get(key) is not None:
            given[field.name] = parse(of, found[key], _below(where, key))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise WrongValue(f"{_below(where, key)} is missing")
    return kind(**given)


@functools.cache
def _typed_fields(kind: Any) -> list[tuple[Field[Any], Any]]:
    types_by_name = get_type_hints(kind)
    return [(field, types_by_name[field.name]) for field in fields(kind)]


def _below(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
