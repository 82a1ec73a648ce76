"""Chat templates: the tokens of a rendered pair, put together from the tokens of its texts.

A template puts text before, between and after the two texts, and the library tokenises the whole. A tokenizer may merge
letters across the edge of a text, so a text is tokenised within the template, with a filler in place of the other
text, and only the tokens between two edges that no text moves are its own. A text that moves an edge is kept as the
tokens that it has by itself, stored as `~id`; its pairs are rendered and tokenised whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jinja2 import Undefined, UndefinedError
from numpy.typing import NDArray
from torch import Tensor
from transformers.utils import chat_template_utils

from unrank.errors import UnrankError
from unrank.rankers.model_folder import quiet
from unrank.rankers.tokenisation import EncoderInputs, IdTokenizer, tokenize_in_batches
from unrank.rankers.tokens import Ints, Tokens, span_indices

FILLER = "0"
LONGER_FILLER = "1 2 3 4"
"""Two texts whose tokens differ to the last: what two renders end with alike is the template's own."""
EDGES = (
    FILLER, "a", " a ", "\na\n", "\n\n", "  ", "\t", "\r\n", "?", "a?", "...", "-\n", ">>", "<a>", "'s", "s'", "9 9",
    "é", "\u0301", "漢字", "🙂", "\u200b", "\xa0", ")", "(", ":", "", "_", "A B",
)  # fmt: skip
"""Texts whose first and last letters are of all kinds that tokenizers treat apart."""
MARKS = "qzqzq", "dzdzd"
SPARE = 8
"""Tokens of a text that are kept beyond the longest input, for pairs that are tokenised whole."""

Clean = Callable[[str], str]
Library = Callable[[list[tuple[str, str]]], list[list[int]]]


@dataclass(frozen=True)
class Frame:
    """The letters of a template before the first text, between the texts, and after the second."""

    before: str
    between: str
    after: str
    query_first: bool
    clean: Clean

    def fill(self, query: str, document: str) -> str:
        first, second = (query, document) if self.query_first else (document, query)
        return self.before + self.clean(first) + self.between + self.clean(second) + self.after


def find_frame(render: Callable[[str, str], str]) -> Frame | None:
    """Return the letters around the texts of a rendered pair; `None` if the texts change more than their own place."""
    whole = render(*MARKS)
    if any(whole.count(mark) != 1 for mark in MARKS):
        return None
    query_first = whole.index(MARKS[0]) < whole.index(MARKS[1])
    first, second = MARKS if query_first else MARKS[::-1]
    before, _, rest = whole.partition(first)
    between, _, after = rest.partition(second)
    for clean in (str, str.strip):
        frame = Frame(before, between, after, query_first, clean)
        pairs = [*((text, FILLER) for text in EDGES), *((FILLER, text) for text in EDGES)]
        if all(render(*pair) == frame.fill(*pair) for pair in pairs):
            return frame
    return None


@dataclass(frozen=True)
class Edges:
    """Where a text of one side begins and ends among the tokens of the pair of two fillers."""

    filler: list[int]
    start: int
    end: int

    @classmethod
    def of(cls, renders: Sequence[list[int]]) -> Edges:
        """Return the edges that no text moves; the first render is that of the filler."""
        filler = renders[0]
        start = alike_at_start(renders)
        return cls(filler, start, max(start, len(filler) - alike_at_end(renders)))

    def within(self, ids: list[int]) -> list[int] | None:
        """Return the tokens between the edges of a render; `None` if its text moves an edge."""
        lead, trail = self.filler[: self.start], self.filler[self.end :]
        fits = len(ids) >= len(lead) + len(trail)
        if fits and ids[: len(lead)] == lead and ids[len(ids) - len(trail) :] == trail:
            return ids[len(lead) : len(ids) - len(trail)]
        return None


