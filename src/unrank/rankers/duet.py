"""Duet: a local model of where the query's very words stand, and a distributed model of what both texts mean, summed.

Reference: Mitra, Diaz, Craswell, Learning to Match using Local and Distributed Representations of Text for Web
Search (2017).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unrank.rankers.tokens import Tokens
from unrank.rankers.word_ranker import Batch, WordRanker
from unrank.rankers.words import WordTable

WIDTH = 48
STRETCHES = (0, 8, 16, 32, 64, 128, 256)
WINDOW = 32


class DuetRanker(WordRanker):
    kind = "duet"

    def __init__(self, table: WordTable) -> None:
        super().__init__(table)
        self.local = Local()
        self.distributed = Distributed(table.width)

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        batch = self.batch(queries, documents)
        query, document = self.table(batch.query), self.table(batch.document)
        weight = self.weigh(batch, query)
        return self.local(batch, weight) + self.distributed(batch, query, document)


class Local(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pattern = nn.Linear(len(STRETCHES) + 2, WIDTH)
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, batch: Batch, weight: Tensor) -> Tensor:
        same = batch.same_word()
        place = torch.arange(same.shape[2], device=same.device)
        start = torch.tensor(STRETCHES, device=same.device)
        stretch = ((place[:, None] >= start).sum(1, keepdim=True) - 1 == torch.arange(len(STRETCHES), device=same.device)).float()
        counts = same @ stretch  # [batch, query, stretches]
        length = batch.document_mask.sum(1).log1p() * 0.2
        features = torch.cat([counts.log1p(), counts.sum(2, keepdim=True).log1p(), length[:, None, None].expand(-1, counts.shape[1], 1)], 2)
        term = torch.tanh(self.pattern(features))
        joined = (term * weight[..., None]).sum(1)
        return self.score(joined + torch.relu(self.hidden(joined)))[:, 0]


class Distributed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.query_words = nn.Conv1d(width, WIDTH, 3, padding=1)
        self.document_words = nn.Conv1d(width, WIDTH, 3, padding=1)
        self.query_text = nn.Linear(WIDTH, WIDTH)
        self.document_text = nn.Linear(WIDTH, WIDTH)
        self.match = nn.Linear(WIDTH, WIDTH)
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, batch: Batch, query: Tensor, document: Tensor) -> Tensor:
        q = torch.tanh(self.query_words(query.transpose(1, 2)))
        q = q.masked_fill(batch.query_mask[:, None] == 0, -1.0).amax(2)
        q = torch.tanh(self.query_text(q))
        d = torch.tanh(self.document_words(document.transpose(1, 2)))
        d = d.masked_fill(batch.document_mask[:, None] == 0, -1.0).amax(2)
        d = torch.tanh(self.document_text(d))
        return self.score(torch.relu(self.match(q * d)))[:, 0]
