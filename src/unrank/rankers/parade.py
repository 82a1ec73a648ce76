"""PARADE: an encoder reads each passage of a document with the query, and a small transformer scores the passages.

So a document longer than the encoder's window is read whole. A passage is a core and some tokens on either side of it,
so that no sentence is lost at a cut; its CLS vector represents it. Passages have no positions: a document may have any
number of them, and a passage counts the same wherever it is.

Reference: Li et al., PARADE: Passage Representation Aggregation for Document Reranking (2020).
Differs: passages are short, 50 tokens and 7 more on either side. They have no positions, for which other
implementations fix the number of passages. The new layers start so that they pass on the mean of the passages'
vectors. With `max` there are no layers, only the largest value of each element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel

from unrank.errors import BadFile
from unrank.rankers.base import Ranker, Role
from unrank.rankers.encoder import (
    DEFAULT_ENCODER,
    LOCAL,
    MAX_TOKENS,
    checked_encoder,
    encoder_files,
    longest_input,
)
from unrank.rankers.fast.bucketing import MAX_SEQUENCES
from unrank.rankers.fast.encoder import FastEncoder
from unrank.rankers.fast.pinned_memory import to_device
from unrank.rankers.model_folder import (
    drop_names,
    loading,
    quiet,
    read_description,
    read_weights,
    write_own_folder,
)
from unrank.rankers.passages import Aggregation, PassageSettings, cores, make_aggregator, passage_spans
from unrank.rankers.size_check import check_numbers
from unrank.rankers.tokenisation import TEXTS, IdTokenizer, PairTemplate
from unrank.rankers.tokens import WIDTH_STEP, Ints, Tokens
from unrank.rankers.vocabulary import BOTH, Vocabulary, encoder_vocabulary

TOKENS_AT_ONCE = {"cpu": 4_096, "cuda": 524_288}
"""Most tokens in one pass of the encoder, by device; a longer document is read in pieces."""

MANY_PASSAGES = 8
"""Mean number of passages above which passes are recomputed for gradients, so that a batch fits in memory."""


class ParadeRanker(Ranker):
    """An encoder that `AutoModel` loads and whose inputs begin with a token that represents them, such as CLS."""

    kind = "parade"
    default_base = DEFAULT_ENCODER

    def __init__(self, encoder: PreTrainedModel, tokenizer: Any, settings: PassageSettings) -> None:
        super().__init__()
        encoder.register_module("pooler", None)
        self.encoder = encoder
        self.aggregator = make_aggregator(encoder.config, settings.layers, settings.aggregation)
        self.tokenizer, self.settings = tokenizer, settings
        self._template = PairTemplate.of(tokenizer, settings.longest)
        self._id_tokenizer = IdTokenizer(tokenizer)
        self._query_length = settings.longest - self._template.special - settings.window
        self._fast = FastEncoder(encoder, first_only=True)
        self.eval()

    @property
    def vocabularies(self) -> Sequence[Vocabulary]:
        return encoder_vocabulary(dict.fromkeys(BOTH, self.encoder), dict.fromkeys(BOTH, self.tokenizer))

    @property
    def fast_encoders(self) -> Sequence[FastEncoder]:
        return [self._fast]

    @classmethod
    def base_files(cls, base: str | None) -> list[Path]:
        return encoder_files(base)

    @classmethod
    def create(cls, base: str | None, aggregation: Aggregation = "transformer") -> Self:
        folder = checked_encoder(base)
        with loading(folder, "an encoder"):
            tokenizer = AutoTokenizer.from_pretrained(str(folder), **LOCAL)
            encoder = AutoModel.from_pretrained(str(folder), use_safetensors=True, dtype=torch.float32, **LOCAL)
            template = PairTemplate.of(tokenizer, min(MAX_TOKENS, longest_input(tokenizer, encoder.config)))
        if template.parts[0] in TEXTS:
            raise BadFile(
                folder, "no encoder for parade: its inputs begin with no token that represents them, such as CLS"
            )
        settings = replace(PassageSettings.fitting(template), aggregation=aggregation)
        return cls(encoder, tokenizer, settings)

    @classmethod
    def load(cls, folder: Path) -> Self:
        settings = PassageSettings.read(folder, read_description(folder)[1])
        with loading(folder, "a parade ranker"):
            tokenizer = AutoTokenizer.from_pretrained(str(folder), **LOCAL)
            config = AutoConfig.from_pretrained(str(folder), **LOCAL)
            settings.check(folder, PairTemplate.of(tokenizer, longest_input(tokenizer, config)))
            check_numbers(folder, 12 * settings.layers * config.hidden_size**2)
            with torch.random.fork_rng(devices=[]):
                ranker = cls(AutoModel.from_config(config, dtype=torch.float32), tokenizer, settings)
        read_weights(folder, ranker)
        return ranker

    def save(self, folder: Path) -> None:
        write_own_folder(folder, self.kind, asdict(self.settings), self)
        with quiet():
            self.encoder.config.save_pretrained(str(folder))
            self.tokenizer.save_pretrained(str(folder))
        drop_names(folder)

    def tokenize(self, texts: Sequence[str], role: Role) -> Tokens:
        """Return whole documents, and queries cut so that a passage always fits beside them."""
        return self._id_tokenizer(texts, self._max_length(role))

    def tokens_fingerprint(self, role: Role) -> str | None:
        return self._id_tokenizer.fingerprint(self._max_length(role))

    def _max_length(self, role: Role) -> int | None:
        return self._query_length if role == "query" else None

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        counts = cores(documents.lengths, self.settings.passage)
        document, starts, ends = passage_spans(documents.lengths, self.settings)
        passages = documents.spans(document, starts, ends)
        recompute = torch.is_grad_enabled() and len(passages) > MANY_PASSAGES * len(documents)
        vectors = self._read(queries.take(document), passages, recompute)
        grid, missing = _grid(counts)
        scores: Tensor = self.aggregator(vectors[to_device(grid, self.device)], to_device(missing, self.device))
        return scores.float()

    def lengths(self, queries: Ints, documents: Ints) -> Ints:
        passages = np.minimum(documents, self.settings.window)
        whole: Ints = cores(documents, self.settings.passage) * self._widths(queries, passages)
        return whole

    def _widths(self, queries: Ints, passages: Ints) -> Ints:
        """Return the number of tokens of a query with one passage, padded."""
        tokens = np.minimum(queries, self._query_length) + passages + self._template.special
        return np.minimum(-(-tokens // WIDTH_STEP) * WIDTH_STEP, self._template.max_length)

    def _read(self, queries: Tokens, passages: Tokens, recompute: bool) -> Tensor:
        """Return the CLS vector of each passage with its query. [passages, width]

        Many passages are read in pieces; if gradients are needed, each piece is recomputed for them.
        """
        width = int(self._widths(queries.lengths, passages.lengths).max())
        size = min(MAX_SEQUENCES, max(1, TOKENS_AT_ONCE.get(self.device.type, TOKENS_AT_ONCE["cpu"]) // width))
        pieces = np.array_split(np.arange(len(passages)), -(-len(passages) // size))
        recompute = recompute or (torch.is_grad_enabled() and len(pieces) > 1)
        return torch.cat([self._read_piece(queries.take(piece), passages.take(piece), recompute) for piece in pieces])

    def _read_piece(self, queries: Tokens, passages: Tokens, recompute: bool) -> Tensor:
        inputs = self._template.join(queries, passages)

        def encode() -> Tensor:
            with self._fast.reading(inputs, recomputed=recompute) as features:
                vectors: Tensor = self.encoder(**features).last_hidden_state[:, 0]
            return vectors.float()

        return self._fast.recompute(encode) if recompute else encode()


def _grid(counts: Ints) -> tuple[Ints, Any]:
    """Return the passages of each document, padded, and where there is only padding. [documents, most passages]

    >>> [array.tolist() for array in _grid(np.array([2, 1]))]
    [[[0, 1], [2, 2]], [[False, False], [False, True]]]
    """
    column = np.arange(counts.max(initial=1))
    first = np.cumsum(counts) - counts
    return first[:, None] + np.minimum(column, counts[:, None] - 1), column >= counts[:, None]
