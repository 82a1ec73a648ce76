"""Cross-encoder: one encoder reads query and document together, and a linear layer makes the score.

Reference: Nogueira and Cho, Passage Re-ranking with BERT (2019); the paper's BERTcat.
Differs: the head is the one that the encoder's family brings for sequence classification (for BERT a dense
layer with tanh before the linear one), so that `CrossEncoder` loads what is written here.
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
from unrank.rankers.encoder import checked_encoder
from unrank.rankers.lean import LeanEncoder
from unrank.rankers.reading import PlainTokenizer
from unrank.rankers.tokens import Ints, Tokens
from unrank.rankers.transformer import MAX_TOKENS, SAFE, PairTemplate, loading, longest_input, quiet


class CrossEncoderRanker(Ranker):
    """Any `CrossEncoder` of sentence-transformers with one output."""

    kind = "cross-encoder"
    lean: LeanEncoder

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model.eval()
        self._prompt: str = model.prompts.get(model.default_prompt_name or "", "")
        self._template = PairTemplate.of(model.tokenizer, int(model.max_seq_length))
        self._read_texts = PlainTokenizer(model.tokenizer)
        self.lean = LeanEncoder(model.model.base_model, first_only=True)

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
            raise BadFile(folder, "a cross-encoder that is not one sequence classifier; unrank reads no other")
        if model.num_labels != 1:
            raise BadFile(folder, f"a cross-encoder with {model.num_labels} outputs; a ranker has exactly one")
        with loading(folder, "a cross-encoder"):
            model.max_seq_length = longest_input(model.tokenizer, model.config)
        return cls(model)

    def save(self, folder: Path) -> None:
        with quiet():
            self.model.save_pretrained(str(folder), create_model_card=False)

    def tokenize(self, texts: Sequence[str], role: Role) -> Tokens:
        prompt = self._prompt if role == "query" else ""
        return self._read_texts([prompt + text for text in texts], self._template.longest)

    def reads(self, role: Role) -> str | None:
        return self._read_texts.identity(self._prompt if role == "query" else "", self._template.longest)

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        with self.lean.reading(self._template.join(queries, documents)) as features:
            scores: Tensor = self.model({**features, "modality": "text"})["scores"]
        return scores.float().reshape(-1)

    def lengths(self, queries: Ints, documents: Ints) -> Ints:
        whole: Ints = queries + documents + self._template.special
        return np.minimum(whole, self._template.longest)
