"""Times, shares and lists in words, and names of files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain, count


def duration(seconds: float) -> str:
    """Return a time in words.

    >>> duration(0.4), duration(75), duration(7300)
    ('0.4 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min {int(seconds % 60)} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def listing(items: Sequence[str]) -> str:
    """Return items as a list in a sentence.

    >>> listing(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]])) if items else ""


def percent(share: float) -> str:
    """Return a share in percent.

    >>> percent(0.15), percent(0.125)
    ('15%', '12.5%')
    """
    return f"{100 * share:g}%"


def file_name(text: str) -> str:
    """Return a text as the name of a file.

    >>> file_name("trec-car, 25% by queries")
    'trec-car-25-by-queries'
    """
    return re.sub(r"\W+", "-", text.lower()).strip("-")


def distinct(names: Iterable[str]) -> list[str]:
    """Return names of files with numbers after those that are taken: `file_name` may make two names alike.

    >>> distinct(["a", "b", "a", "a"])
    ['a', 'b', 'a-2', 'a-3']
    """
    own: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}-{number}" for number in count(2))
        own[next(new for new in chain([name], numbered) if new not in own)] = None
    return list(own)
