"""What the rankers over sentence-transformers share: loading, saving, and how a pair is joined."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.utils import logging as transformers_logging

from unrank.errors import BadFile, UnrankError
from unrank.rankers.staging import to_device
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
        query_starts = np.full(len(queries), len(self.before))
        document_starts = query_starts + query_lengths + len(self.between)
        ends = document_starts + document_lengths
        edges = np.stack([0 * ends, query_starts, query_starts + query_lengths, document_starts, ends, lengths])
        ids = torch.full((len(queries), width), self.padding, device=device)
        queries.cut(query_lengths).place(ids, edges[1])
        documents.cut(document_lengths).place(ids, edges[3])
        self._place_special(ids, edges)
        features = {"input_ids": ids, "attention_mask": mask_of(lengths, width, device).long()}
        if not self.types:
            return features
        kinds = torch.zeros_like(ids)
        for edge, rise in enumerate(np.diff(self.types, prepend=0, append=0)):
            if rise:  # from this edge on
                kinds += int(rise) * ~mask_of(edges[edge], width, device)
        return {**features, "token_type_ids": kinds}

    def _place_special(self, ids: Tensor, edges: Ints) -> None:
        """Write what stands before, between and after the two texts, which begin and end at these edges."""
        columns: list[Ints] = []
        special: list[int] = []
        for edge, values in ((0, self.before), (2, self.between), (4, self.after)):
            columns += [edges[edge] + offset for offset in range(len(values))]
            special += values
        if not columns:
            return
        rows = ids.shape[1] * np.arange(len(ids))
        places = to_device(np.stack(columns) + rows, ids.device)
        ids.view(-1)[places] = to_device(np.array(special), ids.device).unsqueeze(1)


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
