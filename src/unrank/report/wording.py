"""Times, shares and lists as a person says them, and names of files made of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain, count


def duration(seconds: float) -> str:
    """
    >>> duration(0.4), duration(75), duration(7300)
    ('0.4 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min {int(seconds % 60)} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def listing(items: Sequence[str]) -> str:
    """
    >>> listing(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]])) if items else ""


def percent(share: float) -> str:
    """
    >>> percent(0.15), percent(0.125)
    ('15%', '12.5%')
    """
    return f"{100 * share:g}%"


def file_name(text: str) -> str:
    """
    >>> file_name("trec-car, 25% by queries")
    'trec-car-25-by-queries'
    """
    return re.sub(r"\W+", "-", text.lower()).strip("-")


def told_apart(names: Iterable[str]) -> list[str]:
    """Names of files, each its own: two collections may differ in nothing but what `file_name` replaces.

    >>> told_apart(["a", "b", "a", "a"])
    ['a', 'b', 'a-2', 'a-3']
    """
    own: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}-{number}" for number in count(2))
        own[next(new for new in chain([name], numbered) if new not in own)] = None
    return list(own)
