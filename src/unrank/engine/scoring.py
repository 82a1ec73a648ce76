"""Scores of pairs, for training and for evaluation alike.

Pairs go through the encoder in chunks of like length, so that little is padded; in float32 the score of a pair does
not depend on its chunk. A separable ranker encodes each text once, however many pairs it stands in; if it keeps a
vector for every token, no more of them are held at once than memory has room for. Of a side that does not move the
store keeps the encodings, so that a text is encoded once in the whole job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
from unrank.engine.distributed import ProcessGroup
from unrank.engine.runtime import Progress, Runtime, Silence
from unrank.engine.tokens import NUMBERS_KEPT, Encodings, TokenStore
from unrank.errors import NotFinite
from unrank.rankers.base import DualEncoder, Ranker, Role
from unrank.rankers.fast.bucketing import MAX_SEQUENCES
from unrank.rankers.fast.pinned_memory import to_device

NUMBERS_AT_ONCE = 2**25
"""How many numbers meet at once where queries and documents are encoded apart: 128 MiB."""


def score_pairs(
    ranker: Ranker,
    store: TokenStore,
    pairs: Pairs,
    tokens_at_once: int,
    progress: Progress | None = None,
    processes: ProcessGroup | None = None,
) -> Tensor:
    """The score of each pair, in order; of several processes each computes a share. float32 [pairs]"""
    if not len(pairs):
        return torch.zeros(0, device=ranker.device)
    way = _Way(tokens_at_once, progress or Silence(), processes or ProcessGroup())
    with ranker.constant_weights():
        if isinstance(ranker, DualEncoder):
            return _score_apart(ranker, store, pairs, way)
        return _score_together(ranker, store, pairs, way)


@dataclass(frozen=True)
class _Way:
    """How pairs are scored: so much at once, by whom, and who is told."""

    tokens_at_once: int
    progress: Progress
    processes: ProcessGroup

    def map(
        self, what: str, work: Callable[[Rows], Tensor], chunks: Sequence[Rows], device: torch.device
    ) -> list[Tensor]:
        self.progress.begin(what, -(-len(chunks) // self.processes.size))

        def noted(chunk: Rows) -> Tensor:
            made = work(chunk)
            self.progress.advance()
            return made

        return self.processes.map(noted, chunks, device)


def _score_together(ranker: Ranker, store: TokenStore, pairs: Pairs, way: _Way) -> Tensor:
    lengths = ranker.lengths(store.lengths(pairs[:, 0], "query"), store.lengths(pairs[:, 1], "document"))
    chunks = list(chunks_by_length(lengths, way.tokens_at_once))

    def score(chunk: Rows) -> Tensor:
        scores: Tensor = ranker(store.get(pairs[chunk, 0], "query"), store.get(pairs[chunk, 1], "document"))
        return scores

    return _in_order(way.map("scoring", score, chunks, ranker.device), chunks)


def scores_of(ranker: Ranker, store: TokenStore, pairs: Pairs, runtime: Runtime) -> NDArray[np.float32]:
    """The same without gradients; a score that is not finite is an error."""
    with torch.inference_mode():
        scores = runtime.memory.score(
            lambda tokens: score_pairs(ranker, store, pairs, tokens, runtime.progress, runtime.processes)
        )
    values: NDArray[np.float32] = scores.cpu().numpy()
    if bad := int(np.count_nonzero(~np.isfinite(values))):
        raise NotFinite(
            f"the ranker gave {bad:,} of {len(values):,} scores that are not finite; it is broken or overflowed"
        )
    return values


def chunks_by_length(lengths: NDArray[np.int64], tokens_at_once: int) -> Iterator[Rows]:
    """Places of like length, each chunk at most so many tokens when padded to its longest.

    >>> [chunk.tolist() for chunk in chunks_by_length(np.array([5, 1, 9, 2]), 10)]
    [[2], [0, 3], [1]]
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = min(MAX_SEQUENCES, max(1, tokens_at_once // max(1, int(lengths[order[start]]))))
        yield order[start : start + size]
        start += size


def _score_apart(ranker: DualEncoder, store: TokenStore, pairs: Pairs, way: _Way) -> Tensor:
    """Each text encoded once; where all encodings would be too much to hold, once a group of queries."""
    sizes = ranker.encoded_sizes(store.lengths(pairs[:, 1], "document"))
    groups = _groups_that_fit(pairs, sizes)
    return _in_order([_score_group(ranker, store, pairs[group], way) for group in groups], groups)


def _groups_that_fit(pairs: Pairs, sizes: NDArray[np.int64]) -> list[Rows]:
    """Places of pairs by query, so that the documents of each group can be held encoded."""
    _, once = np.unique(pairs[:, 1], return_index=True)
    if sizes[once].sum() <= NUMBERS_KEPT:
        return [np.arange(len(pairs))]
    order = np.argsort(pairs[:, 0], kind="stable")
    number = np.cumsum(sizes[order]) // NUMBERS_KEPT
    return np.split(order, np.flatnonzero(np.diff(number)) + 1)


def _score_group(ranker: DualEncoder, store: TokenStore, pairs: Pairs, way: _Way) -> Tensor:
    queries, query_of = _encode_once(ranker, store, pairs[:, 0], "query", way)
    documents, document_of = _encode_once(ranker, store, pairs[:, 1], "document", way)
    chunks = list(chunks_by_length(queries.sizes[query_of] + documents.sizes[document_of], NUMBERS_AT_ONCE))
    scores = [ranker.interact(queries.take(query_of[chunk]), documents.take(document_of[chunk])) for chunk in chunks]
    return _in_order(scores, chunks)


def _encode_once(ranker: DualEncoder, store: TokenStore, rows: Rows, role: Role, way: _Way) -> tuple[Encodings, Rows]:
    """The encodings of all texts that stand in `rows`, and the place of each row among them."""
    unique, place = np.unique(rows, return_inverse=True)

    def encode(rows: Rows) -> Encodings:
        chunks = list(chunks_by_length(store.lengths(rows, role), way.tokens_at_once))

        def encoded(chunk: Rows) -> Tensor:
            return ranker.encode(store.get(rows[chunk], role), role)

        return Encodings.of(way.map(f"encoding {role} texts", encoded, chunks, ranker.device), chunks)

    if (kept := store.kept(ranker, role)) is None:
        return encode(unique), place
    encodings, places = kept.get(unique, ranker.encoded_sizes(store.lengths(unique, role)), encode)
    return encodings, places[place]


def _in_order(values: list[Tensor], chunks: list[Rows]) -> Tensor:
    joined = torch.cat(values)
    back = np.argsort(np.concatenate(chunks), kind="stable")
    return joined[to_device(back, joined.device)]
