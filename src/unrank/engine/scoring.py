"""Scores of pairs, for training and for evaluation.

Pairs go through the encoder in chunks of similar length, so that there is little padding. In float32 the score of a
pair does not depend on its chunk. A separable ranker encodes each text once, however many pairs contain it. If it has a
vector for every token, the number of vectors in memory is bounded. The encodings of a frozen side are kept in the
store, so that a text is encoded once in the whole job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
"""Numbers of encoded queries and documents that are compared at once, at least: 128 MiB."""
NUMBERS_A_TOKEN = 2**8
"""The same for each token that the encoder takes at once: on a GPU 512 MiB, until its memory runs out."""


def score_pairs(
    ranker: Ranker,
    store: TokenStore,
    pairs: Pairs,
    tokens_at_once: int,
    progress: Progress | None = None,
    processes: ProcessGroup | None = None,
    regularised: float = 0.0,
) -> Tensor:
    """Return the score of each pair, in order. Each of several processes computes a share. float32 [pairs]

    With `regularised`, gradients that go back through the scores bring those of the ranker's regulariser with them,
    weighted by this number.
    """
    if not len(pairs):
        return torch.zeros(0, device=ranker.device)
    job = _Scoring(tokens_at_once, progress or Silence(), processes or ProcessGroup(), regularised)
    with ranker.constant_weights():
        if isinstance(ranker, DualEncoder):
            return _score_apart(ranker, store, pairs, job)
        return _score_together(ranker, store, pairs, job)


@dataclass(frozen=True)
class _Scoring:
    """How pairs are scored: tokens at once, the listener, the processes that share the work, and the regulariser."""

    tokens_at_once: int
    progress: Progress
    processes: ProcessGroup
    regularised: float = 0.0

    def map(
        self, what: str, work: Callable[[Rows], Tensor], chunks: Sequence[Rows], device: torch.device
    ) -> list[Tensor]:
        self.progress.begin(what, -(-len(chunks) // self.processes.size))

        def noted(chunk: Rows) -> Tensor:
            made = work(chunk)
            self.progress.advance()
            return made

        return self.processes.map(noted, chunks, device)


def _score_together(ranker: Ranker, store: TokenStore, pairs: Pairs, job: _Scoring) -> Tensor:
    lengths = ranker.lengths(store.lengths(pairs[:, 0], "query"), store.lengths(pairs[:, 1], "document"))
    chunks = list(chunks_by_length(lengths, job.tokens_at_once))
    if job.processes.together:
        chunks = even_chunks(chunks, job.processes.size)

    def score(chunk: Rows) -> Tensor:
        scores: Tensor = ranker(store.get(pairs[chunk, 0], "query"), store.get(pairs[chunk, 1], "document"))
        return scores

    return _in_order(job.map("scoring", score, chunks, ranker.device), chunks)


def scores_of(ranker: Ranker, store: TokenStore, pairs: Pairs, runtime: Runtime) -> NDArray[np.float32]:
    """Return the score of each pair without gradients. A score that is not finite is an error."""
    with torch.no_grad() if runtime.processes.together else torch.inference_mode():  # a gathered layer may be trained
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
    """Yield places of similar length. A chunk padded to its longest has at most `tokens_at_once` tokens.

    >>> [chunk.tolist() for chunk in chunks_by_length(np.array([5, 1, 9, 2]), 10)]
    [[2], [0, 3], [1]]
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = min(MAX_SEQUENCES, max(1, tokens_at_once // max(1, int(lengths[order[start]]))))
        yield order[start : start + size]
        start += size


def even_chunks(chunks: list[Rows], processes: int) -> list[Rows]:
    """Divide the places of chunks again, in the same order, into as many chunks for each process.

    >>> [chunk.tolist() for chunk in even_chunks([np.array([2, 0, 3]), np.array([1])], 4)]
    [[2], [0], [3], [1]]
    """
    places = np.concatenate(chunks)
    parts = processes * -(-len(chunks) // processes)
    return np.array_split(places, min(parts, len(places)))


def _score_apart(ranker: DualEncoder, store: TokenStore, pairs: Pairs, job: _Scoring) -> Tensor:
    """Score pairs, encoding each text once, or once a group of queries if memory cannot hold all encodings."""
    sizes = ranker.encoded_sizes(store.lengths(pairs[:, 1], "document"))
    groups = _groups_that_fit(pairs, sizes)
    shares = [replace(job, regularised=job.regularised * len(group) / len(pairs)) for group in groups]
    scores = [_score_group(ranker, store, pairs[group], one) for group, one in zip(groups, shares, strict=True)]
    return _in_order(scores, groups)


def _groups_that_fit(pairs: Pairs, sizes: NDArray[np.int64]) -> list[Rows]:
    """Group the places of pairs by query, so that the encoded documents of a group fit into memory."""
    _, once = np.unique(pairs[:, 1], return_index=True)
    if sizes[once].sum() <= NUMBERS_KEPT:
        return [np.arange(len(pairs))]
    order = np.argsort(pairs[:, 0], kind="stable")
    number = np.cumsum(sizes[order]) // NUMBERS_KEPT
    return np.split(order, np.flatnonzero(np.diff(number)) + 1)


def _score_group(ranker: DualEncoder, store: TokenStore, pairs: Pairs, job: _Scoring) -> Tensor:
    queries, query_of = _encode_once(ranker, store, pairs[:, 0], "query", job)
    documents, document_of = _encode_once(ranker, store, pairs[:, 1], "document", job)
    at_once = max(NUMBERS_AT_ONCE, NUMBERS_A_TOKEN * job.tokens_at_once)
    chunks = list(chunks_by_length(queries.sizes[query_of] + documents.sizes[document_of], at_once))
    scores = [ranker.interact(queries.take(query_of[chunk]), documents.take(document_of[chunk])) for chunk in chunks]
    term = ranker.regulariser(queries.vectors, documents.vectors) if job.regularised else None
    ordered = _in_order(scores, chunks)
    return ordered if term is None else _Regularised.apply(ordered, job.regularised * term)  # type: ignore[no-untyped-call]


class _Regularised(torch.autograd.Function):
    """Scores as they are. The gradient of a term is added to theirs, whatever the loss of the scores is."""

    @staticmethod
    def forward(context: Any, scores: Tensor, term: Tensor) -> Tensor:
        return scores.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return gradient, gradient.new_ones(())


def _encode_once(
    ranker: DualEncoder, store: TokenStore, rows: Rows, role: Role, job: _Scoring
) -> tuple[Encodings, Rows]:
    """Return the encodings of the texts in `rows`, and the place of each row in them."""
    unique, place = np.unique(rows, return_inverse=True)

    def encode(rows: Rows) -> Encodings:
        chunks = list(chunks_by_length(store.lengths(rows, role), job.tokens_at_once))

        def encoded(chunk: Rows) -> Tensor:
            return ranker.compact(ranker.encode(store.get(rows[chunk], role), role))

        return Encodings.of(job.map(f"encoding {role} texts", encoded, chunks, ranker.device), chunks)

    if (kept := store.kept(ranker, role)) is None:
        return encode(unique), place
    encodings, places = kept.get(unique, ranker.encoded_sizes(store.lengths(unique, role)), encode)
    return encodings, places[place]


def _in_order(values: list[Tensor], chunks: list[Rows]) -> Tensor:
    joined = torch.cat(values)
    back = np.argsort(np.concatenate(chunks), kind="stable")
    return joined[to_device(back, joined.device)]
