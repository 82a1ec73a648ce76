"""Packages that a library imports as it starts, though few of its users need them: they are imported at first use.

sentence-transformers and transformers import scikit-learn, scipy, pandas, datasets and peft, for trainers, evaluators
and losses that no ranker here needs, and torch's compiler, though nothing is compiled. That takes two fifths of the
time in which they are imported, and a small request spends much of its time on imports. So while a command imports
them, a name of such a package stands for itself only: whoever calls it, makes a class of it or reads an attribute gets
the package's own, which is imported then.

A stand-in is not the thing itself: `x is pandas.NA` is false of it. So nothing is late if a package with a method, a
ranker or a source of its own is installed, whose code may ask for more than unrank's and the libraries' does.

Nor does Python look for garbage among all that they make: that takes another fifth.
"""

from __future__ import annotations

import gc
import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from inspect import getmodulename
from operator import eq
from pathlib import Path
from types import ModuleType
from typing import Any

from unrank.plugins import are_installed

LIBRARIES = ("transformers.modeling_utils", "transformers.masking_utils", "sentence_transformers")
"""What is imported; the second is imported by every encoder of transformers."""
MODELS = "models."
"""What names of modules begin with in transformers' own table, which has more than models."""
NAME = re.compile(r"^Name: *(\S+)", re.MULTILINE)
"""The line with the name of a distribution."""
PANDAS = "pandas"
"""Pyarrow imports it at its first column, only to ask whether what it is given is one of pandas."""
UNUSED = (
    "scipy",
    "sklearn",
    "transformers.distributed.sharding_utils",
    "transformers.distributed.tensor_parallel",
    "transformers.integrations.flash_paged",
    "transformers.integrations.flex_attention",
)
"""Packages and modules that rankers need seldom or never, though the libraries import them."""
SHAPES = "torch.fx.experimental.symbolic_shapes"
STAY = (
    "datasets",
    "peft",
    "sympy",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    SHAPES,
)
"""Those that a library asks for again whenever it loads or saves a model: they stay late for as long as the process
lasts. They are torch's compiler with its algebra, its weights on several machines, and packages of trainers."""
MARKS = {f"torch._dynamo.{name}" for name in ("allow_in_graph", "assume_constant_result", "disable")}
"""Decorators that only mark a function for torch's compiler, which unrank does not use: late ones mark nothing."""
ANSWERS: Mapping[str, Callable[..., bool]] = {
    "expect_true": bool,
    "guard_or_false": bool,
    "guard_or_true": bool,
    "is_nested_int": lambda _: False,
    "sym_and": lambda *truths: all(truths),
    "sym_eq": eq,
}
PLAIN = {f"{SHAPES}.{name}": answer for name, answer in ANSWERS.items()}
"""What torch asks its compiler about sizes, and the answers if the sizes are plain numbers."""
NEEDS: Mapping[str, Sequence[str]] = {SHAPES: ("sympy",), "torch._dynamo": ("sympy", SHAPES)}
"""What must not be late for those that make classes of it."""


def import_libraries() -> None:
    """Import the libraries of rankers, without the packages that a command may never use."""
    if "sentence_transformers" in sys.modules:
        return
    stay_late(PANDAS)
    gc.disable()
    try:
        usual = nullcontext() if are_installed() else late(UNUSED, STAY)
        with usual, replaced(metadata, "packages_distributions", packages_distributions):
            _import_models()
            for name in LIBRARIES:
                importlib.import_module(name)
        gc.freeze()
    finally:
        gc.enable()


def stay_late(*modules: str) -> None:
    """Let modules that nothing has imported yet be late for as long as the process lasts, if no plugin may ask."""
    if are_installed():
        return
    there = {name for finder in sys.meta_path if isinstance(finder, _LateFinder) for name in finder.names}
    if missing := {*modules} - {*sys.modules} - there:
        sys.meta_path.insert(0, _LateFinder(missing))


def _import_models() -> None:
    """Import transformers' table of its models, which it makes by reading 1,500 files, and then once more.

    It keeps what it read in a cache for 128 folders, and there are 500 of them. What it made first serves twice here.
    """
    transformers = importlib.import_module("transformers")
    reader = importlib.import_module("transformers.utils.import_utils")
    folder, read = Path(transformers.__file__ or "").parent / "models", getattr(reader, "define_import_structure", None)
    if read is None:  # another version, which may read them in another way
        return

    def define(path: str, prefix: str | None = None) -> Any:
        if Path(path) != folder / "__init__.py" or prefix is not None:
            return read(path, prefix)
        try:
            known = read(folder, prefix="models")  # the same question as before, so that the cache answers it
            models = {
                needed: {
                    name.removeprefix(MODELS): {*found} for name, found in modules.items() if name.startswith(MODELS)
                }
                for needed, modules in known.items()
            }
        except (AttributeError, TypeError):  # another version, whose table has another form
            return read(path, prefix)
        return {needed: modules for needed, modules in models.items() if modules}

    with replaced(reader, "define_import_structure", define):
        importlib.import_module("transformers.models")


