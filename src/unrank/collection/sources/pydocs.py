"""The documentation that comes with every Python, in the manner of TREC CAR; nothing to download.

A heading path (`asyncio / Queue / put`) is a query, a paragraph is a document: of grade 2 for the heading under
which it stands directly, of grade 1 for every heading above. Equal paragraphs are one document. One article in
five is for testing, with all its headings, so that the splits share no query.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import partial

from unrank.collection.sources.documentation import Heading, find_articles, read_article
from unrank.collection.sources.source import Judgement, Raw, Text
from unrank.errors import UnknownName

DEMO_HEADINGS = (
    "argparse", "base64", "calendar", "cmd", "code", "collections", "concurrent", "configparser", "contextlib",
    "functools", "getopt", "json", "logging", "optparse", "pathlib", "pdb", "queue", "random",
    "selectors", "shlex", "shutil", "subprocess", "tempfile", "textwrap", "threading", "weakref", "zipfile",
)  # fmt: skip
FEWEST_WORDS = 5
ARTICLES_A_TEST_ARTICLE = 5
SALT = "pydocs 4"  # by which argparse, optparse and the language reference are for training

Grades = dict[str, dict[str, int]]
"""Paragraph, heading path, grade."""


def read_pydocs(location: str, test_split: str | None) -> Raw:
    """Everything, or the articles that `location` names, parted by commas: `optparse,argparse,asyncio`."""
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


def demo_location() -> str:
    """The part that the demo takes: those of `DEMO_HEADINGS` that this Python has."""
    articles = find_articles()
    return ",".join(name for name in DEMO_HEADINGS if name in articles)


def _grades(texts: Iterable[tuple[Heading, str]]) -> Grades:
    """Each paragraph with every heading that it is relevant to."""
    grades: Grades = {}
    for heading, text in texts:
        for paragraph in _paragraphs(text):
            headings = grades.setdefault(paragraph, {})
            for depth in range(1, len(heading) + 1):
                path = " / ".join(heading[:depth])
                headings[path] = max(headings.get(path, 0), 2 if depth == len(heading) else 1)
    return grades


def _paragraphs(text: str) -> Iterator[str]:
    """The parts between blank lines that are prose of some length.

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
