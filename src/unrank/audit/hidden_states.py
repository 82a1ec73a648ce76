"""Hidden states: the numbers that a ranker computes for a pair just before its score.

A dual encoder has one vector for the query and one for the document; a late interaction has one for each token, and
their mean is taken. A sparse vector has a number for each word; a fixed random projection makes it narrow. Of any other
ranker, what its last linear layers read is taken: those with a single output. A ranker without such a layer has only
its score.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from unrank.audit.context import AuditedRanker
from unrank.collection.collection import Pairs
from unrank.collection.texts import Rows
from unrank.engine.scoring import chunks_by_length
from unrank.evaluation.measure import Floats
from unrank.rankers.base import DualEncoder, Role

WIDEST, NARROW = 4096, 512
"""The widest vector that is taken as it is, and the width to which a wider one is projected."""


@torch.inference_mode()
def hidden_states(pairs: Pairs, one: AuditedRanker) -> Floats:
    """Return the hidden state of each pair. [pairs, width]"""
    memory = one.workspace.runtime.memory
    with one.ranker.constant_weights():
        if not isinstance(one.ranker, DualEncoder):
            states = _numbers(memory.score(lambda tokens: _read_by_heads(one, pairs, tokens)))
            return states if states.shape[1] else one.scores(pairs).astype(np.float64)[:, None]
        queries, documents = pairs.T
        query = _numbers(memory.score(lambda tokens: _encoded(one, queries, "query", tokens)))
        document = _numbers(memory.score(lambda tokens: _encoded(one, documents, "document", tokens)))
    return np.concatenate([query, document, query * document], axis=1)


def _encoded(one: AuditedRanker, rows: Rows, role: Role, tokens_at_once: int) -> Tensor:
    """Encode each text once. [rows, width]"""
    assert isinstance(one.ranker, DualEncoder)
    unique, place = np.unique(rows, return_inverse=True)
    store, made = one.workspace.store, []
    chunks = list(chunks_by_length(store.lengths(unique, role), tokens_at_once))
    for chunk in chunks:
        encoded = one.ranker.encode(store.get(unique[chunk], role), role)
        if encoded.dim() == 3:  # one vector for each token, and zeros after the last
            encoded = encoded.sum(1) / (encoded != 0).any(2).sum(1, keepdim=True).clamp_min(1)
        made.append(encoded if encoded.shape[1] <= WIDEST else encoded @ _projection(encoded.shape[1], encoded.device))
    return _in_order(made, chunks)[torch.from_numpy(place)]


@lru_cache(maxsize=1)
def _projection(width: int, device: torch.device) -> Tensor:
    """Return a fixed random projection, which nearly keeps the products of vectors. [width, NARROW]"""
    signs = torch.randint(0, 2, (width, NARROW), generator=torch.Generator().manual_seed(0), dtype=torch.int8)
    return (2.0 * signs.to(device) - 1.0) / math.sqrt(NARROW)


def _read_by_heads(one: AuditedRanker, pairs: Pairs, tokens_at_once: int) -> Tensor:
    """Return what the linear layers with one output read for each pair. [pairs, width, or 0 if there are none]"""
    ranker, store = one.ranker, one.workspace.store
    heads = [module for module in ranker.modules() if isinstance(module, nn.Linear) and module.out_features == 1]
    lengths = ranker.lengths(store.lengths(pairs[:, 0], "query"), store.lengths(pairs[:, 1], "document"))
    empty = torch.zeros(len(pairs), 0, device=ranker.device)
    chunks, made, read = list(chunks_by_length(lengths, tokens_at_once)), list[Tensor](), list[Tensor]()
    hooks = [head.register_forward_pre_hook(lambda _, given: read.append(given[0])) for head in heads]
    try:
        for chunk in chunks if heads else ():
            read.clear()
            ranker(store.get(pairs[chunk, 0], "query"), store.get(pairs[chunk, 1], "document"))
            made.append(torch.cat([empty[chunk], *(one.float() for one in read if one.shape[:-1] == (len(chunk),))], 1))
    finally:
        for hook in hooks:
            hook.remove()
    return _in_order(made, chunks) if made else empty


def _in_order(made: list[Tensor], chunks: list[Rows]) -> Tensor:
    back = np.argsort(np.concatenate(chunks), kind="stable")
    return torch.cat(made).cpu()[torch.from_numpy(back)]


def _numbers(states: Tensor) -> Floats:
    return states.double().cpu().numpy()
