"""The limit of the arithmetic: floating-point operations of a pair, and operations per second of a device.

A layer of width h with a feed-forward part of width i takes `2 · (4·h² + 2·h·i)` operations per token for its matrices,
and `4 · n · h` per token for attention in a text of n tokens. A step with gradients costs three times a forward pass,
and twice if only an adapter is trained: the other weights have no gradient.
The head of a splade takes `2 · h · (h + words)` per token. In a decoder several heads share their keys and values, the
feed-forward part has three matrices, and a token sees half of its text. Only tokens that the encoder must read are
counted: no padding, and for a dual encoder each text once per batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unrank.collection.collection import Pairs
from unrank.engine.tokens import TokenStore
from unrank.rankers.base import DualEncoder, Ranker
from unrank.rankers.decoder import DecoderRanker
from unrank.rankers.parade import ParadeRanker
from unrank.rankers.passages import passage_spans
from unrank.rankers.splade import SpladeRanker
from unrank.rankers.tokens import Ints

PEAK = {"NVIDIA H200": 989e12}
"""Operations per second in bfloat16 without sparsity, from the data sheet."""
WITH_GRADIENTS, WITH_ADAPTER = 3, 2


def operations(ranker: Ranker, store: TokenStore, pairs: Pairs) -> float:
    """Return the operations of one pass of the encoder over these pairs."""
    config: Any = next(module.config for module in ranker.modules() if hasattr(module, "config"))
    width, inner = config.hidden_size, getattr(config, "intermediate_size", None) or config.hidden_dim
    lengths = texts_seen(ranker, store, pairs).astype(np.float64)
    decoder = isinstance(ranker, DecoderRanker)
    shared = config.num_key_value_heads / config.num_attention_heads if decoder else 1
    matrices = 2 * ((2 + 2 * shared) * width**2 + (3 if decoder else 2) * width * inner) * lengths.sum()
    attention = (2 if decoder else 4) * width * np.square(lengths).sum()
    head = 2 * width * (width + config.vocab_size) * lengths.sum() if isinstance(ranker, SpladeRanker) else 0.0
    return float(config.num_hidden_layers * (matrices + attention) + head)


def texts_seen(ranker: Ranker, store: TokenStore, pairs: Pairs) -> Ints:
    """Return the length of each text that the encoder must read for these pairs."""
    if isinstance(ranker, DualEncoder):
        queries, documents = (np.unique(pairs[:, side]) for side in (0, 1))
        return np.concatenate([store.lengths(queries, "query"), store.lengths(documents, "document")])
    queries, documents = store.lengths(pairs[:, 0], "query"), store.lengths(pairs[:, 1], "document")
    if not isinstance(ranker, ParadeRanker):
        return ranker.lengths(queries, documents)
    document, starts, ends = passage_spans(documents, ranker.settings)
    return queries[document] + ends - starts
