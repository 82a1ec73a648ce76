"""ColBERT: a vector for every token; each token of the query finds the document's token nearest to it.

Reference: Khattab and Zaharia, ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction
over BERT (2020).
Differs: a loaded folder keeps its own prompts, masks, query expansion and normalisation, as `MultiVectorEncoder` of
sentence-transformers reads them. A fresh one has none of the first three: its unit vectors of 128 numbers come from a
layer with orthogonal rows, which nearly keeps the encoder's own similarities, so that it ranks before it is trained.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from torch import Tensor, nn

from unrank.errors import BadFile
from unrank.rankers.base import Role
from unrank.rankers.encoder import checked_encoder
from unrank.rankers.sided import SidedRanker, check_beginning, fresh_transformer
from unrank.rankers.tokens import Ints, Tokens
from unrank.rankers.transformer import SAFE, loading

WIDTH = 128
"""How many numbers a token's vector has in a fresh one."""


class ColbertRanker(SidedRanker):
    """Any `MultiVectorEncoder` that begins with a transformer, one for both sides or one each, and sums maxima."""

    kind = "colbert"
    model: MultiVectorEncoder

    def __init__(self, model: MultiVectorEncoder) -> None:
        super().__init__(model)
        _let_skipped_words_move(model)

    @classmethod
    def create(cls, base: str | None) -> Self:
        folder = checked_encoder(base)
        with loading(folder, "an encoder"):
            encoder = fresh_transformer(folder)
            width = encoder.get_embedding_dimension()
            narrow = Dense(
                width,
                WIDTH,
                bias=False,
                activation_function=None,
                init_weight=nn.init.orthogonal_(torch.empty(WIDTH, width)),
                module_input_name="token_embeddings",
            )
            modules = [encoder, narrow, MultiVectorMask(), Normalize(module_input_name="token_embeddings")]
            return cls(MultiVectorEncoder(modules=modules, similarity_fn_name="maxsim", device="cpu"))

    @classmethod
    def load(cls, folder: Path) -> Self:
        with loading(folder, "a colbert"):
            model = MultiVectorEncoder(str(folder), device="cpu", **SAFE)
        check_beginning(model, folder, "a colbert")
        if model.similarity_fn_name != "maxsim":
            raise BadFile(folder, f"a colbert that scores by {model.similarity_fn_name}; unrank reads maxsim alone")
        return cls(model)

    def encode(self, tokens: Tokens, role: Role) -> Tensor:
        """One vector a token, and zeros for what is not scored. float32 [texts, tokens, width]"""
        features = self._sides.encode(tokens, role)
        vectors: Tensor = features["token_embeddings"].float() * features["attention_mask"].unsqueeze(-1)
        return vectors

    def encoded_sizes(self, lengths: Ints) -> Ints:
        return lengths * int(self.model.get_embedding_dimension() or 1)

    def interact(self, queries: Tensor, documents: Tensor) -> Tensor:
        """For each token of the query the best of the document's, summed; a document without tokens scores 0."""
        similarities = torch.bmm(queries, documents.transpose(1, 2))
        blank = ~documents.any(dim=-1)
        best = similarities.masked_fill(blank.unsqueeze(1), -torch.inf).amax(dim=-1)
        return best.masked_fill(blank.all(dim=-1, keepdim=True), 0).sum(dim=-1)


def _let_skipped_words_move(model: MultiVectorEncoder) -> None:
    """Keep the ids that a mask leaves out on the model's device, where else each batch would wait for them."""
    for mask in model.modules():
        if isinstance(mask, MultiVectorMask) and "_skiplist_ids" in mask.__dict__:
            mask.register_buffer("_skiplist_ids", mask.__dict__.pop("_skiplist_ids"), persistent=False)
