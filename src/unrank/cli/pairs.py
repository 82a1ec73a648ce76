"""`--pair QUERY DOCUMENT`, as often as needed. Typer lists no pairs of words, so that two go through it as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand

from unrank.errors import UnrankError

BETWEEN = "\0"
"""No word of a command line holds it."""


class WithPairs(TyperCommand):
    """A command with that option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = iter(args)
        joined = [f"--pair={next(words, '')}{BETWEEN}{next(words, '')}" if word == "--pair" else word for word in words]
        return super().parse_args(ctx, joined)


def read_pairs(given: Sequence[str] | None) -> list[tuple[str, str]]:
    """
    >>> read_pairs(["q1\\0d1", "q2\\0d2"])
    [('q1', 'd1'), ('q2', 'd2')]
    """
    pairs = [(query, document) for query, _, document in (words.partition(BETWEEN) for words in given or ())]
    if any("" in pair for pair in pairs):
        raise UnrankError("--pair takes two ids, that of a query and that of a document: --pair QUERY DOCUMENT")
    return pairs
