"""How it forgets: one file a method; `METHODS` names them."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, cast, get_args, get_origin, get_type_hints

from unrank.errors import UnknownName, UnrankError
from unrank.formats import current_settings
from unrank.rankers import RANKERS

if TYPE_CHECKING:
    from unrank.methods.base import Method


@dataclass(frozen=True)
class MethodEntry:
    """Where a method's class lives; it is imported when it is first used, and torch with it."""

    module: str
    name: str
    summary: str
    alias: str = ""
    own: type[Method] | None = None

    @classmethod
    def of(cls, method: type[Method], summary: str, alias: str = "") -> MethodEntry:
        """The entry of a class that is there already: a method of one's own."""
        return cls(method.__module__, method.__name__, summary, alias, method)

    @property
    def method(self) -> type[Method]:
        if self.own is not None:
            return self.own
        return cast("type[Method]", getattr(importlib.import_module(f"unrank.methods.{self.module}"), self.name))


METHODS: dict[str, MethodEntry] = {
    "cocol": MethodEntry("cocol", "Cocol", "pushes the forgotten down, holds the rest in place; the default"),
    "retrain": MethodEntry("retrain", "Retrain", "trains anew on what is kept; the yardstick, and the cost to beat"),
    "finetune": MethodEntry("finetune", "Finetune", "goes on training on what is kept; forgets little", "cf"),
    "amnesiac": MethodEntry("amnesiac", "Amnesiac", "trains on the forgotten turned round, and on the entangled"),
    "neggrad": MethodEntry("neggrad", "NegGrad", "climbs the loss on the forgotten; nothing holds the rest"),
    "ssd": MethodEntry("ssd", "SelectiveDampening", "dampens, once, the weights that matter most to the forgotten"),
    "bad-teacher": MethodEntry("bad_teacher", "BadTeacher", "an untrained ranker teaches the forgotten", "badt"),
}


def read_settings(given: Iterable[str]) -> dict[str, str]:
    """Settings as users write them.

    >>> read_settings(["epochs=3", "learning-rate = 1e-5"])
    {'epochs': '3', 'learning_rate': '1e-5'}
    """
    settings: dict[str, str] = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals:
            raise UnrankError(f"{item!r} is no setting: expected NAME=VALUE, such as epochs=10")
        name = name.strip().replace("-", "_")
        if name in settings:
            raise UnrankError(f"{name} is given twice: take one out")
        settings[name] = value.strip()
    return settings


def make_method(
    name: str, settings: Mapping[str, str] | None = None, ranker: str | None = None, preset: str | None = None
) -> Method:
    """The method that a user's word means, with settings given as text.

    Where none is given, those that suit the ranker count, and then the preset's.

    >>> make_method("cocol", {"scale": "paper", "epochs": "3"}).epochs
    3
    >>> make_method("retrain", ranker="duet").learning_rate
    0.0005
    """
    for known, entry in METHODS.items():
        if name and name.lower() in (known, entry.alias):
            kinds = settings_of(entry.method)
            named = current_settings(known, settings or {})
            given = {key: _parsed(known, kinds, key, value) for key, value in named.items()}
            recipe = RANKERS[ranker].recipes.get(known, {}) if ranker in RANKERS else {}
            return entry.method(**{**_preset(entry.method, preset), **recipe, **given})
    raise UnknownName("method", name, METHODS)


def _preset(method: type[Method], name: str | None) -> Mapping[str, Any]:
    if name is None:
        return {}
    if not method.presets:
        raise UnrankError(f"{method.name} has no presets, so {name!r} is none of them; give its settings with --set")
    if name not in method.presets:
        raise UnknownName(f"preset of {method.name}", name, method.presets)
    return method.presets[name]


def settings_of(method: type[Method]) -> dict[str, Any]:
    """The type of each setting of a method."""
    kinds = get_type_hints(method)
    return {field.name: kinds[field.name] for field in fields(method)}


def _parsed(method: str, kinds: Mapping[str, Any], key: str, text: str) -> Any:
    if key not in kinds:
        raise UnknownName(f"setting of {method}", key, kinds)
    kind = kinds[key]
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise UnknownName(f"value of {key}", text, get_args(kind))
        return text
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise UnrankError(f"{key} is true or false, not {text!r}")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError as error:
        raise UnrankError(f"{key} takes {'a whole number' if kind is int else 'a number'}, not {text!r}") from error


def source_hash(method: type[Method]) -> str | None:
    """Return a hash of the code of a method: of its file, and of the files of the classes that it builds on.

    Comments, docstrings and layout do not count. `None` if there is no source, as for a class typed into a prompt.
    """
    modules = {parent.__module__ for parent in method.__mro__} - {"builtins", "abc", "unrank.methods.base"}
    try:
        sources = [inspect.getsource(importlib.import_module(module)) for module in sorted(modules)]
    except (OSError, TypeError, ImportError):
        return None
    return hashlib.sha256("\n".join(map(_code_alone, sources)).encode()).hexdigest()


def _code_alone(source: str) -> str:
    """Return Python source without comments and docstrings, in one layout.

    >>> _code_alone("f = lambda:  1  # one")
    'f = lambda: 1'
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            code = [part for part in node.body if not _is_text(part)]
            node.body = code or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
