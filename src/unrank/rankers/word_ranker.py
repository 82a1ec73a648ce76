"""Rankers over a word table: the table, their folder, their tokens, and the weights of query words.

Row 0 of the table is padding. Then come the known words, then buckets: an unknown word falls into one by a hash of its
characters, so that it still matches itself. Names are often what a query is about, and no table has them all. Vectors
are fixed (random for buckets), so only a small part is trained, and a word that training never showed keeps its
neighbours. They are stored in float16: 40 MB for GloVe's 400,000 words of 50 numbers. One number per word is trained,
its importance. It starts from the word's rank, because tables begin with the most frequent words.

A word is a run of letters and digits in lower case; all other characters separate words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Self
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn

from unrank.errors import BadFile
from unrank.rankers.base import Ranker, Role
from unrank.rankers.fast.pinned_memory import to_device
from unrank.rankers.model_folder import read_description, read_weights, write_own_folder
from unrank.rankers.size_check import check_numbers
from unrank.rankers.tokens import Ints, Tokens, token_mask
from unrank.rankers.vocabulary import Vocabulary
from unrank.rankers.word_file import DEFAULT_WORDS, Vectors, find_vectors, vector_files

VOCABULARY = "words.txt"
BUCKETS = 2**15
LOWEST, HIGHEST = -5.0, 3.0
"""The importance at the start of the most frequent word, and of a word that is not in the table."""
WORD = re.compile(r"[^\W_]+")
MAX_WORDS: dict[Role, int] = {"query": 30, "document": 400}
"""Number of words of a text that are read."""
POSITIONS = 12
"""Number of positions from the query's end that have a weight of their own."""
WORDS_PER_TOKEN = 4
"""Number of words that cost as much time as one token of an encoder."""


def words_of(text: str, most: int | None = None) -> list[str]:
    """Return the words of a text, at most `most` of them.

    >>> words_of("Don't PANIC: snake_case, café 42!", 6)
    ['don', 't', 'panic', 'snake', 'case', 'café']
    """
    return [match.group() for match in islice(WORD.finditer(text.lower()), most)]


class WordTable(nn.Module):
    """Words as rows of a table. Vectors are a buffer; the importance of words is trained."""

    vectors: Tensor  # float16 [rows, width]

    def __init__(self, words: Sequence[str], width: int) -> None:
        super().__init__()
        self.words = tuple(words)
        self.width = width
        self._row = {word: row for row, word in enumerate(self.words, start=1)}
        rows = 1 + len(self.words) + BUCKETS
        self.register_buffer("vectors", torch.zeros(rows, width, dtype=torch.float16))
        self.importance = nn.Parameter(torch.zeros(rows))

    @classmethod
    def create(cls, base: str | None) -> Self:
        given = find_vectors(base, lambda word: WORD.fullmatch(word) is not None and word == word.lower())
        table = cls(given.words, given.vectors.shape[1])
        table._fill(given)
        return table

    @classmethod
    def load(cls, folder: Path, width: int) -> Self:
        """Return the table of a saved ranker, before its vectors are filled in."""
        path = folder / VOCABULARY
        try:
            words = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BadFile(path, "cannot be read as a list of words") from error
        check_numbers(folder, width * (1 + len(words) + BUCKETS))
        return cls(words, width)

    def save(self, folder: Path) -> None:
        text = "".join(f"{word}\n" for word in self.words)
        (folder / VOCABULARY).write_text(text, encoding="utf-8")

    def row(self, word: str) -> int:
        return self._row.get(word) or 1 + len(self.words) + crc32(word.encode()) % BUCKETS

    def tokenize(self, texts: Sequence[str], most: int) -> Tokens:
        return Tokens.of([[self.row(word) for word in words_of(text, most)] for text in texts])

    def forward(self, rows: Tensor) -> Tensor:
        """Return the vector of each word; zeros for padding. float32 [..., width]"""
        return self.vectors[rows].float()

    def _fill(self, given: Vectors) -> None:
        size = len(given.vectors)
        spread = float(given.vectors.std()) if size else 1 / math.sqrt(self.width)
        generator = np.random.default_rng(0)
        unknown = generator.normal(0, spread, (BUCKETS, self.width)).astype(np.float16)
        self.vectors[1 : 1 + size] = torch.from_numpy(given.vectors.astype(np.float16))
        self.vectors[1 + size :] = torch.from_numpy(unknown)
        with torch.no_grad():
            self.importance.copy_(self.initial_importance())

    def initial_importance(self) -> Tensor:
        """Return the importance of words before training: by their rank; highest for words that are not known."""
        size = len(self.words)
        rank = torch.arange(1, size + 1, dtype=torch.float32)
        known = LOWEST + (HIGHEST - LOWEST) * rank.log() / math.log(size + 1)
        return torch.cat([torch.zeros(1), known, torch.full((BUCKETS,), HIGHEST)])


