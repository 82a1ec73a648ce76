"""MatchPyramid"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from unrank.rankers.tokens import Ints, Tokens, to_device
from unrank.rankers.word_ranker import Batch, WordRanker
from unrank.rankers.words import WordTable

GRID = (3, 4)
FILTERS = 16


class MatchPyramidRanker(WordRanker):
    kind = "match-pyramid"

    def __init__(self, table: WordTable) -> None:
        super().__init__(table)
        self.first = nn.Conv2d(2, FILTERS, 3, padding=1)
        self.hidden = nn.Linear((FILTERS + 2) * GRID[0] * GRID[1], 64)
        self.score = nn.Linear(64, 1)

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        batch = self.batch(queries, documents)
        query, document = self.table(batch.query), self.table(batch.document)
        weight = self.weigh(batch, query)
        cosine = nn.functional.normalize(query, dim=2) @ nn.functional.normalize(document, dim=2).transpose(1, 2)
        image = torch.stack([cosine, batch.same_word()], 1)
        patches = nn.functional.unfold(image, 3, padding=1)
        cells = torch.relu(self.first.weight.flatten(1) @ patches + self.first.bias[:, None]).unflatten(2, cosine.shape[1:])
        cells = torch.cat([cells * batch.document_mask[:, None, None], image], 1)
        rows = pool(cells, batch.document_lengths, GRID[1]) * weight[:, None, :, None]
        pooled = pool_sum(rows.transpose(2, 3), batch.query_lengths, GRID[0])
        return self.score(torch.relu(self.hidden(pooled.flatten(1))))[:, 0]


def pool_sum(rows, lengths, parts):
    part = np.arange(parts)[:, None]
    n = lengths[:, None, None]
    start = part * n // parts
    end = np.maximum(-(-(part + 1) * n // parts), start + 1)
    j = np.arange(rows.shape[3])
    inside = ((j >= start) & (j < end)).astype(np.float32)  # [batch, parts, query]
    return rows @ to_device(inside, rows.device).transpose(1, 2)[:, None]


def pool(cells: Tensor, lengths: Ints, parts: int) -> Tensor:
    """The highest value of each part of the last axis"""
    part = np.arange(parts)
    start = part * lengths[:, None] // parts
    end = np.maximum(-(-(part + 1) * lengths[:, None] // parts), start + 1)
    reach = int((end - start).max(initial=1))
    places = np.minimum(start[..., None] + np.arange(reach), end[..., None] - 1).reshape(len(lengths), -1)
    index = to_device(places, cells.device)[:, None, None].expand(-1, *cells.shape[1:3], -1)
    return cells.gather(3, index).unflatten(3, (parts, reach)).amax(4)