class ChatTemplate:
    """How a model renders a pair, and how the tokens of a render follow from those of its texts."""

    def __init__(self, transformer: Any, prompt: str, library: Library) -> None:
        """Read the template of the first module of a model; `library` returns the tokens of pairs."""
        self._formatter, self._processor, self._prompt = transformer.input_formatter, transformer.processor, prompt
        self._options = template_options(transformer)
        restores = transformer.processing_kwargs.get("chat_template", {}).get("restore_suffix", True)
        self._tokenizer = IdTokenizer(transformer.tokenizer)
        self._decode = transformer.tokenizer.decode
        self.max_length, self.padding = int(transformer.max_seq_length), int(transformer.tokenizer.pad_token_id or 0)
        fillers = self._ids([self.render(FILLER, FILLER), self.render(LONGER_FILLER, LONGER_FILLER)])
        alike = alike_at_end(fillers)
        self._suffix = fillers[0][len(fillers[0]) - alike :] if restores and alike < min(map(len, fillers)) else []
        self.fixed = frozenset(fillers[0])
        """The tokens of the template, which every pair has."""
        self.frame = find_frame(self.render)
        """The letters around the texts; `None` if every pair is tokenised whole."""
        self._sides: dict[str, Edges] = self._find_sides() if self.frame else {}
        if self._sides and not self._agrees(library):
            self._sides = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> ChatTemplate:
        return self

    def render(self, query: str, document: str) -> str:
        messages = [self._formatter.pair_to_messages((query, document))]
        if self._prompt:
            messages = self._formatter.prepend_prompt_to_messages(messages, self._prompt)
        return str(self._processor.apply_chat_template(messages[0], tokenize=False, **self._options))

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        return [ids.tolist() for ids in self._tokenizer(texts, None)]

    def _find_sides(self) -> dict[str, Edges]:
        """Return the edges of both sides; nothing if no letter but spaces is between them, which texts could move."""
        assert self.frame is not None
        sides = {
            "query": Edges.of(self._ids([self.frame.fill(text, FILLER) for text in EDGES])),
            "document": Edges.of(self._ids([self.frame.fill(FILLER, text) for text in EDGES])),
        }
        first, second = self._in_order(sides)
        return sides if self._text(first.filler[first.end : second.start]).strip() else {}

    def _in_order(self, sides: dict[str, Edges]) -> tuple[Edges, Edges]:
        assert self.frame is not None
        first, second = ("query", "document") if self.frame.query_first else ("document", "query")
        return sides[first], sides[second]

    def _agrees(self, library: Library) -> bool:
        """Return whether probes, short and long, get the tokens that the library gives them."""
        long = " ".join(f"{number} {'abcdefg'[number % 7]}" for number in range(self.max_length))
        pairs = [*zip(EDGES, EDGES[::-1], strict=True), ("a", long), (long, "a"), (long, long)]
        queries, documents = zip(*pairs, strict=True)
        given = self.join(self.tokenize(queries, "query"), self.tokenize(documents, "document"), library)
        rows = np.split(given.ids, np.cumsum(given.lengths)[:-1])
        return [row.tolist() for row in rows] == library(pairs)

    def tokenize(self, texts: Sequence[str], role: str) -> Tokens:
        return tokenize_in_batches(texts, lambda some: self._tokenize(some, role))

    def _tokenize(self, texts: list[str], role: str) -> list[list[int]]:
        edges = self._sides.get(role)
        if edges is None or self.frame is None:
            return [self._apart(text) for text in texts]
        fill, most = self.frame.fill, self.max_length + SPARE
        filled = [fill(text, FILLER) if role == "query" else fill(FILLER, text) for text in texts]
        found = [edges.within(ids) for ids in self._ids(filled)]
        return [(self._apart(text) if ids is None else ids)[:most] for text, ids in zip(texts, found, strict=True)]

    def _apart(self, text: str) -> list[int]:
        """Return the tokens of a text by itself, as `~id`, from which it can be read again."""
        (ids,) = self._ids([text])
        if self._ids([self._text(ids)]) != [ids]:
            raise UnrankError(
                f"a text of {len(text):,} letters cannot be read again from its tokens, and the model's template "
                "merges its letters with others; take the text out of the collection"
            )
        return [~token for token in ids]

    def _text(self, ids: Sequence[int]) -> str:
        return str(self._decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _text_of(self, ids: NDArray[np.int32], role: str) -> str:
        """Return a text from its tokens."""
        edges, frame = self._sides.get(role), self.frame
        if edges is None or frame is None or (len(ids) and ids[0] < 0):
            return self._text([~token for token in ids.tolist()])
        whole = self._text([*edges.filler[: edges.start], *ids.tolist(), *edges.filler[edges.end :]])
        first = (role == "query") == frame.query_first
        before = frame.before if first else frame.before + FILLER + frame.between
        after = frame.between + FILLER + frame.after if first else frame.after
        return whole[len(before) : len(whole) - len(after)]

    def fingerprint(self, role: str) -> str | None:
        """Return a hash of all that the tokens of a text depend on; `None` if not known."""
        if self.frame is None:
            return self._tokenizer.fingerprint("apart", self.max_length)
        fixed = self.frame.fill(*MARKS), self.frame.clean.__name__, bool(self._sides)
        return self._tokenizer.fingerprint(role, self.max_length, *fixed)

    def lengths(self, queries: Ints, documents: Ints) -> Ints:
        """Return the number of tokens of pairs; one that is tokenised whole may have a few more."""
        whole: Ints = queries + documents + self._around
        return np.minimum(whole, self.max_length)

    @property
    def _around(self) -> int:
        if not self._sides:
            return len(self.fixed)
        first, second = self._in_order(self._sides)
        return len(first.filler) - (first.end - first.start) - (second.end - second.start)

    def join(self, queries: Tokens, documents: Tokens, library: Library) -> EncoderInputs:
        """Join query i with document i as the library does, cut to the longest input."""
        whole = self._whole(queries, documents)
        if not whole:
            return self._join_parts(queries, documents)
        texts = [(self._text_of(queries[row], "query"), self._text_of(documents[row], "document")) for row in whole]
        rows = dict(zip(whole, library(texts), strict=True))
        others = np.array([row for row in range(len(queries)) if row not in rows], np.int64)
        if len(others):
            parts = self._join_parts(queries.take(others), documents.take(others))
            split = np.split(parts.ids, np.cumsum(parts.lengths)[:-1])
            rows |= {int(row): ids.tolist() for row, ids in zip(others, split, strict=True)}
        joined = Tokens.of([rows[row] for row in range(len(queries))])
        return EncoderInputs(joined.ids.array, joined.lengths, self.max_length, self.padding)

    def _whole(self, queries: Tokens, documents: Tokens) -> list[int]:
        """Return the places of pairs that are tokenised whole."""
        if not self._sides:
            return list(range(len(queries)))
        if not (queries.ids.some_negative or documents.ids.some_negative):
            return []
        moved = [[bool(len(text)) and text[0] < 0 for text in texts] for texts in (queries, documents)]
        return [place for place, either in enumerate(zip(*moved, strict=True)) if any(either)]

    def _join_parts(self, queries: Tokens, documents: Tokens) -> EncoderInputs:
        """Join tokens of texts. Of a pair that is too long the end is cut, and the template's last tokens restored."""
        assert self.frame is not None
        first, second = self._in_order(self._sides)
        texts = (queries, documents) if self.frame.query_first else (documents, queries)
        filler = first.filler
        fixed = filler[: first.start], filler[first.end : second.start], filler[second.end :]
        parts: list[Tokens | list[int]] = [fixed[0], texts[0], fixed[1], texts[1], fixed[2], self._suffix]
        full = np.stack([_lengths(part, len(queries)) for part in parts], 1)
        cut = full[:, :5].sum(1) >= self.max_length
        full[:, 5] = np.where(cut, np.minimum(full[:, 5], self.max_length), 0)
        room = np.where(cut, self.max_length, full[:, :5].sum(1)) - full[:, 5]
        starts = np.cumsum(full[:, :5], 1) - full[:, :5]
        full[:, :5] = np.clip(room[:, None] - starts, 0, full[:, :5])
        return EncoderInputs(_filled(parts, full), full.sum(1), self.max_length, self.padding)


def template_options(transformer: Any) -> dict[str, Any]:
    """Return the settings with which a model renders its template."""
    options = dict(transformer.processing_kwargs.get("chat_template", {}))
    options.pop("restore_suffix", None)  # a setting of sentence-transformers, not of the template
    return options


class _Printed(Undefined):
    """A field that a template is not given. To test it is allowed, to print it is an error."""

    def __str__(self) -> str:
        return str(self._fail_with_undefined_error())


def undefined_field(transformer: Any) -> str | None:
    """Return what a template says that prints a field which no pair has: the library leaves that out in silence."""
    formatter, processor = transformer.input_formatter, transformer.processor
    messages, options = formatter.pair_to_messages((FILLER, FILLER)), template_options(transformer)
    source = transformer.tokenizer.get_chat_template(options.get("chat_template"))
    environment = chat_template_utils._compile_jinja_template(source).environment  # the library keeps it
    usual, environment.undefined = environment.undefined, _Printed
    try:
        processor.apply_chat_template(messages, tokenize=False, **options)
    except UndefinedError as error:
        return str(error)
    finally:
        environment.undefined = usual
    return None


def alike_at_start(rows: Sequence[list[int]]) -> int:
    """Return with how many equal ids all rows begin.

    >>> alike_at_start([[1, 2, 3], [1, 2], [1, 2, 4]])
    2
    """
    columns = enumerate(zip(*rows, strict=False))
    return next((place for place, column in columns if len({*column}) > 1), min(map(len, rows)))


def alike_at_end(rows: Sequence[list[int]]) -> int:
    return alike_at_start([row[::-1] for row in rows])


def _lengths(part: Tokens | list[int], rows: int) -> Ints:
    return np.full(rows, len(part)) if isinstance(part, list) else part.lengths


def _filled(parts: Sequence[Tokens | list[int]], lengths: Ints) -> NDArray[np.int32]:
    """Return rows of parts, one after another; of each part, the given number of tokens, the last part's last ones."""
    ids = np.empty(lengths.sum(), np.int32)
    starts = (np.cumsum(lengths) - lengths.ravel()).reshape(lengths.shape)
    for number, part in enumerate(parts):
        places = span_indices(starts[:, number], lengths[:, number])
        if isinstance(part, Tokens):
            ids[places] = part.cut(lengths[:, number]).concatenated()
        elif part:
            first = len(part) - lengths[:, number] if number == len(parts) - 1 else np.zeros_like(lengths[:, number])
            ids[places] = np.array(part, np.int32)[span_indices(first, lengths[:, number])]
    return ids


def library_tokens(model: Any, prompt: str, pairs: list[tuple[str, str]]) -> list[list[int]]:
    """Return the tokens of pairs as a model of sentence-transformers makes them."""
    with quiet():
        features = model.preprocess(pairs, prompt=prompt or None)
    ids: Tensor = features["input_ids"]
    mask: Tensor = features.get("attention_mask", torch.ones_like(ids)).bool()
    return [row[kept].tolist() for row, kept in zip(ids, mask, strict=True)]
