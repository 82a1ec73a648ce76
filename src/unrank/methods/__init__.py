"""The methods of unlearning, one file each. `METHODS` names unrank's own, `CATALOGUE` those of other packages too."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, cast, get_args, get_origin, get_type_hints

from unrank.errors import UnknownName, UnrankError
from unrank.plugins import Catalogue, summary_of
from unrank.rankers import CATALOGUE as RANKERS
from unrank.record import current_settings

if TYPE_CHECKING:
    from unrank.methods.base import Method, Settings


@dataclass(frozen=True)
class MethodEntry:
    """A method's class, imported with torch when it is first used, and the line that `unrank list methods` prints."""

    module: str
    name: str
    summary: str
    alias: str = ""
    own: type[Method] | None = None

    @classmethod
    def of(cls, method: type[Method], summary: str, alias: str = "") -> MethodEntry:
        """Return the entry of a class that is imported already."""
        return cls(method.__module__, method.__name__, summary, alias, method)

    @property
    def method(self) -> type[Method]:
        if self.own is not None:
            return self.own
        return cast("type[Method]", getattr(importlib.import_module(f"unrank.methods.{self.module}"), self.name))


METHODS: dict[str, MethodEntry] = {
    "cocol": MethodEntry("cocol", "Cocol", "pushes forget pairs down and holds the others in place; the default"),
    "retrain": MethodEntry("retrain", "Retrain", "trains again on the kept pairs; the reference, and the cost to beat"),
    "finetune": MethodEntry("finetune", "Finetune", "goes on training on the kept pairs; forgets little", "cf"),
    "amnesiac": MethodEntry("amnesiac", "Amnesiac", "trains on swapped forget pairs and on the entangled pairs"),
    "neggrad": MethodEntry("neggrad", "NegGrad", "maximises the loss on the forget pairs; nothing protects the others"),
    "ssd": MethodEntry("ssd", "SelectiveDampening", "dampens the weights that matter most to the forget pairs"),
    "bad-teacher": MethodEntry("bad_teacher", "BadTeacher", "learns the forget pairs from an untrained ranker", "badt"),
    "neggrad-plus": MethodEntry("neggrad_plus", "NegGradPlus", "raises the loss of forget pairs and lowers others'"),
    "scrub": MethodEntry("scrub", "Scrub", "leaves the original's lists on forget pairs, and learns the others"),
    "npo": MethodEntry("npo", "NegativePreference", "makes forget pairs less likely than the original has them"),
    "simnpo": MethodEntry("simnpo", "SimplePreference", "makes forget pairs less likely, without a teacher"),
    "undial": MethodEntry("undial", "Undial", "learns the original's lists with forget pairs lowered"),
    "salun": MethodEntry("salun", "SalientUnlearning", "teaches wrong answers with the weights that matter most"),
    "task-negation": MethodEntry("task_negation", "TaskNegation", "learns the forget pairs, and goes the other way"),
    "curd": MethodEntry(
        "curd", "Corrective", "lowers removed documents and raises their substitutes; needs substitutes"
    ),
}


def _adopt(name: str, found: Any) -> MethodEntry:
    """Return the entry of a method of another package: a class, or an entry that the package made."""
    from unrank.methods.base import Method

    if isinstance(found, type) and issubclass(found, Method):
        found = MethodEntry.of(found, summary_of(found))
    if not isinstance(found, MethodEntry):
        raise UnrankError("its entry point names neither a Method class nor a MethodEntry")
    if found.method.name != name:
        raise UnrankError(f"its entry point says {name!r} and its class {found.method.name!r}")
    return replace(found, alias="")


CATALOGUE = Catalogue("method", METHODS, _adopt)


def read_settings(given: Iterable[str]) -> dict[str, str]:
    """Read settings as users write them.

    >>> read_settings(["epochs=3", "learning-rate = 1e-5"])
    {'epochs': '3', 'learning_rate': '1e-5'}
    """
    settings: dict[str, str] = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals:
            raise UnrankError(f"{item!r} is not a setting: expected NAME=VALUE, such as epochs=10")
        name = name.strip().replace("-", "_")
        if name in settings:
            raise UnrankError(f"{name} is given twice: take one out")
        settings[name] = value.strip()
    return settings


