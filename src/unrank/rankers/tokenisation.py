"""Texts to token ids, and token ids to the inputs of an encoder.

A tokenizer's Python front inspects each text and wraps each result, which takes longer than the compiled tokenizer
itself. So the compiled one is called directly where it gives the same ids. BERT's reads each word by itself: there the
words of many texts are found first, and each is tokenised once.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrank.rankers.fast.bucketing import Bucket
from unrank.rankers.fast.pinned_memory import to_device
from unrank.rankers.model_folder import quiet
from unrank.rankers.tokens import Ids, Ints, Tokens, pad_rows, padded_width, span_indices, token_mask

TEXTS_AT_ONCE = 4_096
"""Number of texts in one call of a tokenizer, which uses ten times the memory of its result."""
CHARACTERS_AT_ONCE = 2**24
"""Number of characters of the texts whose words are tokenised together, but for the last text."""
BY_WORD = {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer", "model": "WordPiece"}
"""The parts of a tokenizer that reads each word by itself."""
CONTROL = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
"""Characters of ASCII that are left out of a text: they may join two words."""
PROBES = ("", " a  B ", "Ünï 漢字 ß 1.5e-3", "[CLS] a [SEP] [MASK] <s> </s>", "a\tb\nc")
"""Texts that different tokenizers split differently: spaces, cases, accents, special tokens."""
TEXTS = (-1, -2)
"""Placeholders of the query and the document among the ids of special tokens."""

Text = Sequence[int] | NDArray[np.integer]
Tokenize = Callable[[list[str]], Iterable[Text]]


class IdTokenizer:
    """A tokenizer that gives ids only: no masks, no types, and special tokens only if `special` is set."""

    def __init__(self, tokenizer: Any, special: bool = False) -> None:
        self._tokenizer, self._special = tokenizer, special
        self._compiled = copy.deepcopy(tokenizer.backend_tokenizer) if tokenizer.is_fast else None
        if self._compiled is not None:
            self._compiled.no_padding()
            self._compiled.encode_special_tokens = tokenizer.split_special_tokens  # deepcopy drops it
        self._by_word = not special and tokenizer.truncation_side == "right" and reads_by_word(self._compiled)

    def fingerprint(self, *more: object) -> str | None:
        """Return a hash of the tokenizer and all else that the ids of a text depend on; `None` if not known."""
        if self._compiled is None:
            return None
        self._compiled.no_truncation()
        ways = [self._special, self._tokenizer.truncation_side, self._tokenizer.split_special_tokens, *map(str, more)]
        return hashlib.sha256(json.dumps([self._compiled.to_str(), *ways]).encode()).hexdigest()

    def __deepcopy__(self, memo: dict[int, Any]) -> IdTokenizer:
        return self

    def __call__(self, texts: Sequence[str], max_length: int | None) -> Tokens:
        """Return the ids of texts, cut to `max_length` tokens."""
        if self._by_word:
            ends = np.cumsum([len(text) for text in texts]) // CHARACTERS_AT_ONCE
            bounds = [0, *(np.flatnonzero(np.diff(ends)) + 1).tolist(), len(texts)]
            return Tokens.joined([self._each_word_once(texts[a:b], max_length) for a, b in pairwise(bounds)])
        tokenize = self._by_library if self._compiled is None else self._by_compiled
        return tokenize_in_batches(texts, lambda some: tokenize(some, max_length))

    def _each_word_once(self, texts: Sequence[str], max_length: int | None) -> Tokens:
        """Return the ids of texts, whose words are tokenised once. Texts that are not plain are tokenised whole."""

        def read(some: Sequence[str]) -> Tokens:
            return tokenize_in_batches(some, lambda batch: self._by_compiled(batch, None))

        column = pa.array(texts, pa.string())
        plain = pc.and_(pc.string_is_ascii(column), pc.invert(pc.match_substring_regex(column, CONTROL)))
        words = pc.ascii_split_whitespace(column.filter(plain))
        once = words.values.dictionary_encode()
        spelled = read(once.dictionary.to_pylist()).take(once.indices.to_numpy().astype(np.int64))
        ends = np.concatenate([[0], np.cumsum(spelled.lengths)])[np.asarray(words.offsets)]
        found = Tokens(Ids(spelled.concatenated()), ends[:-1], np.diff(ends))
        if len(found) < len(texts):
            is_plain = plain.to_numpy(zero_copy_only=False)
            others = read([texts[place] for place in np.flatnonzero(~is_plain).tolist()])
            found = Tokens.joined([found, others]).take(np.argsort(np.argsort(~is_plain, kind="stable")))
        if max_length is None or (found.lengths <= max_length).all():
            return found
        found = found.cut(np.full(len(found), max_length))
        return Tokens(Ids(found.concatenated()), np.cumsum(found.lengths) - found.lengths, found.lengths)

    def with_prompt(self, prompt: str, max_length: int | None, texts: list[str]) -> list[list[int]]:
        """Return the ids of texts with a prompt before each, by the compiled tokenizer."""
        return self._by_compiled([prompt + text for text in texts], max_length)

    def _by_compiled(self, texts: list[str], max_length: int | None) -> list[list[int]]:
        compiled: Any = self._compiled
        if max_length is None:
            compiled.no_truncation()
        else:
            compiled.enable_truncation(max_length, direction=self._tokenizer.truncation_side)
        return [text.ids for text in compiled.encode_batch_fast(texts, add_special_tokens=self._special)]

    def _by_library(self, texts: list[str], max_length: int | None) -> list[list[int]]:
        cut = {"truncation": False} if max_length is None else {"truncation": True, "max_length": max_length}
        with quiet():
            given = self._tokenizer(texts, add_special_tokens=self._special, return_attention_mask=False, **cut)
        ids: list[list[int]] = given["input_ids"]
        return ids


def reads_by_word(compiled: Any) -> bool:
    """Return whether a compiled tokenizer gives the ids of a text's words, for texts in ASCII."""
    if compiled is None:
        return False
    added = compiled.get_added_tokens_decoder().values()
    spaced = any(letter.isspace() for token in added for letter in token.content)
    return not spaced and all(type(getattr(compiled, name)).__name__ == kind for name, kind in BY_WORD.items())


