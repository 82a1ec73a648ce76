"""Paths that name what is removed: files called by an id or by a text, in any of the ways in which names are written.

The ledger keeps paths for good, so it must keep none of these. Two names are compared as letters and digits alone:
percent-encoding, letter case, accents written apart, and what stands between words make no difference.

>>> names_item("/srv/d5.json", [Item(document="d5")]), names_item("/srv/d55.json", [Item(document="d5")])
(True, False)
>>> names_item("/srv/the%20clerk_of_the_TOWN-hall.txt", [Item("q1", query_text="Ask the clerk of the town hall!")])
True
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote_plus

from unrank.collection.normalisation import normalised
from unrank.desk.request import Item
from unrank.disk import is_utf_8
from unrank.errors import UnrankError

WORD = re.compile(r"[^\W_]+")
LEAST_ID = 4
"""The fewest letters of an id that is looked for inside longer words too."""
LEAST_TEXT = 16
"""The fewest letters in a row that a part of a path and a text have in common if it names the text."""
LEAST_WORDS = 3
"""The fewest words in a row that they have in common if it names the text."""

Sliced = TypeVar("Sliced", str, list[str])


def names_item(path: str | Path, items: Iterable[Item]) -> bool:
    """Tell whether a path has the id or a part of the text of an item in it.

    Numbers of one to three digits are not looked for: they are in paths for many reasons.
    """
    words = _words(str(path))
    parts = [_words(part) for part in Path(path).parts]
    for item in items:
        if any(_has_id(words, parts, id) for id in (item.query, item.document) if id is not None):
            return True
        if any(_has_text(words, parts, text) for text in (item.query_text, item.document_text) if text):
            return True
    return False


def safe_path(path: str | Path, items: Sequence[Item]) -> str:
    """Return the path, or its nearest parent that names no item and is UTF-8, so that it can be written down."""
    here = Path(path)
    while here != here.parent and (not is_utf_8(here) or names_item(here, items)):
        here = here.parent
    return str(here)


def refuse_names(paths: Iterable[str | Path], items: Sequence[Item]) -> None:
    """Refuse paths that the ledger would keep and that name an item."""
    for path in paths:
        if not is_utf_8(path):
            raise UnrankError(f"{path} is not UTF-8, and the ledger keeps this path: rename the folder")
        if names_item(path, items):
            raise UnrankError(
                f"{path} holds an id or words of what is to be forgotten, and the ledger keeps this path: "
                "rename the folder, or choose another --out"
            )


def _has_id(words: list[str], parts: list[list[str]], id: str) -> bool:
    wanted = _words(id)
    joined = "".join(wanted)
    if not wanted or (joined.isdigit() and len(joined) < LEAST_ID):
        return False
    return _in_row(wanted, words) or (len(joined) >= LEAST_ID and any(joined in "".join(part) for part in parts))


def _has_text(words: list[str], parts: list[list[str]], text: str) -> bool:
    wanted = _words(text)
    if len(wanted) < LEAST_WORDS and wanted and _in_row(wanted, words):
        return True
    spaced, joined = f" {' '.join(wanted)} ", "".join(wanted)
    return any(
        any(f" {' '.join(row)} " in spaced for row in _windows(part, LEAST_WORDS))
        or any(row in joined for row in _windows("".join(part), LEAST_TEXT))
        for part in parts
    )


def _windows(whole: Sliced, size: int) -> Iterator[Sliced]:
    """Yield all parts of a size."""
    return (whole[start : start + size] for start in range(len(whole) - size + 1))


def _in_row(wanted: list[str], words: list[str]) -> bool:
    return any(words[start : start + len(wanted)] == wanted for start in range(len(words) - len(wanted) + 1))


def _words(name: str) -> list[str]:
    return WORD.findall(normalised(unquote_plus(unquote_plus(name))))
