"""Errors that are not bugs.

Every message is one line that says what was wrong, what was given and what to do. The command line prints it and exits
with status 2.
"""

from __future__ import annotations

import difflib
import os
import re
import traceback
from collections.abc import Iterable, Sequence

LONGEST_LINE = 800
CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Characters that move the cursor, change colours, reverse or hide text. Tabs and line ends are not among them."""


class UnrankError(Exception):
    """An error that the user can fix. Its message is one line, whatever the data contains."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message, LONGEST_LINE))


class BadFile(UnrankError):
    """A file that is missing, malformed or not of the expected kind."""

    def __init__(self, path: object, problem: str, line: int | None = None) -> None:
        where = f"{path}, line {line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {problem}")


class UnknownName(UnrankError):
    """A name that does not exist; the message suggests the nearest one."""

    def __init__(self, what: str, given: str, known: Iterable[str]) -> None:
        names = list(known)
        near = difflib.get_close_matches(given.lower(), names, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        super().__init__(f"unknown {what} {given!r}: {hint}known are {', '.join(names)}")


class UnknownIds(UnrankError):
    """Ids that are not in the collection."""

    def __init__(self, what: str, ids: Sequence[str], where: str) -> None:
        super().__init__(
            f"{where}: {count(len(ids), f'{what} id')} not in the collection: {listed(ids)}; "
            f"check them with 'unrank find', or take them out"
        )


class PluginError(UnrankError):
    """An error in the code of another package."""


class NotFinite(UnrankError):
    """A score that is not a finite number."""


def describe_error(error: Exception) -> str:
    """Return an error in words. If it is a bug, here or in a plugin, and UNRANK_DEBUG is set, print the traceback
    too."""
    known = isinstance(error, UnrankError | OSError) and not isinstance(error, PluginError)
    if os.environ.get("UNRANK_DEBUG") and not known:
        traceback.print_exception(error)
    if isinstance(error, UnrankError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename or 'the disk'}: {error.strerror or error}"
    return f"a bug in unrank: {type(error).__name__}: {error} (UNRANK_DEBUG=1 shows where)"


class Stopped(BaseException):
    """A job stopped after a signal, at a point from which it can resume. Handlers of Exception let it pass."""


def printable(text: str) -> str:
    r"""Return text that is safe to print: control characters are escaped.

    >>> print(printable("red \x1b[31m"))
    red \x1b[31m
    """
    return CONTROL_CHARACTERS.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def printable_line(text: str) -> str:
    r"""Return a line that is safe to print: a line break inside is escaped too, so that no name looks like a line.

    >>> print(printable_line("the id a\nrequest 1: forgotten"))
    the id a\nrequest 1: forgotten
    """
    inner = text.strip("\n")
    return printable(text.replace(inner, inner.replace("\n", "\\n"))) if inner else text


def one_line(text: str, most: int) -> str:
    """Return text as one line of at most `most` characters, shortened in its middle.

    >>> one_line("one\\ntwo", 10), one_line("a" * 30, 9)
    ('one two', 'aaaa…aaaa')
    """
    line = printable(" ".join(text.split()))
    half = most // 2
    return line if len(line) <= most else f"{line[:half]}…{line[-half:]}"


def listed(items: Sequence[object], most: int = 5) -> str:
    """Return the first items, quoted, and the number of the others.

    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(item) for item in items[:most])
    more = len(items) - most
    return f"{shown} and {more} more" if more > 0 else shown


def count(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> count(1, "pair"), count(2000, "query"), count(3, "document id"), count(2, "day")
    ('1 pair', '2,000 queries', '3 document ids', '2 days')
    """
    if number == 1:
        return f"1 {noun}"
    short = noun.endswith("y") and noun[-2:-1] not in "aeiou"
    return f"{number:,} {noun[:-1]}ies" if short else f"{number:,} {noun}s"