def tokenize_in_batches(texts: Sequence[str], tokenize: Tokenize) -> Tokens:
    """Tokenise `TEXTS_AT_ONCE` texts at a time."""
    starts = range(0, len(texts), TEXTS_AT_ONCE)
    return Tokens.of(ids for start in starts for ids in tokenize(list(texts[start : start + TEXTS_AT_ONCE])))


def _not_known() -> None:
    return None


@dataclass(frozen=True)
class SideTokenizer:
    """How queries, or documents, become ids."""

    tokenize: Tokenize
    fingerprint: Callable[[], str | None] = _not_known
    """A hash of all that the ids depend on, if it is known."""

    def __call__(self, texts: Sequence[str]) -> Tokens:
        return tokenize_in_batches(texts, self.tokenize)


def faster_tokenizer(tokenizer: Any, prompt: str, max_length: int, library: Tokenize) -> SideTokenizer:
    """Return the compiled tokenizer if it gives the library's ids for all probes, else the library.

    The library may do more than put the prompt before a text and cut both. `max_length` is about where it cuts.
    """
    if not tokenizer.is_fast:
        return SideTokenizer(library)
    long = " ".join(f"{number} {'abcdefg'[number % 7]}" for number in range(2 * max_length))
    probes = [*PROBES, "unbelievably " * 2 * max_length, long]  # a library may cut by characters too
    compiled, expected = IdTokenizer(tokenizer, special=True), [list(ids) for ids in library(probes)]
    cut_at = len(expected[-1])
    faster = SideTokenizer(partial(compiled.with_prompt, prompt, cut_at), partial(compiled.fingerprint, prompt, cut_at))
    is_cut = cut_at < len(compiled.with_prompt(prompt, None, [long])[0])
    return faster if is_cut and faster.tokenize(probes) == expected else SideTokenizer(library)


