"""MatchPyramid: the similarities of all words of the query with all words of the document, read like an image.

Reference: Pang et al., Text Matching as Image Recognition (2016).
Differs: the image has two channels, the cosine and whether it is the very same word. Dynamic pooling takes the highest
of each part of the document, of the whole too, as a spatial pyramid does, and then sums the query's words in each part
of the query by their weights, because matches of rare words mean more. The pooled image, with the length of the
document, goes through a linear layer that starts as a weighted count of matches, and through the paper's perceptron,
which starts silent, so that training begins from a sensible ranker. One convolution instead of two.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from unrank.rankers.staging import to_device
from unrank.rankers.tokens import Ints, Tokens
from unrank.rankers.word_ranker import WordRanker, silent
from unrank.rankers.words import WordTable

QUERY_PARTS, DOCUMENT_PARTS = 3, 4
FILTERS, HIDDEN = 8, 64
CHANNELS = FILTERS + 2
LENGTH_COSTS = 1.2
"""What a longer document loses at first, by the logarithm of its length: it has more words to match by chance."""


class MatchPyramidRanker(WordRanker):
    kind = "match-pyramid"

    def __init__(self, table: WordTable) -> None:
        super().__init__(table)
        pooled = QUERY_PARTS * (DOCUMENT_PARTS + 1) * CHANNELS + 1
        self.filters = nn.Linear(9 * 2, FILTERS)
        self.match = nn.Linear(pooled, 1, bias=False)
        self.hidden = nn.Linear(pooled, HIDDEN)
        self.score = silent(nn.Linear(HIDDEN, 1))
        with torch.no_grad():
            grid = self.match.weight.zero_()[0, :-1].view(DOCUMENT_PARTS + 1, QUERY_PARTS, CHANNELS)
            grid[0, :, -1] = 4.0
            self.match.weight[0, -1] = -LENGTH_COSTS

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        batch = self.batch(queries, documents)
        query, document = self.table(batch.query), self.table(batch.document)
        across = nn.functional.normalize(query, dim=2).transpose(1, 2).contiguous()  # else slow on some processors
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
    """Each cell with the eight around it: with a linear layer, a convolution. [batch, height, width, 9 channels]"""
    height, width = image.shape[1:3]
    padded = nn.functional.pad(image, (0, 0, 1, 1, 1, 1))
    return torch.cat([padded[:, y : y + height, x : x + width] for y in range(3) for x in range(3)], 3)


def parts_of(lengths: Ints, parts: int) -> tuple[Ints, Ints]:
    """Where each part of a text begins and ends; in a text of fewer words than parts, parts share words."""
    part = np.arange(parts)
    start = part * lengths[:, None] // parts
    end: Ints = np.maximum(-(-(part + 1) * lengths[:, None] // parts), start + 1)
    return start, end


def highest(rows: Tensor, lengths: Ints, parts: int) -> Tensor:
    """The highest of each feature in each part of a text. [batch, parts, features]"""
    start, end = parts_of(lengths, parts)
    reach = int((end - start).max(initial=1))
    places = np.minimum(start[..., None] + np.arange(reach), end[..., None] - 1)
    places += rows.shape[1] * np.arange(len(lengths))[:, None, None]
    taken = rows.flatten(0, 1).index_select(0, to_device(places.reshape(-1), rows.device))
    return taken.view(len(lengths), parts, reach, -1).amax(2)


def members(lengths: Ints, parts: int, rows: Tensor) -> Tensor:
    """1 where a word of the query is in a part of it. [batch, parts, query]"""
    start, end = parts_of(lengths, parts)
    place = np.arange(rows.shape[2])
    inside = (place >= start[..., None]) & (place < end[..., None])
    return to_device(inside.astype(np.float32), rows.device)
