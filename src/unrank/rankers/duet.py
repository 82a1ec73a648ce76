"""Duet: the sum of a local model of exact word matches and a distributed model of what both texts mean.

Reference: Mitra, Diaz, Craswell, Learning to Match using Local and Distributed Representations of Text for Web
Search (2017).
Differs: a document has its own length, not 1,000 words. The local model sees the matches of a query word counted in
segments of the document, and as a share that grows more slowly in longer documents; the distributed model takes one
maximum over the whole document. Query words have weights, because a match of a rare word means more. Both texts go
through the same layers of the distributed model, and its score is bounded: without these limits it memorised training
pairs and outweighed the local model on new queries (docs/log.md). The local model starts as a weighted count of
matches and all else starts at zero, so training begins from a sensible ranker. Word vectors replace character n-graphs,
and there is no dropout.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from unrank.rankers.fast.pinned_memory import to_device
from unrank.rankers.tokens import Tokens
from unrank.rankers.word_ranker import Batch, WordRanker, WordTable, zeroed

WIDTH = 32
SEGMENTS = np.array([0, 8, 16, 32, 64, 128, 256])
"""The word of a document at which each segment begins: the first words say most."""
START = 2.0
"""The weight of a match before training."""
DENSE = len(SEGMENTS) + 1


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
    """Exact matches: which query words the document has, how often and where."""

    def __init__(self) -> None:
        super().__init__()
        features = len(SEGMENTS) + 3
        self.filters = nn.Linear(features, WIDTH)
        self.match = nn.Linear(features + WIDTH, 1, bias=False)
        self.hidden = nn.Linear(features + WIDTH, WIDTH)
        self.score = zeroed(nn.Linear(WIDTH, 1))
        with torch.no_grad():
            self.match.weight.zero_()[0, DENSE] = START

    def forward(self, batch: Batch, weight: Tensor) -> Tensor:
        matches = self._matches(batch)
        terms = torch.cat([matches, torch.tanh(self.filters(matches))], 2)
        query = (terms * weight[..., None]).sum(1)
        scores: Tensor = self.match(query) + self.score(torch.relu(self.hidden(query)))
        return scores[:, 0]

    def _matches(self, batch: Batch) -> Tensor:
        """Return features of where a query word's matches are in the document. [batch, query, features]"""
        same = batch.same_word()
        position = np.arange(same.shape[2])
        segment = np.searchsorted(SEGMENTS, position, side="right")[:, None] == np.arange(1, len(SEGMENTS) + 1)
        counts = same @ to_device(segment.astype(np.float32), same.device)  # [batch, query, segments]
        total = counts.sum(2, keepdim=True)
        length = batch.document_mask.sum(1)[:, None, None].expand_as(total)
        dense = total / (total + 0.5 + length / 64)
        return torch.cat([counts.log1p(), total.log1p(), dense, 0.2 * length.log1p()], 2)


class Distributed(nn.Module):
    """The meaning of both texts: word vectors, three at a time, become one vector per text."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Linear(3 * width, WIDTH)
        self.text = nn.Linear(WIDTH, WIDTH)
        self.match = nn.Linear(WIDTH, WIDTH)
        self.score = zeroed(nn.Linear(WIDTH, 1))

    def forward(self, batch: Batch, query: Tensor, document: Tensor) -> Tensor:
        query_vector = torch.tanh(self.text(strongest(self.words(threes(query)), batch.query_mask)))
        document_vector = torch.tanh(self.text(strongest(self.words(threes(document)), batch.document_mask)))
        scores: Tensor = self.score(torch.relu(self.match(query_vector * document_vector)))
        return scores[:, 0]


def threes(words: Tensor) -> Tensor:
    """Return each word with the words before and after it; a linear layer over it is a convolution. [..., 3 width]"""
    padded = nn.functional.pad(words, (0, 0, 1, 1))
    return torch.cat([padded[:, shift : shift + words.shape[1]] for shift in range(3)], 2)


def strongest(words: Tensor, mask: Tensor) -> Tensor:
    """Return the maximum of each feature over a text's words; -1 if it has none. [batch, width]"""
    return torch.tanh(words).masked_fill(mask[..., None] == 0, -1.0).amax(1)
