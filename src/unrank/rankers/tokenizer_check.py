"""A check of tokenizers: none may make a text much longer.

`tokenizer.json` is a chain of steps, and each may make its text longer: thirty steps that double it make a gigabyte of
one letter. So only known steps are allowed, and the product of what they can do at most is limited.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict

from unrank.errors import BadFile

LARGEST_GROWTH = 64
"""Times that a text may become longer by all steps together."""
MOST_STEPS = 32
MOST_SPECIAL = 32
"""Special tokens that may be added to a text."""
LONGEST_PIECE = 64
"""Characters of a text that stands for one character, or of the mark of a word's parts."""
LONGEST_WORD = 10_000
LONGEST_PADDING = 2**17
MODELS = {"BPE", "WordPiece", "WordLevel", "Unigram"}
PROCESSORS = {"TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel", "Sequence"}


class Step(TypedDict, total=False):
    """The keys of a step that are read, as `tokenizers` writes them. A stranger's file may hold anything there."""

    type: str
    content: str | None
    pattern: dict[str, str]
    prepend: str | None
    precompiled_charsmap: str | None
    special_tokens: dict[str, dict[str, list[int]]]
    single: list[dict[str, dict[str, str]]]
    pair: list[dict[str, dict[str, str]]]


class Padding(TypedDict, total=False):
    """The keys of the padding that are read."""

    strategy: str | dict[str, int]
    pad_to_multiple_of: int | None


def check_tokenizer(path: Path, value: Any) -> None:
    """Refuse a tokenizer with steps that unrank does not know, or that make a text too long."""
    try:
        _check(value)
    except (TypeError, AttributeError, KeyError) as error:
        raise BadFile(path, f"cannot be loaded: not a tokenizer ({type(error).__name__}: {error})") from error
    except ValueError as error:
        raise BadFile(path, f"cannot be loaded: {error}") from error


def _check(value: Any) -> None:
    model = value["model"]
    if model.get("type", "BPE") not in MODELS:
        raise ValueError(f"a tokenizer of type {model.get('type')!r}; unrank reads {', '.join(sorted(MODELS))}")
    marks = [model.get(key) for key in ("continuing_subword_prefix", "end_of_word_suffix", "unk_token")]
    if any(len(mark or "") > LONGEST_PIECE for mark in marks):
        raise ValueError("a tokenizer that adds a long text to every part of a word")
    if (model.get("max_input_chars_per_word") or 0) > LONGEST_WORD:
        raise ValueError(f"a tokenizer for words of more than {LONGEST_WORD:,} characters")
    growth = 1.0
    for kind, known in (("normalizer", NORMALIZERS), ("pre_tokenizer", PRE_TOKENIZERS)):
        for step in _steps(value.get(kind), kind):
            if step.get("type") not in known:
                raise ValueError(f"a {kind} of type {step.get('type')!r}; unrank reads {', '.join(sorted(known))}")
            growth *= known[step["type"]](step)
    if growth > LARGEST_GROWTH:
        raise ValueError(f"a tokenizer that can make a text {growth:,.0f} times as long; at most {LARGEST_GROWTH}")
    for step in _steps(value.get("post_processor"), "post_processor"):
        _check_processor(step)
    _check_padding(value.get("padding") or Padding())


def _steps(value: Any, kind: str) -> list[Step]:
    """Return the steps of a chain, those within others too."""
    steps = list(_unfolded(value, kind))
    if len(steps) > MOST_STEPS:
        raise ValueError(f"a {kind} of {len(steps):,} steps; at most {MOST_STEPS}")
    return steps


def _unfolded(value: Any, kind: str) -> Iterator[Step]:
    if value is None:
        return
    if value.get("type") != "Sequence":
        yield value
        return
    names = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors"}
    for step in value[names[kind]]:
        yield from _unfolded(step, kind)


def _same(step: Step) -> float:
    return 1.0


def _twice(step: Step) -> float:
    """Return the growth of a step that may write two characters for one."""
    return 2.0


def _replaced(step: Step) -> float:
    """Return the growth of a replacement. A regular expression may match between any two characters."""
    content, pattern = len(step.get("content") or ""), step["pattern"]
    if "Regex" in pattern:
        return 1.0 + content
    return max(1.0, content / len(pattern["String"])) if pattern["String"] else 1.0 + content


def _prepended(step: Step) -> float:
    if len(step.get("prepend") or "") > LONGEST_PIECE:
        raise ValueError("a tokenizer that puts a long text before every text")
    return 1.0


def _precompiled(step: Step) -> float:
    """Return the growth of a map of characters: the length of a table, the table, then texts that end with a zero."""
    try:
        packed = base64.b64decode(step.get("precompiled_charsmap") or "", validate=True)
    except binascii.Error as error:
        raise ValueError("a tokenizer whose map of characters is damaged") from error
    texts = packed[4 + int.from_bytes(packed[:4], "little") :].split(b"\0")
    if max(map(len, texts)) > LONGEST_PIECE:
        raise ValueError("a tokenizer that writes a long text for one character")
    return 2.0


NORMALIZERS: dict[str, Callable[[Step], float]] = {
    "BertNormalizer": _same,
    "NFC": _same,
    "NFD": _same,
    "NFKC": _same,
    "NFKD": _same,
    "Nmt": _same,
    "Lowercase": _same,
    "Strip": _same,
    "StripAccents": _same,
    "Precompiled": _precompiled,
    "Replace": _replaced,
    "Prepend": _prepended,
    "ByteLevel": _twice,
}
"""By type, how many times longer a normaliser may make a text."""
PRE_TOKENIZERS: dict[str, Callable[[Step], float]] = {
    "BertPreTokenizer": _same,
    "Whitespace": _same,
    "WhitespaceSplit": _same,
    "CharDelimiterSplit": _same,
    "Digits": _same,
    "Punctuation": _same,
    "Split": _same,
    "UnicodeScripts": _same,
    "FixedLength": _same,
    "ByteLevel": _twice,
    "Metaspace": _twice,
}
"""By type, how many times longer a pre-tokenizer may make a text."""


def _check_processor(step: Step) -> None:
    """Refuse a template that repeats a text, or adds many tokens to it."""
    if step.get("type") not in PROCESSORS:
        raise ValueError(f"a post_processor of type {step.get('type')!r}; unrank reads {', '.join(sorted(PROCESSORS))}")
    if step["type"] != "TemplateProcessing":
        return
    longest = max((len(token["ids"]) for token in step["special_tokens"].values()), default=0)
    for pieces, most in ((step["single"], {"A": 1}), (step["pair"], {"A": 1, "B": 1})):
        texts = [piece["Sequence"]["id"] for piece in pieces if "Sequence" in piece]
        if any(texts.count(text) > most.get(text, 0) for text in texts):
            raise ValueError("a tokenizer that repeats a text")
        if (len(pieces) - len(texts)) * longest > MOST_SPECIAL:
            raise ValueError(f"a tokenizer that adds more than {MOST_SPECIAL} tokens to a text")


def _check_padding(padding: Padding) -> None:
    strategy = padding.get("strategy")
    fixed = strategy.get("Fixed", 0) if isinstance(strategy, dict) else 0
    if max(fixed, padding.get("pad_to_multiple_of") or 0) > LONGEST_PADDING:
        raise ValueError(f"a tokenizer that pads a text to more than {LONGEST_PADDING:,} tokens")
