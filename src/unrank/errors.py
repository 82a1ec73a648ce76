"""What can go wrong through no fault of the code.

Every message is one line that says what was wrong, what was given and what to do. The command line prints
it and exits with 2; nothing has been written by then.
"""

from __future__ import annotations

import difflib
import os
import re
import traceback
from collections.abc import Iterable, Sequence

LONGEST_LINE = 800
STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\U000e0000-\U000e007f]"
)
"""What moves a cursor, changes colours, turns the direction of writing or hides; tabs and ends of lines are left."""


class UnrankError(Exception):
    """Something that the user can mend, said in one line whatever stands in the data."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message, LONGEST_LINE))


class BadFile(UnrankError):
    """A file that is missing, malformed or not what it says it is."""

    def __init__(self, path: object, problem: str, line: int | None = None) -> None:
        where = f"{path}, line {line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {problem}")


class UnknownName(UnrankError):
    """A method, ranker, source or field that does not exist; the nearest one is named."""

    def __init__(self, what: str, given: str, known: Iterable[str]) -> None:
        names = list(known)
        near = difflib.get_close_matches(given.lower(), names, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        super().__init__(f"unknown {what} {given!r}: {hint}known are {', '.join(names)}")


class UnknownIds(UnrankError):
    """Ids that the collection does not hold."""

    def __init__(self, what: str, ids: Sequence[str], where: str) -> None:
        super().__init__(
            f"{where}: {count(len(ids), f'{what} id')} not in the collection: {listed(ids)}; "
            f"check them with 'unrank find', or take them out"
        )


class NotFinite(UnrankError):
    """A ranker gave a score that is no number."""


def told(error: Exception) -> str:
    """Whatever went wrong, in words; of a bug of ours UNRANK_DEBUG shows the traceback to whoever mends it."""
    if isinstance(error, UnrankError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename or 'the disk'}: {error.strerror or error}"
    if os.environ.get("UNRANK_DEBUG"):
        traceback.print_exception(error)
    return f"a bug in unrank: {type(error).__name__}: {error} (UNRANK_DEBUG=1 shows where)"


class Stopped(BaseException):
    """A signal asked a job to stop, and it did so at a good place. No error: what catches those lets it pass."""


def printable(text: str) -> str:
    r"""Text from data as a terminal may show it: what would steer the terminal is written out.

    >>> print(printable("red \x1b[31m"))
    red \x1b[31m
    """
    return STEERING.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def one_line(text: str, most: int) -> str:
    """The same in one line, cut in its middle where it is longer than so many characters.

    >>> one_line("one\\ntwo", 10), one_line("a" * 30, 9)
    ('one two', 'aaaa…aaaa')
    """
    line = printable(" ".join(text.split()))
    half = most // 2
    return line if len(line) <= most else f"{line[:half]}…{line[-half:]}"


def listed(items: Sequence[object], most: int = 5) -> str:
    """The first few items, quoted, and how many more there are.

    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(item) for item in items[:most])
    more = len(items) - most
    return f"{shown} and {more} more" if more > 0 else shown


def count(number: int, noun: str) -> str:
    """
    >>> count(1, "pair"), count(2000, "query"), count(3, "document id")
    ('1 pair', '2,000 queries', '3 document ids')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun[:-1]}ies" if noun.endswith("y") else f"{number:,} {noun}s"
