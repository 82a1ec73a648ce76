"""The documentation that comes with every Python, in the manner of TREC CAR; nothing to download.

A heading path (`asyncio / Queue / put`) is a query, and a paragraph is a document. A paragraph has grade 2 for the
heading directly above it, and grade 1 for the headings above that one. Equal paragraphs are one document. One article
in five is for testing, with all its headings, so the splits share no query.

An article is everything below one top heading: a module, a package, or the language reference. The standard library is
parsed from its source files and not imported: importing can print, open a browser or take seconds.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from unrank.collection.sources.source import Judgement, Raw, Text
from unrank.errors import UnknownName, UnrankError

DEMO_HEADINGS = (
    "argparse", "base64", "calendar", "cmd", "code", "collections", "concurrent", "configparser", "contextlib",
    "functools", "getopt", "json", "logging", "optparse", "pathlib", "pdb", "queue", "random",
    "selectors", "shlex", "shutil", "subprocess", "tempfile", "textwrap", "threading", "weakref", "zipfile",
)  # fmt: skip
FEWEST_WORDS = 5
ARTICLES_A_TEST_ARTICLE = 5
SALT = "pydocs 4"  # puts argparse, optparse and the language reference into the training split

Grades = dict[str, dict[str, int]]
"""From a paragraph to heading paths to grades."""
LANGUAGE = "language reference"
NO_ARTICLE = {"__init__", "__main__", "antigravity", "encodings", "pydoc_data", "test", "tests", "this"}
# Some systems package these separately or not at all; without them the collection is much the same everywhere.
NOT_EVERYWHERE = {"distutils", "ensurepip", "idlelib", "lib2to3", "tkinter", "turtle", "turtledemo"}

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Heading = tuple[str, ...]


def read_pydocs(location: str, test_split: str | None) -> Raw:
    """Read everything, or the articles that `location` names, separated by commas: `optparse,argparse,asyncio`."""
    articles = find_articles()
    wanted = {name.strip() for name in location.split(",") if name.strip()}
    if unknown := sorted(wanted - set(articles)):
        raise UnknownName("heading", unknown[0], articles)
    chosen = {name: path for name, path in articles.items() if name in (wanted or articles)}
    grades = _grades(text for article in chosen.items() for text in read_article(*article))
    paths = list(dict.fromkeys(path for headings in grades.values() for path in headings))
    splits = {split: {path for path in paths if _split(path) == split} for split in ("train", "test")}
    return Raw(
        name="pydocs",
        queries=lambda: (Text(_id("h", path), path) for path in paths),
        documents=lambda: (Text(_id("p", paragraph), paragraph) for paragraph in grades),
        splits={split: partial(_judgements, grades, here) for split, here in splits.items() if here},
        licence="PSF-2.0, the licence of Python",
    )


def location_of(headings: Iterable[str]) -> str:
    """Return the location of those of these articles that this Python has."""
    articles = find_articles()
    return ",".join(name for name in headings if name in articles)


def _grades(texts: Iterable[tuple[Heading, str]]) -> Grades:
    """Return each paragraph with the grade of every heading that it is relevant to."""
    grades: Grades = {}
    for heading, text in texts:
        for paragraph in _paragraphs(text):
            headings = grades.setdefault(paragraph, {})
            for depth in range(1, len(heading) + 1):
                path = " / ".join(heading[:depth])
                headings[path] = max(headings.get(path, 0), 2 if depth == len(heading) else 1)
    return grades


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the blocks between blank lines that are prose of at least `FEWEST_WORDS` words.

    >>> list(_paragraphs("Put an item\\n  into the queue.\\n\\n>>> queue.put(1) # one of the items\\n\\nSee below."))
    ['Put an item into the queue.']
    """
    for block in re.split(r"\n\s*\n", text):
        paragraph = " ".join(block.split())
        is_code = paragraph.startswith(">>>") or "::=" in paragraph
        if not is_code and len(re.findall(r"\S*[A-Za-z]\S*", paragraph)) >= FEWEST_WORDS:
            yield paragraph


