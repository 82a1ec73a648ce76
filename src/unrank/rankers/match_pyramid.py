"""MatchPyramid: the similarities of all words of the query with all words of the document, read like an image.

Reference: Pang et al., Text Matching as Image Recognition (2016).
Differs: the image has two channels, the cosine and whether the words are equal. Dynamic pooling takes the maximum over
each part of the document and over the whole, as a spatial pyramid does. It then sums over the words of each part of the
query by their weights, because matches of rare words mean more. The pooled image and the document's length go through
a linear layer that starts as a weighted count of matches, and through the paper's perceptron, which starts at zero, so
training begins from a sensible ranker. One convolution instead of two.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from unrank.rankers.fast.pinned_memory import to_device
from unrank.rankers.tokens import Ints, Tokens
from unrank.rankers.word_ranker import WordRanker, WordTable, zeroed

QUERY_PARTS, DOCUMENT_PARTS = 3, 4
FILTERS, HIDDEN = 8, 64
CHANNELS = FILTERS + 2
LENGTH_COSTS = 1.2
"""The cost of a document's log length before training: a longer one has more words that match by chance."""


class MatchPyramidRanker(WordRanker):
    kind = "match-pyramid"

    def __init__(self, table: WordTable) -> None:
        super().__init__(table)
        pooled = QUERY_PARTS * (DOCUMENT_PARTS + 1) * CHANNELS + 1
        self.filters = nn.Linear(9 * 2, FILTERS)
        self.match = nn.Linear(pooled, 1, bias=False)
        self.hidden = nn.Linear(pooled, HIDDEN)
        self.score = zeroed(nn.Linear(HIDDEN, 1))
        with torch.no_grad():
            grid = self.match.weight.zero_()[0, :-1].view(DOCUMENT_PARTS + 1, QUERY_PARTS, CHANNELS)
            grid[0, :, -1] = 4.0
            self.match.weight[0, -1] = -LENGTH_COSTS

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        batch = self.batch(queries, documents)
        query, document = self.table(batch.query), self.table(batch.document)
        across = (
            nn.functional.normalize(query, dim=2).transpose(1, 2).contiguous()
        )  # strided products are slow on some CPUs
        cosine = nn.functional.normalize(document, dim=2) @ across
        image = torch.stack([cosine, batch.same_word().transpose(1, 2)], 3)  # [batch, document, query, 2]
        cells = torch.cat([torch.relu(self.filters(patches(image))), image], 3)
        cells = cells * batch.document_mask[:, :, None, None]
        parts = highest(cells.flatten(2), batch.document_lengths, DOCUMENT_PARTS).view(
            len(queries), DOCUMENT_PARTS, -1, CHANNELS
        )
        rows = torch.cat([parts.amax(1, keepdim=True), parts], 1)  # [batch, 1 + parts, query, channels]
        weights = self.weigh(batch)[:, None] * members(batch.query_lengths, QUERY_PARTS, rows)
        pooled = (weights[:, None, :, :, None] * rows[:, :, None]).sum(3)
        pooled = torch.cat([pooled.flatten(1), batch.document_mask.sum(1, keepdim=True).log1p()], 1)
        scores: Tensor = self.match(pooled) + self.score(torch.relu(self.hidden(pooled)))
        return scores[:, 0]


def patches(image: Tensor) -> Tensor:
    """Return each cell with the eight around it; a linear layer over it is a convolution.

    [batch, height, width, 9 channels]
    """
    height, width = image.shape[1:3]
    padded = nn.functional.pad(image, (0, 0, 1, 1, 1, 1))
    return torch.cat([padded[:, y : y + height, x : x + width] for y in range(3) for x in range(3)], 3)


def parts_of(lengths: Ints, parts: int) -> tuple[Ints, Ints]:
    """Return where each part of a text begins and ends; if there are fewer words than parts, parts share words."""
    part = np.arange(parts)
    start = part * lengths[:, None] // parts
    end: Ints = np.maximum(-(-(part + 1) * lengths[:, None] // parts), start + 1)
    return start, end


def highest(rows: Tensor, lengths: Ints, parts: int) -> Tensor:
    """Return the maximum of each feature in each part of a text. [batch, parts, features]"""
    start, end = parts_of(lengths, parts)
    reach = int((end - start).max(initial=1))
    rows_of_parts = np.minimum(start[..., None] + np.arange(reach), end[..., None] - 1)
    rows_of_parts += rows.shape[1] * np.arange(len(lengths))[:, None, None]
    taken = rows.flatten(0, 1).index_select(0, to_device(rows_of_parts.reshape(-1), rows.device))
    return taken.view(len(lengths), parts, reach, -1).amax(2)


def members(lengths: Ints, parts: int, rows: Tensor) -> Tensor:
    """Return 1 for each word of a query and each part that it is in. [batch, parts, query]"""
    start, end = parts_of(lengths, parts)
    position = np.arange(rows.shape[2])
    inside = (position >= start[..., None]) & (position < end[..., None])
    return to_device(inside.astype(np.float32), rows.device)
