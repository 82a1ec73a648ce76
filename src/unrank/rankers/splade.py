"""SPLADE: each text becomes a sparse vector with a weight for each word of the vocabulary, and the dot product is the
score.

Reference: Formal et al., SPLADE v2: Sparse Lexical and Expansion Model for Information Retrieval (2021).
Differs: a loaded folder keeps its own pooling, prompts and tokenizer, and may give queries static weights
(`SparseStaticEmbedding`). A new one uses the head of a masked language model if the base has one. If not, its new head
starts so that a text has the words that it is made of (`lexical_head.py`). The FLOPS regulariser is a part of the
ranker, so forgetting keeps vectors as sparse as training does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling
from torch import Tensor

from unrank.errors import BadFile
from unrank.rankers.base import Role
from unrank.rankers.dual_encoder import PROMPTS, LibraryDualEncoder, check_modules, modules_of, new_transformer
from unrank.rankers.encoder import SAFE, checked_encoder
from unrank.rankers.lexical_head import make_lexical
from unrank.rankers.mlm_head import MlmHead
from unrank.rankers.model_folder import loading
from unrank.rankers.tokens import Ints, Tokens, token_mask
from unrank.rankers.vocabulary import Vocabulary

QUERY_FLOPS, DOCUMENT_FLOPS = 5e-5, 3e-5
"""The weights of the regulariser, by which vectors become sparse."""
COUNTED = 32
"""Documents whose entries are counted at once."""
PROBE = "A text of common words, about as long as a short passage, shows how many entries the vector of a text has."


class SpladeRanker(LibraryDualEncoder):
    """A `SparseEncoder` of sentence-transformers with a masked language model, one for both sides or one for each."""

    kind = "splade"
    model: SparseEncoder

    def __init__(self, model: SparseEncoder) -> None:
        super().__init__(model)
        self._heads = _heads(model)

    @classmethod
    def create(cls, base: str | None) -> Self:
        folder = checked_encoder(base)
        with loading(folder, "a masked language model"):
            encoder = new_transformer(folder, "fill-mask")
            trained = any(name.endswith("ForMaskedLM") for name in encoder.config.architectures or [])
            encoder.config.architectures = [type(encoder.auto_model).__name__]
            if not trained:
                make_lexical(encoder.auto_model)
            pooling = SpladePooling("max", embedding_dimension=encoder.config.vocab_size)
            return cls(SparseEncoder(modules=[encoder, pooling], similarity_fn_name="dot", device="cpu"))

    @classmethod
    def load(cls, folder: Path) -> Self:
        with loading(folder, "a splade"):
            model = SparseEncoder(str(folder), device="cpu", **SAFE)
        check_modules(model, folder, "a splade")
        for role in PROMPTS:
            modules = modules_of(model, role)
            if not _is_splade(modules) and not _is_static(modules):
                named = ", ".join(type(module).__name__ for module in modules)
                raise BadFile(
                    folder,
                    f"a sparse encoder whose {role} goes through {named}; unrank reads a masked language model with "
                    "SpladePooling, and SparseStaticEmbedding alone",
                )
        if model.similarity_fn_name != "dot":
            raise BadFile(folder, f"a splade that scores by {model.similarity_fn_name}; unrank reads the dot product")
        return cls(model)

    @property
    def similarity(self) -> str:
        return "dot"

    @property
    def vocabularies(self) -> Sequence[Vocabulary]:
        """The word embeddings, and the rows and biases of the head."""
        return [
            replace(vocabulary, tables=_once([*vocabulary.tables, *self._tables(vocabulary.sides)]))
            for vocabulary in super().vocabularies
        ]

    def _tables(self, sides: Sequence[Role]) -> list[Tensor]:
        return [table for side in sides if side in self._heads for table in self._heads[side].tables]

    def freeze_documents(self) -> None:
        super().freeze_documents()
        self._heads = _heads(self.model)

    def encode(self, tokens: Tokens, role: Role) -> Tensor:
        """Return a weight for each word of the vocabulary. float32 [texts, words]"""
        return self._weights_of(tokens, role)

    def _weights_of(self, tokens: Tokens, role: Role) -> Tensor:
        head = self._heads.get(role)
        pooling = modules_of(self.model, role)[-1]
        if head is None or not self.fast or not head.is_split:
            pooling.train(torch.is_grad_enabled())  # else the library overwrites what a gradient needs
            vectors: Tensor = self._towers.encode(tokens, role)["sentence_embedding"].float()
            return vectors
        states = self._towers.states(tokens, role)
        mask = token_mask(tokens.lengths, states.shape[1], states.device)

        def activated(logits: Tensor) -> Tensor:
            weights = torch.log1p(torch.relu(logits))
            return torch.log1p(weights) if pooling.activation_function == "log1p_relu" else weights

        if pooling.pooling_strategy == "sum":
            return head.summed(states, mask, activated)
        vectors = activated(head.largest(states, mask))
        return vectors if tokens.lengths.all() else vectors * mask[:, :1]

    def compact(self, encoded: Tensor) -> Tensor:
        """Return only what is not zero, as words in their order and their weights; a gradient needs all words.

        [texts, words] -> [texts, entries, 2]
        """
        if encoded.requires_grad:
            return encoded
        text, word = encoded.nonzero(as_tuple=True)
        entries = torch.bincount(text, minlength=len(encoded))
        place = torch.arange(len(text), device=text.device) - (entries.cumsum(0) - entries)[text]
        most = max(1, int(entries.max()))
        found = encoded.new_zeros(len(encoded), most, 2)
        found[text, place, 0], found[text, place, 1] = word.float(), encoded[text, word]
        return found

    @torch.inference_mode()
    def entries(self, documents: Tokens) -> float | None:
        places = np.arange(len(documents))
        pieces = [documents.take(places[start : start + COUNTED]) for start in range(0, len(places), COUNTED)]
        return sum(int(self._weights_of(piece, "document").count_nonzero()) for piece in pieces) / max(1, len(places))

    def encoded_sizes(self, lengths: Ints) -> Ints:
        """Return all words for encodings with a gradient, else twice the entries that those of a short text suggest."""
        words = int(self.model.get_embedding_dimension() or 1)
        if torch.is_grad_enabled():
            return np.full_like(lengths, words)
        probe = self.tokenize([PROBE], "document")
        with torch.inference_mode():
            entries = int(self._weights_of(probe, "document").count_nonzero())
        expected: Ints = 2 * np.minimum(words, -(-lengths * entries // int(probe.lengths[0])))
        return expected

    def interact(self, queries: Tensor, documents: Tensor) -> Tensor:
        if queries.dim() == documents.dim() == 2:
            return (queries * documents).sum(1)
        if queries.dim() == documents.dim():
            return _match(queries, documents)
        whole, few = (queries, documents) if documents.dim() == 3 else (documents, queries)
        return (whole.gather(1, few[..., 0].long()) * few[..., 1]).sum(1)

    def regulariser(self, queries: Tensor, documents: Tensor) -> Tensor | None:
        """Return the FLOPS of both sides: the squared mean weight of each word, summed over words."""
        sides = ((queries, QUERY_FLOPS), (documents, DOCUMENT_FLOPS))
        flops = [weight * vectors.mean(0).square().sum() for vectors, weight in sides if vectors.requires_grad]
        return torch.stack(flops).sum() if flops else None

    def library_scores(self, queries: Sequence[str], documents: Sequence[str]) -> list[float]:
        dense = {"convert_to_sparse_tensor": False}
        encoded = self.model.encode_query(list(queries), **dense), self.model.encode_document(list(documents), **dense)
        return [float(score) for score in self.model.similarity_pairwise(*encoded)]


def _match(queries: Tensor, documents: Tensor) -> Tensor:
    """Return the dot products of sparse vectors: each word of a query is searched among those of its document."""
    unused = float(2**24)  # more than any word; the padding after the last entry
    words, known = (torch.where(side[..., 1] != 0, side[..., 0], unused).contiguous() for side in (queries, documents))
    place = torch.searchsorted(known, words).clamp_(max=known.shape[1] - 1)
    weights = documents[..., 1].gather(1, place) * queries[..., 1]
    return torch.where(known.gather(1, place) == words, weights, 0.0).sum(1)


def _heads(model: Any) -> dict[Role, MlmHead]:
    """Return the head of each side that has a masked language model."""
    first = {role: modules_of(model, role)[0] for role in PROMPTS}
    return {role: MlmHead(module.auto_model) for role, module in first.items() if isinstance(module, Transformer)}


def _is_splade(modules: Sequence[Any]) -> bool:
    first, *rest = modules
    masked = isinstance(first, Transformer) and first.transformer_task == "fill-mask"
    return masked and len(rest) == 1 and isinstance(rest[0], SpladePooling)


def _is_static(modules: Sequence[Any]) -> bool:
    return len(modules) == 1 and isinstance(modules[0], SparseStaticEmbedding)


def _once(tables: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple({id(table): table for table in tables}.values())
