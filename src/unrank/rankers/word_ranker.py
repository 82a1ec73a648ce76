"""What the rankers over a word table share: their folder, their tokens, and the weight of a query's words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from unrank.errors import BadFile
from unrank.rankers.base import Ranker, Role
from unrank.rankers.own_folder import read_description, read_weights, write_own_folder
from unrank.rankers.staging import to_device
from unrank.rankers.tokens import Ints, Tokens, mask_of
from unrank.rankers.word_file import DEFAULT_WORDS
from unrank.rankers.words import WordTable

LONGEST: dict[Role, int] = {"query": 30, "document": 400}
"""How many words of a text are read."""
PLACES = 12
"""How many places from the query's end are told apart."""


WORDS_A_TOKEN = 4


@dataclass(frozen=True)
class Batch:
    """Padded pairs. Rows of the word table, 0 where there is none; masks are float32, 1 where there is a word."""

    query: Tensor  # [batch, query]
    document: Tensor  # [batch, document]
    query_mask: Tensor  # [batch, query]
    document_mask: Tensor  # [batch, document]
    query_lengths: Ints
    document_lengths: Ints

    @classmethod
    def of(cls, queries: Tokens, documents: Tokens, device: torch.device) -> Batch:
        """Queries are short: to pad them to a round number would cost more than it saves."""
        query, document = queries.padded(0, 0, device), documents.padded(0, LONGEST["document"], device)
        return cls(
            query,
            document,
            mask_of(queries.lengths, query.shape[1], device).float(),
            mask_of(documents.lengths, document.shape[1], device).float(),
            queries.lengths,
            documents.lengths,
        )

    def same_word(self) -> Tensor:
        """1 where a word of the query is a word of the document. [batch, query, document]"""
        equal = self.query[:, :, None] == self.document[:, None, :]
        return equal * self.query_mask[:, :, None]


class TermWeight(nn.Module):
    """How much a word of the query counts: by what the table says of it, and by its place from the query's end."""

    def __init__(self) -> None:
        super().__init__()
        self.by_place = nn.Parameter(torch.zeros(PLACES))

    def forward(self, batch: Batch, importance: Tensor) -> Tensor:
        """More than 0 for a word, 0 for padding. [batch, query]"""
        width = batch.query.shape[1]
        from_end = np.clip(batch.query_lengths[:, None] - 1 - np.arange(width), 0, PLACES - 1)
        place = self.by_place[to_device(from_end, importance.device)]
        return nn.functional.softplus(importance + place) * batch.query_mask


class WordRanker(Ranker):
    """A ranker that reads words off a table. A subclass adds its layers in `__init__` and scores a batch."""

    default_base = DEFAULT_WORDS

    def __init__(self, table: WordTable) -> None:
        super().__init__()
        self.table = table
        self.term_weight = TermWeight()

    @classmethod
    def create(cls, base: str | None) -> Self:
        return cls(WordTable.create(base)).eval()

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
        return self.table.tokenize(texts, LONGEST[role])

    def lengths(self, queries: Ints, documents: Ints) -> Ints:
        """No encoder reads the words, so that several of them cost what a token does."""
        tokens: Ints = 2 + (queries + documents) // WORDS_A_TOKEN
        return tokens

    def batch(self, queries: Tokens, documents: Tokens) -> Batch:
        return Batch.of(queries, documents, self.device)

    def weigh(self, batch: Batch) -> Tensor:
        """How much each word of the query counts. [batch, query]"""
        weights: Tensor = self.term_weight(batch, self.table.importance[batch.query])
        return weights


def silent(layer: nn.Linear) -> nn.Linear:
    """The layer, saying nothing until it is trained."""
    nn.init.zeros_(layer.weight)
    return layer
