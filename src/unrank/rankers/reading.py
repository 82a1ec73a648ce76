"""Texts as token ids, past the front of the library that made the tokenizer.

That front, which looks at each text and packs up each answer by itself, takes longer than a compiled tokenizer on a
machine with many cores.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unrank.rankers.tokens import Tokens
from unrank.rankers.transformer import quiet

TEXTS_AT_ONCE = 4_096
"""So many are given to a tokenizer, which takes ten times the room of what it gives."""
PROBES = ("", " a  B ", "Ünï 漢字 ß 1.5e-3", "[CLS] a [SEP] [MASK] <s> </s>", "a\tb\nc")
"""What two ways to read would be told apart by: spaces, cases, accents, special tokens."""

Text = Sequence[int] | NDArray[np.integer]
Read = Callable[[list[str]], Iterable[Text]]


class PlainTokenizer:
    """Texts as ids, and nothing more: no masks, no types, and no special tokens unless they are asked for."""

    def __init__(self, tokenizer: Any, special: bool = False) -> None:
        self._tokenizer, self._special = tokenizer, special
        self._compiled = copy.deepcopy(tokenizer.backend_tokenizer) if tokenizer.is_fast else None
        if self._compiled is not None:
            self._compiled.no_padding()
            self._compiled.encode_special_tokens = tokenizer.split_special_tokens  # no part of what is copied

    def identity(self, *more: object) -> str | None:
        """A hash of what the ids of a text depend on: the tokenizer, and whatever else is named."""
        if self._compiled is None:
            return None
        self._compiled.no_truncation()
        ways = [self._special, self._tokenizer.truncation_side, self._tokenizer.split_special_tokens, *map(str, more)]
        return hashlib.sha256(json.dumps([self._compiled.to_str(), *ways]).encode()).hexdigest()

    def __deepcopy__(self, memo: dict[int, Any]) -> PlainTokenizer:
        return self

    def __call__(self, texts: Sequence[str], longest: int | None) -> Tokens:
        """None longer than so many tokens."""
        read = self._read_plainly if self._compiled is None else self._read_compiled
        return read_in_turn(texts, lambda some: read(some, longest))

    def read_prompted(self, prompt: str, longest: int | None, texts: list[str]) -> list[list[int]]:
        """By a compiled tokenizer, with the prompt before each text."""
        return self._read_compiled([prompt + text for text in texts], longest)

    def _read_compiled(self, texts: list[str], longest: int | None) -> list[list[int]]:
        compiled: Any = self._compiled
        if longest is None:
            compiled.no_truncation()
        else:
            compiled.enable_truncation(longest, direction=self._tokenizer.truncation_side)
        return [text.ids for text in compiled.encode_batch_fast(texts, add_special_tokens=self._special)]

    def _read_plainly(self, texts: list[str], longest: int | None) -> list[list[int]]:
        cut = {"truncation": False} if longest is None else {"truncation": True, "max_length": longest}
        with quiet():
            given = self._tokenizer(texts, add_special_tokens=self._special, return_attention_mask=False, **cut)
        ids: list[list[int]] = given["input_ids"]
        return ids


def read_in_turn(texts: Sequence[str], read: Read) -> Tokens:
    """So many at once."""
    starts = range(0, len(texts), TEXTS_AT_ONCE)
    return Tokens.of(ids for start in starts for ids in read(list(texts[start : start + TEXTS_AT_ONCE])))


def _not_known() -> None:
    return None


@dataclass(frozen=True)
class Reader:
    """How texts are read, and a hash of what their ids depend on, if that is known."""

    read: Read
    identity: Callable[[], str | None] = _not_known

    def __call__(self, texts: Sequence[str]) -> Tokens:
        return read_in_turn(texts, self.read)


def read_alike(tokenizer: Any, prompt: str, most: int, library: Read) -> Reader:
    """What reads as the library does and is faster, or else the library itself: where it does more than to put the
    prompt before a text and to cut both after so many tokens, the probes are not read alike. `most` is about where."""
    if not tokenizer.is_fast:
        return Reader(library)
    long = " ".join(f"{number} {'abcdefg'[number % 7]}" for number in range(2 * most))
    probes = [*PROBES, "unbelievably " * 2 * most, long]  # cut by tokens, or by letters too?
    plain, expected = PlainTokenizer(tokenizer, special=True), [list(ids) for ids in library(probes)]
    longest = len(expected[-1])
    alike = Reader(partial(plain.read_prompted, prompt, longest), partial(plain.identity, prompt, longest))
    is_cut = longest < len(plain.read_prompted(prompt, None, [long])[0])
    return alike if is_cut and alike.read(probes) == expected else Reader(library)