def _split(path: str) -> str:
    article = path.partition(" / ")[0]
    number = int(hashlib.sha256(f"{SALT}:{article}".encode()).hexdigest(), 16)
    return "test" if number % ARTICLES_A_TEST_ARTICLE == 0 else "train"


def _judgements(grades: Grades, paths: set[str]) -> Iterator[Judgement]:
    for paragraph, headings in grades.items():
        for path, grade in headings.items():
            if path in paths:
                yield Judgement(_id("h", path), _id("p", paragraph), grade)


def _id(kind: str, text: str) -> str:
    return kind + hashlib.sha256(text.encode()).hexdigest()[:12]


def find_articles() -> dict[str, Path]:
    """Return the path of each article, in the order of their names."""
    library = Path(sysconfig.get_path("stdlib"))
    found = {name: path for name, path in _modules(library) if name in sys.stdlib_module_names and _is_public(name)}
    if not found:
        raise UnrankError(f"{library}: contains no source files; pydocs needs a Python with those of its library")
    topics = library / "pydoc_data" / "topics.py"
    if topics.is_file():
        found[LANGUAGE] = topics
    return dict(sorted(found.items()))


def read_article(name: str, path: Path) -> Iterator[tuple[Heading, str]]:
    """Yield each text of an article with the heading directly above it."""
    return _topics() if name == LANGUAGE else _module(path, (name,))


def _modules(folder: Path) -> list[tuple[str, Path]]:
    """Return the names and paths of the modules and packages in a folder."""
    paths = [path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    names = {path.stem: path for path in paths if path.stem not in NO_ARTICLE | NOT_EVERYWHERE}
    return sorted(names.items())


def _module(path: Path, heading: Heading) -> Iterator[tuple[Heading, str]]:
    """Yield the docstrings of a module, or of a package and everything in it."""
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path).read_bytes())
    yield from _docstrings(tree, heading)
    if path.is_dir():
        lifted = _lifted(tree, f"{'.'.join(heading)}.")
        for name, inner in _modules(path):
            if name in lifted or _is_public(name):
                yield from _module(inner, heading if name in lifted else (*heading, name))


def _lifted(package: ast.Module, prefix: str) -> set[str]:
    """Return the modules whose names a package re-exports: `asyncio.queues.Queue` is `asyncio / Queue`."""
    imports = [node for node in package.body if isinstance(node, ast.ImportFrom) and node.module]
    names = {f"{prefix if node.level else ''}{node.module}" for node in imports if node.level <= 1}
    return {name.removeprefix(prefix) for name in names if name.startswith(prefix)}


def _docstrings(node: ast.Module | Definition, heading: Heading) -> Iterator[tuple[Heading, str]]:
    yield heading, ast.get_docstring(node) or ""
    if isinstance(node, ast.Module | ast.ClassDef):
        for inner in _definitions(node):
            yield from _docstrings(inner, (*heading, inner.name))


def _definitions(node: ast.AST) -> Iterator[Definition]:
    """Yield the public classes and functions of a body, those inside `if` and `try` included."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, Definition):
            if _is_public(inner.name):
                yield inner
        elif isinstance(inner, ast.If | ast.Try | ast.ExceptHandler):
            yield from _definitions(inner)


def _topics() -> Iterator[tuple[Heading, str]]:
    """Yield the language reference by its titles. Topics overlap: a section of several topics is one heading."""
    from pydoc_data.topics import topics  # a module that holds texts only

    for name, text in sorted(topics.items()):
        title = name
        for block in re.split(r"\n\s*\n", text.strip()):
            if underlined := re.fullmatch(r"(.+)\n([*=~^-])\2+", block):
                title = underlined[1]
            else:
                yield (LANGUAGE, title), block


def _is_public(name: str) -> bool:
    return not name.startswith("_")
