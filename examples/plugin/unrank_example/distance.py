"""A dual encoder whose score is the negative squared distance of two vectors, each the mean of a text's token vectors.

It starts from any encoder that `AutoModel` loads, and from all-MiniLM-L6-v2 if none is named.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoTokenizer

from unrank.rankers.base import DualEncoder, Role, Tokens
from unrank.rankers.encoder import DEFAULT_ENCODER, checked_encoder, encoder_files
from unrank.rankers.model_folder import loading, read_weights, write_own_folder

MOST_TOKENS = 256


class DistanceRanker(DualEncoder):
    """Query and document encoded apart; the score is the negative squared distance of their vectors."""

    kind = "distance"
    default_base = DEFAULT_ENCODER

    def __init__(self, encoder: Any, tokenizer: Any) -> None:
        super().__init__()
        self.encoder, self.tokenizer = encoder, tokenizer
        self.longest = min(MOST_TOKENS, tokenizer.model_max_length)

    @classmethod
    def base_files(cls, base: str | None) -> list[Path]:
        return encoder_files(base)

    @classmethod
    def create(cls, base: str | None) -> Self:
        folder = checked_encoder(base)
        with loading(folder, "an encoder"):
            encoder = AutoModel.from_pretrained(folder, use_safetensors=True, dtype=torch.float32)
            return cls(encoder, AutoTokenizer.from_pretrained(folder))

    @classmethod
    def load(cls, folder: Path) -> Self:
        encoder = AutoModel.from_config(AutoConfig.from_pretrained(folder))
        ranker = cls(encoder, AutoTokenizer.from_pretrained(folder))
        read_weights(folder, ranker)
        return ranker

    def save(self, folder: Path) -> None:
        write_own_folder(folder, self.kind, {}, self)
        self.encoder.config.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def tokenize(self, texts: Sequence[str], role: Role) -> Tokens:
        return Tokens.of(self.tokenizer(list(texts), truncation=True, max_length=self.longest)["input_ids"])

    def encode(self, tokens: Tokens, role: Role) -> Tensor:
        ids = tokens.padded(self.tokenizer.pad_token_id, self.longest, self.device)
        present = ids != self.tokenizer.pad_token_id  # [texts, tokens]
        vectors = self.encoder(input_ids=ids, attention_mask=present.long()).last_hidden_state
        weights = present.unsqueeze(2).float()
        means: Tensor = (vectors * weights).sum(1) / weights.sum(1)
        return means

    def interact(self, queries: Tensor, documents: Tensor) -> Tensor:
        return -(queries - documents).square().sum(1)