@dataclass(frozen=True)
class Batch:
    """Padded pairs, as rows of the word table. Row 0 is padding; masks are float32, 1 for a word."""

    query: Tensor  # [batch, query]
    document: Tensor  # [batch, document]
    query_mask: Tensor  # [batch, query]
    document_mask: Tensor  # [batch, document]
    query_lengths: Ints
    document_lengths: Ints

    @classmethod
    def of(cls, queries: Tokens, documents: Tokens, device: torch.device) -> Batch:
        """Pad pairs; queries are short, and rounding their width up would cost more than it saves."""
        query, document = queries.padded(0, 0, device), documents.padded(0, MAX_WORDS["document"], device)
        return cls(
            query,
            document,
            token_mask(queries.lengths, query.shape[1], device).float(),
            token_mask(documents.lengths, document.shape[1], device).float(),
            queries.lengths,
            documents.lengths,
        )

    def same_word(self) -> Tensor:
        """Return 1 for each query word and document word that are equal. [batch, query, document]"""
        equal = self.query[:, :, None] == self.document[:, None, :]
        return equal * self.query_mask[:, :, None]


class TermWeight(nn.Module):
    """The weights of query words, from their importance and their position from the query's end."""

    def __init__(self) -> None:
        super().__init__()
        self.by_place = nn.Parameter(torch.zeros(POSITIONS))

    def forward(self, batch: Batch, importance: Tensor) -> Tensor:
        """Return weights above 0 for words and 0 for padding. [batch, query]"""
        width = batch.query.shape[1]
        from_end = np.clip(batch.query_lengths[:, None] - 1 - np.arange(width), 0, POSITIONS - 1)
        by_position = self.by_place[to_device(from_end, importance.device)]
        return nn.functional.softplus(importance + by_position) * batch.query_mask


class WordRanker(Ranker):
    """A ranker over a word table. A subclass adds its layers in `__init__` and writes `forward`."""

    default_base = DEFAULT_WORDS
    reads_words = True

    def __init__(self, table: WordTable) -> None:
        super().__init__()
        self.table = table
        self.term_weight = TermWeight()

    @classmethod
    def create(cls, base: str | None) -> Self:
        return cls(WordTable.create(base)).eval()

    @classmethod
    def base_files(cls, base: str | None) -> list[Path]:
        return vector_files(base)

    @classmethod
    def load(cls, folder: Path) -> Self:
        width = read_description(folder)[1].get("width")
        if not isinstance(width, int) or width < 1:
            raise BadFile(folder, f"cannot be loaded as a {cls.kind}: its description has no width of word vectors")
        ranker = cls(WordTable.load(folder, width))
        read_weights(folder, ranker)
        return ranker.eval()

    def save(self, folder: Path) -> None:
        write_own_folder(folder, self.kind, {"width": self.table.width}, self)
        self.table.save(folder)

    def tokenize(self, texts: Sequence[str], role: Role) -> Tokens:
        return self.table.tokenize(texts, MAX_WORDS[role])

    def lengths(self, queries: Ints, documents: Ints) -> Ints:
        tokens: Ints = 2 + (queries + documents) // WORDS_PER_TOKEN
        return tokens

    @property
    def vocabularies(self) -> Sequence[Vocabulary]:
        """The importance of words, which only queries move."""
        initial = self.table.initial_importance().to(self.device)
        return [Vocabulary((self.table.importance,), ("query",), frozenset([0]), initial=(initial,))]

    def batch(self, queries: Tokens, documents: Tokens) -> Batch:
        return Batch.of(queries, documents, self.device)

    def weigh(self, batch: Batch) -> Tensor:
        """Return the weight of each query word. [batch, query]"""
        weights: Tensor = self.term_weight(batch, self.table.importance[batch.query])
        return weights


def zeroed(layer: nn.Linear) -> nn.Linear:
    """Return the layer with weights of zero, so that it gives a constant until it is trained."""
    nn.init.zeros_(layer.weight)
    return layer
