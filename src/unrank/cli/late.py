"""Packages that a library imports as it starts, though few of its users need them: they are imported at first use.

sentence-transformers and transformers import scikit-learn, scipy, pandas, datasets and peft, for trainers, evaluators
and losses that no ranker here needs. That takes a fifth of the time in which they are imported, and a small request
spends much of its time on imports. So while a command imports them, a name of such a package stands for itself only:
whoever calls it, makes a class of it or reads an attribute gets the package's own, which is imported then.

Nor does Python look for garbage among all that they make: that takes another fifth.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

UNUSED = ("datasets", "pandas", "peft", "scipy", "sklearn")
"""Packages that rankers need seldom or never, though the libraries import them."""


def import_libraries() -> None:
    """Import the libraries of rankers, without the packages that a command may never use."""
    if "sentence_transformers" in sys.modules:
        return
    gc.disable()
    try:
        with late(UNUSED):
            importlib.import_module("transformers.modeling_utils")
            importlib.import_module("sentence_transformers")
        gc.freeze()
    finally:
        gc.enable()


@contextmanager
def late(packages: Sequence[str]) -> Iterator[None]:
    """Import these packages at the first use of their names, if the block imports them and nothing did before."""
    finder = _LateFinder({name for name in packages if name not in sys.modules and PathFinder.find_spec(name)})
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for package in [*finder.packages]:
            finder.release(package)


class _LateFinder:
    """Finds a late module for every module of some packages."""

    def __init__(self, packages: set[str]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if _package(name) in self.packages else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _LateModule(spec.name, self)

    def exec_module(self, module: ModuleType) -> None:
        return

    def release(self, package: str) -> None:
        """Let the next import of a package be a real one."""
        self.packages.discard(package)
        for name, module in list(sys.modules.items()):
            if isinstance(module, _LateModule) and _package(name) == package:
                del sys.modules[name]


class _LateModule(ModuleType):
    """A module whose names are late."""

    def __init__(self, name: str, finder: _LateFinder) -> None:
        super().__init__(name)
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return _LateName(self.__name__, name, self._finder).own()
        if name.startswith("__"):
            raise AttributeError(name)
        return _LateName(self.__name__, name, self._finder)


class _LateName:
    """A name of a module that is not imported yet."""

    def __init__(self, module: str, name: str, finder: _LateFinder) -> None:
        self._module, self._name, self._finder = module, name, finder

    def own(self) -> Any:
        """Import the module, and return what has this name there."""
        self._finder.release(_package(self._module))
        module = importlib.import_module(self._module)
        try:
            return getattr(module, self._name)
        except AttributeError:
            return importlib.import_module(f"{self._module}.{self._name}")

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.own()(*given, **named)

    def __instancecheck__(self, instance: object) -> bool:
        """Return whether an object is of a class: of none whose module was never imported."""
        return self._is_imported and isinstance(instance, self.own())

    def __subclasscheck__(self, subclass: type) -> bool:
        return self._is_imported and issubclass(subclass, self.own())

    @property
    def _is_imported(self) -> bool:
        module = sys.modules.get(_package(self._module))
        return module is not None and not isinstance(module, _LateModule)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[Any]:
        return (self.own(),)

    def __or__(self, other: Any) -> Any:
        return self.own() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.own()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own(), name)


def _package(name: str) -> str:
    return name.partition(".")[0]
