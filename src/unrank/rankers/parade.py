"""PARADE: a document's passages are read one by one with the query, and a small transformer over what was read scores.

So that a document longer than the encoder's window counts whole. Each passage is a core and some tokens on either
side of it, so that no sentence is lost at a cut; its CLS vector stands for it. Nothing says where in the document a
passage stood: any number of passages can be read, and a passage counts alike wherever it is.

Reference: Li et al., PARADE: Passage Representation Aggregation for Document Reranking (2020).
Differs: passages are short, 50 tokens and 7 more on either side. They have no positions, for which other
implementations fix the number of passages. The new layers start so that the mean of the passages' vectors passes
through them; with `max` there are none, but the largest value of each element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel

from unrank.errors import BadFile
from unrank.rankers.aggregator import make_aggregator
from unrank.rankers.base import Ranker, Role
from unrank.rankers.encoder import checked_encoder
from unrank.rankers.lean import LeanEncoder
from unrank.rankers.own_folder import read_description, read_weights, write_own_folder
from unrank.rankers.passages import Aggregation, PassageSettings, cores, passage_spans
from unrank.rankers.reading import PlainTokenizer
from unrank.rankers.room import check_numbers
from unrank.rankers.shape import MOST_TEXTS
from unrank.rankers.staging import to_device
from unrank.rankers.tokens import WIDTH_STEP, Ints, Tokens
from unrank.rankers.transformer import MAX_TOKENS, TEXTS, PairTemplate, loading, longest_input, quiet

TOKENS_AT_ONCE = {"cpu": 4_096, "cuda": 524_288}
"""How many tokens go through the encoder at once; a document of more is read in pieces."""

MANY_PASSAGES = 8
"""Documents of more on average are read again for their gradients: a step holds a batch of them in memory."""

LOCAL: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}


class ParadeRanker(Ranker):
    """Any encoder that `AutoModel` loads and whose inputs begin with a token that stands for them all."""

    kind = "parade"
    lean: LeanEncoder

    def __init__(self, encoder: PreTrainedModel, tokenizer: Any, settings: PassageSettings) -> None:
        super().__init__()
        encoder.register_module("pooler", None)
        self.encoder = encoder
        self.aggregator = make_aggregator(encoder.config, settings.layers, settings.aggregation)
        self.tokenizer, self.settings = tokenizer, settings
        self._template = PairTemplate.of(tokenizer, settings.longest)
        self._read_texts = PlainTokenizer(tokenizer)
        self._query_room = settings.longest - self._template.special - settings.window
        self.lean = LeanEncoder(encoder, first_only=True)
        self.eval()

    @classmethod
    def create(cls, base: str | None, aggregation: Aggregation = "transformer") -> Self:
        folder = checked_encoder(base)
        with loading(folder, "an encoder"):
            tokenizer = AutoTokenizer.from_pretrained(str(folder), **LOCAL)
            encoder = AutoModel.from_pretrained(str(folder), use_safetensors=True, dtype=torch.float32, **LOCAL)
            template = PairTemplate.of(tokenizer, min(MAX_TOKENS, longest_input(tokenizer, encoder.config)))
        if template.parts[0] in TEXTS:
            raise BadFile(folder, "no encoder for parade: its inputs begin with no token that stands for them all")
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

    def tokenize(self, texts: Sequence[str], role: Role) -> Tokens:
        """A query cut so that a passage always has its room; a document whole."""
        return self._read_texts(texts, self._room(role))

    def reads(self, role: Role) -> str | None:
        return self._read_texts.identity(self._room(role))

    def _room(self, role: Role) -> int | None:
        return self._query_room if role == "query" else None

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        counts = cores(documents.lengths, self.settings.passage)
        document, starts, ends = passage_spans(documents.lengths, self.settings)
        passages = documents.spans(document, starts, ends)
        again = torch.is_grad_enabled() and len(passages) > MANY_PASSAGES * len(documents)
        vectors = self._read(queries.take(document), passages, again)
        grid, missing = _grid(counts)
        scores: Tensor = self.aggregator(vectors[to_device(grid, self.device)], to_device(missing, self.device))
        return scores.float()

    def lengths(self, queries: Ints, documents: Ints) -> Ints:
        passages = np.minimum(documents, self.settings.window)
        whole: Ints = cores(documents, self.settings.passage) * self._widths(queries, passages)
        return whole

    def _widths(self, queries: Ints, passages: Ints) -> Ints:
        """How many tokens the encoder sees for a query with one passage."""
        tokens = np.minimum(queries, self._query_room) + passages + self._template.special
        return np.minimum(-(-tokens // WIDTH_STEP) * WIDTH_STEP, self._template.longest)

    def _read(self, queries: Tokens, passages: Tokens, again: bool) -> Tensor:
        """The CLS vector of each passage with its query. [passages, width]

        Of many passages only a piece is at work at a time: where gradients are wanted, it is read again for them.
        """
        width = int(self._widths(queries.lengths, passages.lengths).max())
        size = min(MOST_TEXTS, max(1, TOKENS_AT_ONCE.get(self.device.type, TOKENS_AT_ONCE["cpu"]) // width))
        pieces = np.array_split(np.arange(len(passages)), -(-len(passages) // size))
        again = again or (torch.is_grad_enabled() and len(pieces) > 1)
        return torch.cat([self._read_piece(queries.take(piece), passages.take(piece), again) for piece in pieces])

    def _read_piece(self, queries: Tokens, passages: Tokens, again: bool) -> Tensor:
        inputs = self._template.join(queries, passages)

        def encode() -> Tensor:
            with self.lean.reading(inputs, again=again) as features:
                vectors: Tensor = self.encoder(**features).last_hidden_state[:, 0]
            return vectors.float()

        if not again:
            return encode()
        vectors: Tensor = checkpoint(encode, use_reentrant=False, preserve_rng_state=False)
        return vectors


def _grid(counts: Ints) -> tuple[Ints, Any]:
    """Which passages each document has, padded, and where it has none. [documents, most passages]

    >>> [array.tolist() for array in _grid(np.array([2, 1]))]
    [[[0, 1], [2, 2]], [[False, False], [False, True]]]
    """
    column = np.arange(counts.max(initial=1))
    first = np.cumsum(counts) - counts
    return first[:, None] + np.minimum(column, counts[:, None] - 1), column >= counts[:, None]
