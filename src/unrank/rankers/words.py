"""A word table: the words that a ranker knows, a vector for each, and how much each matters.

Row 0 is padding; then the known words; then buckets, into which every other word falls by a hash of its letters. So an
unknown word is not padding, and still matches itself: names are what a query is often about, and no table has them
all. Vectors are fixed, in the buckets random: what is trained is small, and a word that training never showed keeps
its place among its neighbours. They are kept in float16, 40 MB for GloVe's 400,000 words of 50 numbers. One number a
word is trained: how much the word matters. It starts from the word's rank, since tables begin with the most frequent.

A word is a run of letters and digits, in lower case; everything else only parts words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Self
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn

from unrank.errors import BadFile
from unrank.rankers.room import check_numbers
from unrank.rankers.tokens import Tokens
from unrank.rankers.word_file import Vectors, find_vectors

VOCABULARY = "words.txt"
BUCKETS = 2**15
LEAST, MOST = -5.0, 3.0
"""How much the most frequent word matters at first, and one that is not in the table."""
WORD = re.compile(r"[^\W_]+")


def words_of(text: str, most: int | None = None) -> list[str]:
    """The words of a text, or so many of them.

    >>> words_of("Don't PANIC: snake_case, café 42!", 6)
    ['don', 't', 'panic', 'snake', 'case', 'café']
    """
    return [match.group() for match in islice(WORD.finditer(text.lower()), most)]


class WordTable(nn.Module):
    """Words as rows of a table. Vectors are a buffer, the words' importance is a weight."""

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
        known = find_vectors(base, lambda word: WORD.fullmatch(word) is not None and word == word.lower())
        table = cls(known.words, known.vectors.shape[1])
        table._fill(known)
        return table

    @classmethod
    def load(cls, folder: Path, width: int) -> Self:
        """The table of a saved ranker, whose vectors are still to be filled in."""
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
        """The vector of each word; zeros for padding. float32 [..., width]"""
        return self.vectors[rows].float()

    def _fill(self, known: Vectors) -> None:
        size = len(known.vectors)
        spread = float(known.vectors.std()) if size else 1 / math.sqrt(self.width)
        generator = np.random.default_rng(0)
        unknown = generator.normal(0, spread, (BUCKETS, self.width)).astype(np.float16)
        self.vectors[1 : 1 + size] = torch.from_numpy(known.vectors.astype(np.float16))
        self.vectors[1 + size :] = torch.from_numpy(unknown)
        rank = torch.arange(1, size + 1, dtype=torch.float32)
        with torch.no_grad():
            self.importance[1 : 1 + size] = LEAST + (MOST - LEAST) * rank.log() / math.log(size + 1)
            self.importance[1 + size :] = MOST
