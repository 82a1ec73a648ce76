"""Cross-encoder: one encoder reads query and document together, and a linear layer gives the score.

Reference: Nogueira and Cho, Passage Re-ranking with BERT (2019); the paper's BERTcat.
Differs: the head is that of the encoder's family for sequence classification (for BERT a dense layer with tanh before
the linear one), so that `CrossEncoder` loads a saved folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
from sentence_transformers import CrossEncoder
from torch import Tensor, nn

from unrank.errors import BadFile
from unrank.rankers.base import Ranker, Role
from unrank.rankers.encoder import (
    DEFAULT_ENCODER,
    MAX_TOKENS,
    SAFE,
    checked_encoder,
    encoder_files,
    longest_input,
)
from unrank.rankers.fast.encoder import FastEncoder
from unrank.rankers.model_folder import loading, save_library_model
from unrank.rankers.tokenisation import IdTokenizer, PairTemplate
from unrank.rankers.tokens import Ints, Tokens
from unrank.rankers.vocabulary import BOTH, Vocabulary, encoder_vocabulary


class CrossEncoderRanker(Ranker):
    """A `CrossEncoder` of sentence-transformers with one output."""

    kind = "cross-encoder"
    default_base = DEFAULT_ENCODER

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model.eval()
        self._prompt: str = model.prompts.get(model.default_prompt_name or "", "")
        self._template = PairTemplate.of(model.tokenizer, int(model.max_seq_length))
        self._tokenizer = IdTokenizer(model.tokenizer)
        self._fast = FastEncoder(model.model.base_model, first_only=True)

    @property
    def vocabularies(self) -> Sequence[Vocabulary]:
        return encoder_vocabulary(dict.fromkeys(BOTH, self.model.model), dict.fromkeys(BOTH, self.model.tokenizer))

    @property
    def fast_encoders(self) -> Sequence[FastEncoder]:
        return [self._fast]

    @classmethod
    def base_files(cls, base: str | None) -> list[Path]:
        return encoder_files(base)

    @classmethod
    def create(cls, base: str | None) -> Self:
        folder = checked_encoder(base)
        with loading(folder, "an encoder"):
            model = CrossEncoder(str(folder), num_labels=1, activation_fn=nn.Identity(), device="cpu", **SAFE)
            model.max_seq_length = min(MAX_TOKENS, longest_input(model.tokenizer, model.config))
        return cls(model)

    @classmethod
    def load(cls, folder: Path) -> Self:
        with loading(folder, "a cross-encoder"):
            model = CrossEncoder(str(folder), device="cpu", **SAFE)
        if len(model) != 1 or model.model is None:
            raise BadFile(folder, "a cross-encoder that is not a single sequence classifier; unrank reads no other")
        if model.num_labels != 1:
            raise BadFile(folder, f"a cross-encoder with {model.num_labels} outputs; a ranker has exactly one")
        with loading(folder, "a cross-encoder"):
            model.max_seq_length = longest_input(model.tokenizer, model.config)
        return cls(model)

    def save(self, folder: Path) -> None:
        save_library_model(self.model, folder)

    def tokenize(self, texts: Sequence[str], role: Role) -> Tokens:
        prompt = self._prompt if role == "query" else ""
        return self._tokenizer([prompt + text for text in texts], self._template.max_length)

    def tokens_fingerprint(self, role: Role) -> str | None:
        return self._tokenizer.fingerprint(self._prompt if role == "query" else "", self._template.max_length)

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        with self._fast.reading(self._template.join(queries, documents)) as features:
            scores: Tensor = self.model({**features, "modality": "text"})["scores"]
        return scores.float().reshape(-1)

    def library_scores(self, queries: Sequence[str], documents: Sequence[str]) -> list[float]:
        pairs = list(zip(queries, documents, strict=True))
        return [float(score) for score in self.model.predict(pairs, activation_fn=nn.Identity())]

    def lengths(self, queries: Ints, documents: Ints) -> Ints:
        whole: Ints = queries + documents + self._template.special
        return np.minimum(whole, self._template.max_length)
