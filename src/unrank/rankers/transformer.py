"""What the rankers over sentence-transformers share: loading, saving, and how a pair is joined."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.utils import logging as transformers_logging

from unrank.errors import BadFile, UnrankError
from unrank.rankers.tokens import Ints, Tokens, mask_of, width_for

MAX_TOKENS = 256
"""How much of a text a freshly made ranker reads, where its encoder can read more."""

SAFE = {
    "model_kwargs": {"use_safetensors": True, "dtype": torch.float32},
    "trust_remote_code": False,
    "local_files_only": True,
}


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars and notices of the libraries below."""
    logger = logging.getLogger("sentence_transformers")
    level, was = transformers_logging.get_verbosity(), logger.level
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        transformers_logging.enable_progress_bar()
        logger.setLevel(was)


@contextmanager
def loading(path: Path, what: str) -> Iterator[None]:
    """Load quietly, and turn whatever the libraries raise at a strange folder into one line."""
    try:
        with quiet():
            yield
    except UnrankError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise BadFile(path, f"cannot be loaded as {what}: {reason}") from error


def longest_input(tokenizer: Any, config: Any) -> int:
    """How many tokens an encoder can read at most."""
    positions = getattr(config, "max_position_embeddings", None) or 512
    return int(min(getattr(tokenizer, "model_max_length", positions), positions))


@dataclass(frozen=True)
class PairTemplate:
    """How a tokenizer joins a query and a document: `[CLS] query [SEP] document [SEP]` for BERT.

    It is read off the tokenizer, so that every family's own form is kept.
    """

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    types: tuple[int, ...]  # of: before, query, between, document, after; none where the tokenizer gives none
    longest: int
    padding: int

    @classmethod
    def of(cls, tokenizer: Any, longest: int) -> PairTemplate:
        joined = tokenizer("a", "a")
        sides = joined.sequence_ids(0)
        query, document = sides.index(0), sides.index(1)
        after_query = len(sides) - sides[::-1].index(0)
        after_document = len(sides) - sides[::-1].index(1)
        ids, types = joined["input_ids"], joined.get("token_type_ids")
        edges = (0, query, after_query, document, after_document) if types else ()
        return cls(
            tuple(ids[:query]),
            tuple(ids[after_query:document]),
            tuple(ids[after_document:]),
            tuple(types[edge] if edge < len(types) else 0 for edge in edges),
            longest,
            tokenizer.pad_token_id or 0,
        )

    @property
    def special(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)

    def join(self, queries: Tokens, documents: Tokens, device: torch.device) -> dict[str, Tensor]:
        """The encoder's inputs for each pair. int64 [pairs, longest]"""
        query_lengths, document_lengths = cut_pairs(queries.lengths, documents.lengths, self.longest - self.special)
        lengths = query_lengths + document_lengths + self.special
        width = width_for(lengths, self.longest)
        ids = torch.full((len(queries), width), self.padding, device=device)
        kinds = torch.zeros_like(ids)
        column: Ints = np.zeros(len(queries), np.int64)
        query, document = queries.cut(query_lengths), documents.cut(document_lengths)
        parts: Sequence[Tokens | tuple[int, ...]] = (self.before, query, self.between, document, self.after)
        for part, kind in zip(parts, self.types or (0,) * len(parts), strict=True):
            tokens = part if isinstance(part, Tokens) else _repeated(part, len(queries))
            tokens.place(ids, column)
            if kind:
                kinds += kind * (mask_of(column + tokens.lengths, width, device) & ~mask_of(column, width, device))
            column = column + tokens.lengths
        features = {"input_ids": ids, "attention_mask": mask_of(lengths, width, device).long()}
        return {**features, "token_type_ids": kinds} if self.types else features


def _repeated(ids: tuple[int, ...], times: int) -> Tokens:
    return Tokens.of([ids]).take(np.zeros(times, np.int64))


def cut_pairs(first: Ints, second: Ints, room: int) -> tuple[Ints, Ints]:
    """The lengths of pairs cut to fit: the longer side gives way first, as tokenizers do it.

    >>> [x.tolist() for x in cut_pairs(np.array([2, 9, 2]), np.array([3, 9, 20]), 11)]
    [[2, 5, 2], [3, 6, 9]]
    """
    short, long = np.minimum(first, second), np.maximum(first, second)
    too_long = short + long > room
    long = np.where(too_long, np.maximum(short, room - short), long)
    both = short + long > room
    short, long = np.where(both, room // 2, short), np.where(both, room - room // 2, long)
    first_is_short = first <= second
    return np.where(first_is_short, short, long), np.where(first_is_short, long, short)
