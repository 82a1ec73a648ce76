"""ColBERT: one vector per token; each query token is matched with the most similar document token.

Reference: Khattab and Zaharia, ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction
over BERT (2020).
Differs: a loaded folder keeps its own prompts, masks, query expansion and normalisation, as `MultiVectorEncoder` of
sentence-transformers reads them. A new one has no prompts, masks or expansion. Its unit vectors of 128 numbers come
from a layer with orthogonal rows, which nearly keeps the encoder's similarities, so it ranks before it is trained.
`colbert-dot` is the form of the code that was released for unranking: vectors of 768 numbers, not normalised.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self, cast

import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from torch import Tensor, nn

from unrank.errors import BadFile
from unrank.rankers.base import Role
from unrank.rankers.dual_encoder import LibraryDualEncoder, check_modules, new_transformer
from unrank.rankers.encoder import SAFE, checked_encoder
from unrank.rankers.model_folder import loading
from unrank.rankers.tokens import Ints, Tokens

WIDTH, DOT_WIDTH = 128, 768
"""The size of a token's vector in a new ranker: of unit vectors, and of vectors that are not normalised."""


class ColbertRanker(LibraryDualEncoder):
    """A `MultiVectorEncoder` that begins with a transformer, one for both sides or one for each, and sums maxima."""

    kind = "colbert"
    width = WIDTH
    normalised = True
    model: MultiVectorEncoder

    def __init__(self, model: MultiVectorEncoder) -> None:
        super().__init__(model)
        _register_skiplist(model)

    @classmethod
    def create(cls, base: str | None) -> Self:
        folder = checked_encoder(base)
        with loading(folder, "an encoder"):
            encoder = new_transformer(folder)
            width = encoder.get_embedding_dimension()
            projection = Dense(
                width,
                cls.width,
                bias=False,
                activation_function=None,
                init_weight=nn.init.orthogonal_(torch.empty(cls.width, width)),
                module_input_name="token_embeddings",
            )
            modules = [encoder, projection, MultiVectorMask()]
            if cls.normalised:
                modules.append(Normalize(module_input_name="token_embeddings"))
            return cls(MultiVectorEncoder(modules=modules, similarity_fn_name="maxsim", device="cpu"))

    @classmethod
    def load(cls, folder: Path) -> Self:
        with loading(folder, "a colbert"):
            model = MultiVectorEncoder(str(folder), device="cpu", **SAFE)
        check_modules(model, folder, "a colbert")
        if model.similarity_fn_name != "maxsim":
            raise BadFile(folder, f"a colbert that scores by {model.similarity_fn_name}; unrank reads maxsim alone")
        return cast(Self, (ColbertDotRanker if _is_dot(model) else cls)(model))

    def encode(self, tokens: Tokens, role: Role) -> Tensor:
        """Return one vector per token, and zeros for tokens that are not scored. float32 [texts, tokens, width]"""
        features = self._towers.encode(tokens, role)
        vectors: Tensor = features["token_embeddings"].float() * features["attention_mask"].unsqueeze(-1)
        return vectors

    def encoded_sizes(self, lengths: Ints) -> Ints:
        return lengths * int(self.model.get_embedding_dimension() or 1)

    def interact(self, queries: Tensor, documents: Tensor) -> Tensor:
        """Sum, over query tokens, the highest similarity with a document token; a document without tokens scores 0."""
        similarities = torch.bmm(queries, documents.transpose(1, 2))
        blank = ~documents.any(dim=-1)
        best = similarities.masked_fill(blank.unsqueeze(1), -torch.inf).amax(dim=-1)
        return best.masked_fill(blank.all(dim=-1, keepdim=True), 0).sum(dim=-1)


class ColbertDotRanker(ColbertRanker):
    """A colbert whose vectors are wide and not normalised: a long vector counts more."""

    kind = "colbert-dot"
    width = DOT_WIDTH
    normalised = False


def _is_dot(model: MultiVectorEncoder) -> bool:
    """Return whether a model has the form of a new `colbert-dot`."""
    unit = any(isinstance(module, Normalize) for module in model.modules())
    return not unit and model.get_embedding_dimension() == DOT_WIDTH


def _register_skiplist(model: MultiVectorEncoder) -> None:
    """Keep the ids that a mask leaves out on the model's device; otherwise each batch would wait for a copy."""
    for mask in model.modules():
        if isinstance(mask, MultiVectorMask) and "_skiplist_ids" in mask.__dict__:
            mask.register_buffer("_skiplist_ids", mask.__dict__.pop("_skiplist_ids"), persistent=False)
