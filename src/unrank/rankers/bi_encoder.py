"""Bi-encoder: query and document are encoded apart, and their vectors' similarity is the score.

Reference: Hofstätter et al., Efficiently Teaching an Effective Dense Retriever (2021); the paper's BERTdot.
Differs: a loaded folder keeps its own pooling, prompts and similarity. A fresh one takes the CLS vector
through a linear layer that starts as the identity, and the dot product.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor

from unrank.errors import BadFile
from unrank.rankers.base import Role, SeparableRanker, run_in_bfloat16
from unrank.rankers.encoder import checked_encoder
from unrank.rankers.tokens import Tokens, mask_of, to_device
from unrank.rankers.transformer import MAX_TOKENS, SAFE, loading, longest_input, quiet

TEXTS_AT_ONCE = 256
PROMPTS: dict[Role, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}


class BiEncoderRanker(SeparableRanker):
    """Any `SentenceTransformer` whose first module is a transformer."""

    kind = "bi-encoder"

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model.eval()
        self._padding = int(model.tokenizer.pad_token_id or 0)
        self._longest = int(model.max_seq_length or longest_input(model.tokenizer, model[0].config))
        self._prompts = {role: self._prompt(role) for role in PROMPTS}
        run_in_bfloat16(model[0])

    @classmethod
    def create(cls, base: str | None) -> Self:
        folder = checked_encoder(base)
        with loading(folder, "an encoder"):
            encoder = Transformer(str(folder), model_kwargs=SAFE["model_kwargs"])
            encoder.max_seq_length = min(MAX_TOKENS, longest_input(encoder.tokenizer, encoder.config))
            width = encoder.get_embedding_dimension()
            identity = Dense(
                width, width, activation_function=None, init_weight=torch.eye(width), init_bias=torch.zeros(width)
            )
            modules = [encoder, Pooling(width, "cls"), identity]
            return cls(SentenceTransformer(modules=modules, similarity_fn_name="dot", device="cpu"))

    @classmethod
    def load(cls, folder: Path) -> Self:
        with loading(folder, "a bi-encoder"):
            model = SentenceTransformer(str(folder), device="cpu", **SAFE)
        if not isinstance(model[0], Transformer):
            raise BadFile(folder, f"a bi-encoder that begins with {type(model[0]).__name__}; unrank reads transformers")
        return cls(model)

    def save(self, folder: Path) -> None:
        with quiet():
            self.model.save_pretrained(str(folder), create_model_card=False)

    def tokenize(self, texts: Sequence[str], role: Role) -> Tokens:
        rows = []
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            batch = list(texts[start : start + TEXTS_AT_ONCE])
            features = self.model.preprocess(batch, prompt=self._prompts[role], task=role)
            ids, mask = features["input_ids"], features["attention_mask"].bool()
            rows += [row[kept].numpy() for row, kept in zip(ids, mask, strict=True)]
        return Tokens.of(rows)

    def encode(self, tokens: Tokens, role: Role) -> Tensor:
        ids = tokens.padded(self._padding, self._longest)
        features: dict[str, Any] = {
            "input_ids": to_device(ids, self.device),
            "attention_mask": to_device(mask_of(tokens.lengths, ids.shape[1]), self.device),
            "modality": "text",
        }
        if self._prompts[role]:
            features["prompt_length"] = self.model[0]._get_prompt_length(self._prompts[role])
        vectors: Tensor = self.model(features)["sentence_embedding"].float()
        return vectors[:, : self.model.truncate_dim] if self.model.truncate_dim else vectors

    def interact(self, queries: Tensor, documents: Tensor) -> Tensor:
        scores: Tensor = self.model.similarity_pairwise(queries, documents)
        return scores

    def _prompt(self, role: Role) -> str:
        names = [name for name in PROMPTS[role] if name in self.model.prompts]
        name = names[0] if names else self.model.default_prompt_name
        return str(self.model.prompts.get(name, "")) if name else ""
