"""Normalised texts: two texts are the same if only their letter case, blanks, invisible characters or edges differ.

>>> normalised("\\ufeffLost\\n  KEYS. "), normalised("Lo\\u00adst\\u200b keys")
('lost keys', 'lost keys')
>>> normalised("“C#”"), normalised("?!")
('c#', '?!')
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

Normalise = Callable[[str], str]
NORMALISATION = 2
"""The version of `normalised`, which a ledger keeps with its hashes; the first is `normalised_before_version_4`."""
CONTROL = bytes(code for code in (*range(0x20), 0x7F) if not chr(code).isspace())
"""The control characters of ASCII that are no blanks."""
LOWER = bytes.maketrans(bytes(range(0x41, 0x5B)) + b"\x1c\x1d\x1e\x1f", bytes(range(0x61, 0x7B)) + b"    ")
"""Capital letters become small. The bytes 1c to 1f, which are blanks in strings but not in bytes, become spaces."""
ASCII = bytes(range(0x80))
INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff]"
)
"""Characters without a shape of their own that are no control or format characters: fillers, variation selectors."""
HIDDEN = ("Cc", "Cf")
EDGES = " .,;:!?'\"()[]{}<>-–—‐‑‒―…·•‘’‚‛“”„‟‹›«»¡¿、。〈〉《》「」『』【】،؛؟।"
"""The punctuation that makes no difference at the edges of a text; `#`, `*` and their like may be a part of a name."""
ASCII_EDGES = bytes(code for code in ASCII if chr(code) in EDGES)


def normalised(text: str) -> str:
    """Return a text without differences in letter case, white space, Unicode form, invisible characters and edges."""
    if text.isascii():  # bytes are quicker, and most texts are ASCII
        plain = b" ".join(text.encode().translate(LOWER, CONTROL).split())
        return (plain.strip(ASCII_EDGES) or plain).decode()
    joined = normalised_before_version_4(_visible(text))
    return joined.strip(EDGES) or joined


def normalised_before_version_4(text: str) -> str:
    """Return a text as ledgers before version 4 hashed it: invisible characters and edges make a difference."""
    folded = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.split())


def _visible(text: str) -> str:
    """Return a text without control characters, format characters and others that are not seen."""
    found = text.encode("utf-8", "surrogatepass").translate(None, CONTROL)
    others = "".join(found.translate(None, ASCII).decode("utf-8", "surrogatepass").split())
    shown = found.decode("utf-8", "surrogatepass")
    if others.isprintable() and not INVISIBLE.search(others):
        return shown
    return "".join(
        letter for letter in INVISIBLE.sub("", shown) if letter.isspace() or unicodedata.category(letter) not in HIDDEN
    )
