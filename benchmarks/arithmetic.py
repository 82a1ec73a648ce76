"""What arithmetic alone allows: how many floating-point operations a pair costs, and how many a device can do.

A layer of width h with a feed-forward part of width i takes `2 · (4·h² + 2·h·i)` operations a token for its matrices,
and `4 · n · h` a token for attention in a text of n tokens; gradients cost twice as much again as the scores. Counted
are the tokens that the encoder has to see: no padding, and for a dual encoder each text once per batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unrank.collection.collection import Pairs
from unrank.engine.tokens import TokenStore
from unrank.rankers.base import DualEncoder, Ranker
from unrank.rankers.parade import ParadeRanker
from unrank.rankers.passages import passage_spans
from unrank.rankers.tokens import Ints

PEAK = {"NVIDIA H200": 989e12}
"""Operations a second in bfloat16 without sparsity, as the maker states them."""
WITH_GRADIENTS = 3


def operations(ranker: Ranker, store: TokenStore, pairs: Pairs) -> float:
    """Of one pass of the encoder over these pairs."""
    config: Any = next(module.config for module in ranker.modules() if hasattr(module, "config"))
    width, inner = config.hidden_size, getattr(config, "intermediate_size", None) or config.hidden_dim
    lengths = texts_seen(ranker, store, pairs).astype(np.float64)
    matrices = 2 * (4 * width**2 + 2 * width * inner) * lengths.sum()
    attention = 4 * width * np.square(lengths).sum()
    return float(config.num_hidden_layers * (matrices + attention))


def texts_seen(ranker: Ranker, store: TokenStore, pairs: Pairs) -> Ints:
    """The length of each text that the encoder has to see for these pairs."""
    if isinstance(ranker, DualEncoder):
        queries, documents = (np.unique(pairs[:, side]) for side in (0, 1))
        return np.concatenate([store.lengths(queries, "query"), store.lengths(documents, "document")])
    queries, documents = store.lengths(pairs[:, 0], "query"), store.lengths(pairs[:, 1], "document")
    if not isinstance(ranker, ParadeRanker):
        return ranker.lengths(queries, documents)
    document, starts, ends = passage_spans(documents, ranker.settings)
    return queries[document] + ends - starts