def packages_distributions() -> dict[str, list[str]]:
    """Return what the function of this name in `importlib.metadata` does: by package, the distributions that hold it.

    That one asks for every file that a distribution lists, and parses all that is known of it. Transformers calls it.
    """
    found: dict[str, list[str]] = {}
    for each in metadata.distributions():
        named = NAME.search(each.read_text("METADATA") or "")
        name = named[1] if named else each.metadata["Name"]
        for package in (each.read_text("top_level.txt") or "").split() or _top_names(each.read_text("RECORD") or ""):
            found.setdefault(package, []).append(name)
    return found


def _top_names(record: str) -> set[str]:
    """Return the packages and modules that a distribution's list of files begins with."""
    files = (line.partition(",")[0] for line in record.splitlines())
    names = {file.partition("/")[0] if "/" in file else getmodulename(file) or "." for file in files}
    return {name for name in names if "." not in name}


@contextmanager
def replaced(module: ModuleType, name: str, value: object) -> Iterator[None]:
    """Give a name of a module another value within a block."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


@contextmanager
def late(modules: Sequence[str], stay: Sequence[str] = ()) -> Iterator[None]:
    """Import these modules at the first use of their names, if the block imports them and nothing did before.

    Those that `stay` are late after the block too.
    """
    finder = _LateFinder({name for name in (*modules, *stay) if name not in sys.modules})
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        for name in finder.names - {*stay}:
            finder.release(name)
        if not finder.names:
            sys.meta_path.remove(finder)


class _LateFinder:
    """Finds a late module for some modules, and for all that are below them."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        whole = self.whole(name)
        own = PathFinder.find_spec(name, path) if whole is not None else None
        if whole is None or (name == whole and own is None):
            return None
        spec = ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        spec.submodule_search_locations = [*((own and own.submodule_search_locations) or [])]
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _LateModule(spec.name, self.whole(spec.name) or spec.name, self)

    def exec_module(self, module: ModuleType) -> None:
        return

    def whole(self, name: str) -> str | None:
        """Return which of the late modules this is, or is below of; `None` if it is not late."""
        return next((whole for whole in self.names if f"{name}.".startswith(f"{whole}.")), None)

    def release(self, whole: str) -> None:
        """Let the next import of a module, and of all below it, be a real one."""
        self.names.discard(whole)
        for name, module in list(sys.modules.items()):
            if isinstance(module, _LateModule) and module.whole == whole:
                del sys.modules[name]
                module.forget_names()
                above, _, last = name.rpartition(".")
                if vars(sys.modules.get(above, module)).get(last) is module:
                    delattr(sys.modules[above], last)


class _LateModule(ModuleType):
    """A module whose names are late."""

    def __init__(self, name: str, whole: str, finder: _LateFinder) -> None:
        super().__init__(name)
        self.whole, self._finder = whole, finder

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            with suppress(metadata.PackageNotFoundError):
                return metadata.version(self.__name__)
            return _LateName(self, name, self._finder).own()
        if name.startswith("__"):
            raise AttributeError(name)
        if _is_imported(self.whole):
            return getattr(importlib.import_module(self.__name__), name)
        if PathFinder.find_spec(f"{self.__name__}.{name}", self.__path__):
            return importlib.import_module(f"{self.__name__}.{name}")
        found = vars(self)[name] = _LateName(self, name, self._finder)  # some are asked for in each pass
        return found

    def forget_names(self) -> None:
        """Forget the late names that were asked for: from now on the module's own may be had."""
        for name in [name for name, value in vars(self).items() if isinstance(value, _LateName)]:
            delattr(self, name)


def _is_imported(whole: str) -> bool:
    """Return whether a module that was late is there."""
    module = sys.modules.get(whole)
    return module is not None and not isinstance(module, _LateModule)


def _are_plain(values: Sequence[object]) -> bool:
    """Return whether all values are plain numbers, or tuples of them."""
    return all(_are_plain(value) if isinstance(value, tuple) else type(value) in (bool, int) for value in values)


class _LateName:
    """A name of a module that is not imported yet."""

    def __init__(self, module: _LateModule, name: str, finder: _LateFinder) -> None:
        self._module, self._whole, self._name, self._finder = module.__name__, module.whole, name, finder

    def own(self) -> Any:
        """Import the module, and return what has this name there."""
        for whole in (*NEEDS.get(self._whole, ()), self._whole):
            self._finder.release(whole)
        module = importlib.import_module(self._module)
        try:
            return getattr(module, self._name)
        except AttributeError:
            return importlib.import_module(f"{self._module}.{self._name}")

    def __call__(self, *given: Any, **named: Any) -> Any:
        name = f"{self._module}.{self._name}"
        if given and not _is_imported(self._whole):
            if name in MARKS and callable(given[0]):
                return given[0]
            if name in PLAIN and _are_plain(given):
                return PLAIN[name](*given)
        return self.own()(*given, **named)

    def __instancecheck__(self, instance: object) -> bool:
        """Return whether an object is of a class: of none whose module was never imported."""
        return _is_imported(self._whole) and isinstance(instance, self.own())

    def __subclasscheck__(self, subclass: type) -> bool:
        return _is_imported(self._whole) and issubclass(subclass, self.own())

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[Any]:
        return (self.own(),)

    def __or__(self, other: Any) -> Any:
        return self.own() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.own()

    def __getitem__(self, key: Any) -> Any:
        return self.own()[key]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own(), name)
