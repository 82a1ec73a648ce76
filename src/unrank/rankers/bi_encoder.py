"""Bi-encoder: query and document are encoded apart, and the similarity of their vectors is the score.

Reference: Hofstätter et al., Efficiently Teaching an Effective Dense Retriever (2021); the paper's BERTdot.
Differs: a loaded folder keeps its own pooling, prompts and similarity. A new one passes the CLS vector through a linear
layer that starts as the identity, and uses the dot product.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor

from unrank.rankers.base import Role
from unrank.rankers.dual_encoder import LibraryDualEncoder, check_modules, new_transformer
from unrank.rankers.encoder import SAFE, checked_encoder
from unrank.rankers.model_folder import loading
from unrank.rankers.tokens import Ints, Tokens


class BiEncoderRanker(LibraryDualEncoder):
    """A `SentenceTransformer` that begins with a transformer, one for both sides or one for each."""

    kind = "bi-encoder"
    model: SentenceTransformer

    @classmethod
    def create(cls, base: str | None) -> Self:
        folder = checked_encoder(base)
        with loading(folder, "an encoder"):
            encoder = new_transformer(folder)
            width = encoder.get_embedding_dimension()
            projection = Dense(
                width, width, activation_function=None, init_weight=torch.eye(width), init_bias=torch.zeros(width)
            )
            modules = [encoder, Pooling(width, "cls"), projection]
            return cls(SentenceTransformer(modules=modules, similarity_fn_name="dot", device="cpu"))

    @classmethod
    def load(cls, folder: Path) -> Self:
        with loading(folder, "a bi-encoder"):
            model = SentenceTransformer(str(folder), device="cpu", **SAFE)
        check_modules(model, folder, "a bi-encoder")
        return cls(model)

    @property
    def similarity(self) -> str:
        return str(self.model.similarity_fn_name)

    def document_state(self) -> tuple[dict[str, Tensor], object]:
        weights, settings = super().document_state()
        return weights, [settings, self.model.truncate_dim]

    def encode(self, tokens: Tokens, role: Role) -> Tensor:
        vectors: Tensor = self._towers.encode(tokens, role)["sentence_embedding"].float()
        return vectors[:, : self.model.truncate_dim] if self.model.truncate_dim else vectors

    def encoded_sizes(self, lengths: Ints) -> Ints:
        return np.full_like(lengths, int(self.model.get_embedding_dimension() or 1))

    def interact(self, queries: Tensor, documents: Tensor) -> Tensor:
        scores: Tensor = self.model.similarity_pairwise(queries, documents)
        return scores