def make_method(
    name: str, settings: Mapping[str, str] | None = None, ranker: str | None = None, preset: str | None = None
) -> Method:
    """Make the method that a user's word means, with settings given as text.

    Other settings are those that suit the ranker, then those of the preset, then the method's own.

    >>> make_method("cocol", {"scale": "paper", "epochs": "3"}).epochs
    3
    >>> make_method("retrain", ranker="duet").learning_rate
    0.0005
    """
    known, entry = CATALOGUE.find(name)
    kinds = settings_of(entry.method)
    named = current_settings(known, settings or {})
    given = {key: _parsed(known, kinds, key, value) for key, value in named.items()}
    suited = RANKERS.get(ranker)
    recipe = suited.recipes.get(known, {}) if suited is not None else {}
    return entry.method(**{**_preset(entry.method, preset), **recipe, **given})


def _preset(method: type[Method], name: str | None) -> Settings:
    if name is None:
        return {}
    if not method.presets:
        raise UnrankError(f"{method.name} has no presets, so it cannot take {name!r}: give its settings with --set")
    if name not in method.presets:
        raise UnknownName(f"preset of {method.name}", name, method.presets)
    return method.presets[name]


def settings_of(method: type[Method]) -> dict[str, object]:
    """Return the type of each setting of a method."""
    kinds = get_type_hints(method)
    return {field.name: kinds[field.name] for field in fields(method)}


def _parsed(method: str, kinds: Mapping[str, object], key: str, text: str) -> bool | int | float | str:
    """Read the text of a setting by its type."""
    if key not in kinds:
        raise UnknownName(f"setting of {method}", key, kinds)
    kind = kinds[key]
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise UnknownName(f"value of {key}", text, get_args(kind))
        return text
    if kind is bool:
        if str(text).lower() not in ("true", "false"):
            raise UnrankError(f"{key} is true or false, not {text!r}")
        return str(text).lower() == "true"
    if kind not in (int, float):
        return text
    try:
        return int(text) if kind is int else float(text)
    except ValueError as error:
        raise UnrankError(f"{key} takes {'a whole number' if kind is int else 'a number'}, not {text!r}") from error


def source_hash(method: type[Method]) -> str | None:
    """Return a hash of the code of a method: of its file, and of the files of the classes that it builds on.

    Outside unrank, modules that these import from their own package or folder count too. Comments, docstrings and
    layout do not count. `None` if there is no source, as for a class typed into a prompt.
    """
    modules = {parent.__module__ for parent in method.__mro__} - {"builtins", "abc", "unrank.methods.base"}
    try:
        sources = [inspect.getsource(importlib.import_module(module)) for module in sorted(_with_helpers(modules))]
    except (OSError, TypeError, ImportError):
        return None
    return hashlib.sha256("\n".join(map(_code_alone, sources)).encode()).hexdigest()


def _with_helpers(modules: Set[str]) -> set[str]:
    """Return modules, and those outside unrank that they import from their own package or folder."""
    found, left = set[str](), [*modules]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += [] if name.partition(".")[0] == "unrank" else _imported_beside(importlib.import_module(name))
    return found


def _imported_beside(module: ModuleType) -> Iterator[str]:
    """Yield the modules that a module imports from its own package, or from its folder if it is in no package."""
    package, folder = module.__package__ or "", Path(inspect.getfile(module)).parent
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            whole = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            names = [whole, *(f"{whole}.{name}" for name in names)]
        for name in names:
            with suppress(ImportError, ValueError):
                spec = importlib.util.find_spec(name)
                own = package and name.partition(".")[0] == package.partition(".")[0]
                if spec and spec.origin and (own or (not package and Path(spec.origin).parent == folder)):
                    yield name


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
