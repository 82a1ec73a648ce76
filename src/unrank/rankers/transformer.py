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
from transformers.utils import logging as transformers_logging

from unrank.errors import BadFile, UnrankError
from unrank.rankers.inputs import Inputs
from unrank.rankers.tokens import Ints, Tokens, places

MAX_TOKENS = 256
"""How much of a text a freshly made ranker reads, where its encoder can read more."""

TEXTS = (-1, -2)
"""What stands for the query and the document among the ids of special tokens."""

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

    parts: tuple[int, ...]
    """Special tokens, and the places of the two texts among them."""
    types: tuple[int, ...]  # of each part; none where the tokenizer gives none
    longest: int
    padding: int

    @classmethod
    def of(cls, tokenizer: Any, longest: int) -> PairTemplate:
        joined = tokenizer("a", "a")
        sides = joined.sequence_ids(0)
        parts = [place for place, side in enumerate(sides) if side is None or side not in sides[:place]]
        ids, types = joined["input_ids"], joined.get("token_type_ids")
        return cls(
            tuple(ids[place] if sides[place] is None else TEXTS[sides[place]] for place in parts),
            tuple(types[place] for place in parts) if types else (),
            longest,
            tokenizer.pad_token_id or 0,
        )

    @property
    def special(self) -> int:
        return len(self.parts) - len(TEXTS)

    def join(self, queries: Tokens, documents: Tokens) -> Inputs:
        """Each query with the document at the same place, cut to what the encoder reads."""
        room = self.longest - self.special
        lengths = np.ones((len(queries), len(self.parts)), np.int64)
        query, document = map(self.parts.index, TEXTS)
        lengths[:, query], lengths[:, document] = cut_pairs(queries.lengths, documents.lengths, room)
        starts = (np.cumsum(lengths) - lengths.ravel()).reshape(lengths.shape)
        ids = documents.with_room(starts[:, document] - starts[:, 0], lengths.sum(1))
        ids[places(starts[:, query], lengths[:, query])] = queries.cut(lengths[:, query]).end_to_end()
        for part, start in zip(self.parts, starts.T, strict=True):
            if part not in TEXTS:
                ids[start] = part
        types = np.tile(np.array(self.types, np.int32), len(queries))
        types_of_ids = np.repeat(types, lengths.ravel()) if self.types else None
        return Inputs(ids, lengths.sum(1), self.longest, self.padding, types_of_ids)


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
