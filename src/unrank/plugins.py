"""Methods, rankers and sources of other packages, found by the entry points that these declare.

The groups are `unrank.methods`, `unrank.rankers` and `unrank.sources`; the name of an entry point is the name that
users type. A package is imported when one of its names is looked up, so one that is broken harms nobody else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, Protocol, TypeVar

from unrank.errors import PluginError, UnknownName, UnrankError

GROUPS = ("unrank.methods", "unrank.rankers", "unrank.sources")
"""The groups of entry points that other packages may declare."""


class Entry(Protocol):
    """An entry of a catalogue."""

    @property
    def alias(self) -> str:
        """Another name for it; empty if there is none."""


Known = TypeVar("Known", bound=Entry)


@dataclass(frozen=True)
class Catalogue(Generic[Known]):
    """Everything of one kind that can be named: unrank's own entries, and those of installed packages."""

    kind: str
    """"method", "ranker" or "source"."""
    own: Mapping[str, Known]
    adopt: Callable[[str, Any], Known]
    """Makes an entry of a name and the object that a package gives it, or raises an error with the reason."""

    def names(self) -> list[str]:
        """Return all names: unrank's own first, then those of other packages. Nothing is imported."""
        return list(dict.fromkeys([*self.own, *(point.name for point in self._points())]))

    def package_of(self, name: str) -> str | None:
        """Return the package that a name comes from; `None` for unrank's own."""
        return next((_package(point) for point in self._points() if point.name == name), None)

    @contextmanager
    def blamed(self, name: str, passing: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """Run code of the package that a name comes from; an error in it, or a call of exit, is one line that names it.

        Errors of the user, of the disk and of little memory pass, and those of the types in `passing`.
        """
        try:
            yield
        except (Exception, SystemExit) as error:
            if isinstance(error, (UnrankError, OSError, MemoryError, *passing)):
                raise
            raise PluginError(
                f"the {self.kind} {name!r} of the package {self.package_of(name)} failed: {type(error).__name__}: "
                f"{error}; repair or uninstall the package (UNRANK_DEBUG=1 shows where)"
            ) from error

    def find(self, given: str) -> tuple[str, Known]:
        """Return the name and the entry that a user's word means."""
        word = given.lower()
        own = [name for name, entry in self.own.items() if word and word in (name, entry.alias)]
        taken = {word, *own, *(self.own[name].alias for name in own)}
        points = [point for point in self._points() if point.name.lower() in taken]
        if len(own) + len(points) > 1:
            raise UnrankError(self._clash(own, points))
        if own:
            return own[0], self.own[own[0]]
        if points:
            return points[0].name, self._load(points[0])
        raise UnknownName(self.kind, given, self.names())

    def get(self, name: str | None) -> Known | None:
        """Return the entry of an exact name; `None` if there is none."""
        return self.find(name)[1] if name is not None and name in self.names() else None

    def _points(self) -> tuple[EntryPoint, ...]:
        return _declared(f"unrank.{self.kind}s", tuple(sys.path))

    def _clash(self, own: list[str], points: list[EntryPoint]) -> str:
        owners = [*(["unrank"] if own else []), *map(_package, points)]
        return (
            f"the {self.kind} {points[0].name!r} comes with {' and with '.join(owners)}: "
            f"uninstall {owners[-1]}, or give its {self.kind} another name"
        )

    def _load(self, point: EntryPoint) -> Known:
        try:
            return self.adopt(point.name, point.load())
        except (Exception, SystemExit) as error:
            reason = str(error) if isinstance(error, UnrankError) else f"{type(error).__name__}: {error}"
            raise UnrankError(
                f"the {self.kind} {point.name!r} of the package {_package(point)} cannot be used: {reason}; "
                "repair or uninstall the package"
            ) from error


@cache
def are_installed() -> bool:
    """Return whether another package declares a method, a ranker or a source, so that its code may run here."""
    return not entry_points().groups.isdisjoint(GROUPS)


@lru_cache(maxsize=16)
def _declared(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Read a group of entry points, once for each search path."""
    return tuple(sorted(entry_points(group=group), key=lambda point: (point.name, _package(point))))


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module


def summary_of(found: object) -> str:
    """Return the first line of the docstring of a class or function, or else of its module.

    >>> summary_of(UnknownName)
    'A name that does not exist; the message suggests the nearest one'
    """
    name, module = getattr(found, "__name__", ""), sys.modules.get(getattr(found, "__module__", ""))
    text = found.__doc__ or ""
    if not text or text.startswith(f"{name}("):  # a dataclass without a docstring is given its signature
        text = (module and module.__doc__) or ""
    return text.strip().partition("\n")[0].removesuffix(".")