@dataclass(frozen=True)
class EncoderInputs:
    """Texts with their special tokens, concatenated, as an encoder takes them.

    They are put together on the CPU and moved to the device in one copy.
    """

    ids: NDArray[np.int32]  # [tokens]
    lengths: Ints  # [texts]
    max_length: int
    """The width that padding does not exceed."""
    padding: int
    types: NDArray[np.int32] | None = None  # [tokens]
    some_unattended: bool = False
    """Whether some tokens are left out of attention; their ids are stored as `~id`."""

    @property
    def width(self) -> int:
        return padded_width(self.lengths, self.max_length)

    def packed(self, bucket: Bucket, device: torch.device) -> Tensor:
        """Return ids, types if there are any, and the bounds of texts, filled up to a bucket. int32 [numbers]"""
        rows = [row for row in (self.ids, self.types) if row is not None]
        whole = np.zeros(len(rows) * bucket.tokens + bucket.sequences + 1, np.int32)
        for number, row in enumerate(rows):
            whole[number * bucket.tokens :][: len(row)] = row
        whole[-bucket.sequences :] = np.cumsum(bucket.filled(self.lengths))
        return to_device(whole, device)

    def padded(self, device: torch.device, left: bool = False) -> dict[str, Tensor]:
        """Return padded inputs by the names that libraries give them; with `left`, padding is first.

        int64 [texts, width]
        """
        mask = token_mask(self.lengths, self.width, device)
        mask = mask.flip(1) if left else mask
        ids = pad_rows(self.ids, mask, self.padding)
        if self.some_unattended:
            unattended = ids < 0
            attended = {"input_ids": torch.where(unattended, ~ids, ids), "attention_mask": (mask & ~unattended).long()}
            return {**attended, "query_expansion_positions": unattended}
        features = {"input_ids": ids, "attention_mask": mask.long()}
        return features if self.types is None else {**features, "token_type_ids": pad_rows(self.types, mask, 0)}

    def placeholders(self, device: torch.device) -> dict[str, Tensor]:
        """Return inputs for a library whose encoder takes packed texts and gives one state per text. [texts, 1]"""
        ones = torch.ones(len(self.lengths), 1, dtype=torch.int64, device=device)
        return {"input_ids": ones, "attention_mask": ones}


@dataclass(frozen=True)
class PairTemplate:
    """How a tokenizer joins a query and a document: `[CLS] query [SEP] document [SEP]` for BERT."""

    parts: tuple[int, ...]
    """Ids of special tokens, with `TEXTS` for the two texts."""
    types: tuple[int, ...]  # of each part; empty if the tokenizer gives none
    max_length: int
    padding: int

    @classmethod
    def of(cls, tokenizer: Any, max_length: int) -> PairTemplate:
        """Read the template from a tokenizer's output, because every family has its own."""
        joined = tokenizer("a", "a")
        texts = joined.sequence_ids(0)
        parts = [index for index, text in enumerate(texts) if text is None or text not in texts[:index]]
        ids, types = joined["input_ids"], joined.get("token_type_ids")
        return cls(
            tuple(ids[index] if texts[index] is None else TEXTS[texts[index]] for index in parts),
            tuple(types[index] for index in parts) if types else (),
            max_length,
            tokenizer.pad_token_id or 0,
        )

    @property
    def special(self) -> int:
        """The number of special tokens."""
        return len(self.parts) - len(TEXTS)

    def join(self, queries: Tokens, documents: Tokens) -> EncoderInputs:
        """Join query i with document i, cut to the encoder's length."""
        lengths = np.ones((len(queries), len(self.parts)), np.int64)
        query, document = map(self.parts.index, TEXTS)
        lengths[:, query], lengths[:, document] = cut_pairs(
            queries.lengths, documents.lengths, self.max_length - self.special
        )
        starts = (np.cumsum(lengths) - lengths.ravel()).reshape(lengths.shape)
        ids = documents.with_margins(starts[:, document] - starts[:, 0], lengths.sum(1))
        ids[span_indices(starts[:, query], lengths[:, query])] = queries.cut(lengths[:, query]).concatenated()
        for part, start in zip(self.parts, starts.T, strict=True):
            if part not in TEXTS:
                ids[start] = part
        types = np.tile(np.array(self.types, np.int32), len(queries))
        types_of_ids = np.repeat(types, lengths.ravel()) if self.types else None
        return EncoderInputs(ids, lengths.sum(1), self.max_length, self.padding, types_of_ids)


def cut_pairs(first: Ints, second: Ints, most: int) -> tuple[Ints, Ints]:
    """Return the lengths of pairs cut to `most` tokens; as in tokenizers, the longer text is cut first.

    >>> [x.tolist() for x in cut_pairs(np.array([2, 9, 2]), np.array([3, 9, 20]), 11)]
    [[2, 5, 2], [3, 6, 9]]
    """
    short, long = np.minimum(first, second), np.maximum(first, second)
    too_long = short + long > most
    long = np.where(too_long, np.maximum(short, most - short), long)
    both = short + long > most
    short, long = np.where(both, most // 2, short), np.where(both, most - most // 2, long)
    first_is_short = first <= second
    return np.where(first_is_short, short, long), np.where(first_is_short, long, short)
