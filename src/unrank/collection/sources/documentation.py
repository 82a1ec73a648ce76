"""Python's own documentation, as headings and the texts that stand under them.

The standard library is parsed from its source files and never imported: importing can print, open a browser or
take seconds. An article is all that is below one top heading: a module, a package, or the language reference.
"""

from __future__ import annotations

import ast
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from unrank.errors import UnrankError

LANGUAGE = "language reference"
NO_ARTICLE = {"__init__", "__main__", "antigravity", "encodings", "pydoc_data", "test", "tests", "this"}
# Systems package these apart, or not at all: without them a collection is much the same everywhere.
NOT_EVERYWHERE = {"distutils", "ensurepip", "idlelib", "lib2to3", "tkinter", "turtle", "turtledemo"}

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Heading = tuple[str, ...]


def find_articles() -> dict[str, Path]:
    """The top headings in alphabetical order, and where each is to be found."""
    library = Path(sysconfig.get_path("stdlib"))
    found = {name: path for name, path in _modules(library) if name in sys.stdlib_module_names and _is_public(name)}
    if not found:
        raise UnrankError(f"{library}: holds no source files; pydocs needs a Python that comes with its library's")
    topics = library / "pydoc_data" / "topics.py"
    if topics.is_file():
        found[LANGUAGE] = topics
    return dict(sorted(found.items()))


def read_article(name: str, path: Path) -> Iterator[tuple[Heading, str]]:
    """Each text of an article with the heading under which it stands directly."""
    return _topics() if name == LANGUAGE else _module(path, (name,))


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """Names and paths of the modules and packages in a folder."""
    paths = [path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    names = {path.stem: path for path in paths if path.stem not in NO_ARTICLE | NOT_EVERYWHERE}
    return sorted(names.items())


def _module(path: Path, heading: Heading) -> Iterator[tuple[Heading, str]]:
    """The docstrings of a module, or of a package and all that is in it."""
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path).read_bytes())
    yield from _docstrings(tree, heading)
    if path.is_dir():
        lifted = _lifted(tree, f"{'.'.join(heading)}.")
        for name, inner in _modules(path):
            if name in lifted or _is_public(name):
                yield from _module(inner, heading if name in lifted else (*heading, name))


def _lifted(package: ast.Module, prefix: str) -> set[str]:
    """The modules whose names a package takes as its own, so that `asyncio.queues.Queue` is `asyncio / Queue`."""
    imports = [node for node in package.body if isinstance(node, ast.ImportFrom) and node.module]
    names = {f"{prefix if node.level else ''}{node.module}" for node in imports if node.level <= 1}
    return {name.removeprefix(prefix) for name in names if name.startswith(prefix)}


def _docstrings(node: ast.Module | Definition, heading: Heading) -> Iterator[tuple[Heading, str]]:
    yield heading, ast.get_docstring(node) or ""
    if isinstance(node, ast.Module | ast.ClassDef):
        for inner in _definitions(node):
            yield from _docstrings(inner, (*heading, inner.name))


def _definitions(node: ast.AST) -> Iterator[Definition]:
    """The public classes and functions of a body, also those that it defines only on some condition."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, Definition):
            if _is_public(inner.name):
                yield inner
        elif isinstance(inner, ast.If | ast.Try | ast.ExceptHandler):
            yield from _definitions(inner)


def _topics() -> Iterator[tuple[Heading, str]]:
    """The language reference by its titles. Topics overlap: a section that stands in several is one heading."""
    from pydoc_data.topics import topics  # nothing but texts

    for name, text in sorted(topics.items()):
        title = name
        for block in re.split(r"\n\s*\n", text.strip()):
            if underlined := re.fullmatch(r"(.+)\n([*=~^-])\2+", block):
                title = underlined[1]
            else:
                yield (LANGUAGE, title), block


def _is_public(name: str) -> bool:
    return not name.startswith("_")
