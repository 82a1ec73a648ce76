"""Duet: a local model of where the query's very words stand, and a distributed model of what both texts mean, summed.

Reference: Mitra, Diaz, Craswell, Learning to Match using Local and Distributed Representations of Text for Web
Search (2017).
Differs: a document is as long as it is, not 1,000 words: the local filters see a query word's matches counted in
stretches of the document, and as a share of which longer documents need more; the distributed model takes one maximum
over the whole of it. Query words carry weights, because a match of a rare word means more. Both sides of the
distributed model go through the same layers, and its score is bounded: else it learned training pairs by heart and
drowned the local model on new queries (docs/log.md). The local model starts as a weighted count of matches, all else
starts silent, so that training begins from a sensible ranker. Word vectors instead of character n-graphs, and no
dropout.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from unrank.rankers.staging import to_device
from unrank.rankers.tokens import Tokens
from unrank.rankers.word_ranker import Batch, WordRanker, silent
from unrank.rankers.words import WordTable

WIDTH = 32
STRETCHES = np.array([0, 8, 16, 32, 64, 128, 256])
"""At which word of a document a stretch of it begins: the first words tell most."""
START = 2.0
"""What a match is worth before training."""
DENSE = len(STRETCHES) + 1


class DuetRanker(WordRanker):
    kind = "duet"

    def __init__(self, table: WordTable) -> None:
        super().__init__(table)
        self.local = Local()
        self.distributed = Distributed(table.width)

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        batch = self.batch(queries, documents)
        query, document = self.table(batch.query), self.table(batch.document)
        local: Tensor = self.local(batch, self.weigh(batch))
        distributed: Tensor = self.distributed(batch, query, document)
        return local + torch.tanh(distributed)


class Local(nn.Module):
    """Which of the query's words the document has, how often and where."""

    def __init__(self) -> None:
        super().__init__()
        features = len(STRETCHES) + 3
        self.filters = nn.Linear(features, WIDTH)
        self.match = nn.Linear(features + WIDTH, 1, bias=False)
        self.hidden = nn.Linear(features + WIDTH, WIDTH)
        self.score = silent(nn.Linear(WIDTH, 1))
        with torch.no_grad():
            self.match.weight.zero_()[0, DENSE] = START

    def forward(self, batch: Batch, weight: Tensor) -> Tensor:
        matches = self._matches(batch)
        terms = torch.cat([matches, torch.tanh(self.filters(matches))], 2)
        query = (terms * weight[..., None]).sum(1)
        scores: Tensor = self.match(query) + self.score(torch.relu(self.hidden(query)))
        return scores[:, 0]

    def _matches(self, batch: Batch) -> Tensor:
        """How a query word's matches lie in the document. [batch, query, features]"""
        same = batch.same_word()
        place = np.arange(same.shape[2])
        stretch = np.searchsorted(STRETCHES, place, side="right")[:, None] == np.arange(1, len(STRETCHES) + 1)
        counts = same @ to_device(stretch.astype(np.float32), same.device)  # [batch, query, stretches]
        total = counts.sum(2, keepdim=True)
        length = batch.document_mask.sum(1)[:, None, None].expand_as(total)
        dense = total / (total + 0.5 + length / 64)
        return torch.cat([counts.log1p(), total.log1p(), dense, 0.2 * length.log1p()], 2)


class Distributed(nn.Module):
    """What query and document are about: each side's word vectors, three at a time, become one vector."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Linear(3 * width, WIDTH)
        self.text = nn.Linear(WIDTH, WIDTH)
        self.match = nn.Linear(WIDTH, WIDTH)
        self.score = silent(nn.Linear(WIDTH, 1))

    def forward(self, batch: Batch, query: Tensor, document: Tensor) -> Tensor:
        asked = torch.tanh(self.text(strongest(self.words(threes(query)), batch.query_mask)))
        told = torch.tanh(self.text(strongest(self.words(threes(document)), batch.document_mask)))
        scores: Tensor = self.score(torch.relu(self.match(asked * told)))
        return scores[:, 0]


def threes(words: Tensor) -> Tensor:
    """Each word with the one before it and the one after it: with a linear layer, a convolution. [..., 3 width]"""
    padded = nn.functional.pad(words, (0, 0, 1, 1))
    return torch.cat([padded[:, shift : shift + words.shape[1]] for shift in range(3)], 2)


def strongest(words: Tensor, mask: Tensor) -> Tensor:
    """The highest of each feature over a text's words; the lowest there can be where it has none. [batch, width]"""
    return torch.tanh(words).masked_fill(mask[..., None] == 0, -1.0).amax(1)
