"""What the rankers that read query and document apart share: each side's prompt, its tokens, and the encoder's inputs.

A checkpoint may put a prompt before a text, and may lengthen a query by tokens that are scored though the encoder's
attention leaves them out. Such a token is kept as `~id`, a negative number, so that ids alone say all there is to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from unrank.rankers.base import Role
from unrank.rankers.lean import LeanEncoder
from unrank.rankers.staging import to_device
from unrank.rankers.tokens import Tokens, mask_of
from unrank.rankers.transformer import longest_input

TEXTS_AT_ONCE = 256
PROMPTS: dict[Role, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}


class Sides:
    """How a model of sentence-transformers reads queries, and how it reads documents."""

    def __init__(self, model: Any) -> None:
        self.lean = LeanEncoder(model[0].auto_model)
        self._model = model
        self._padding = int(model.tokenizer.pad_token_id or 0)
        self._longest = int(model.max_seq_length or longest_input(model.tokenizer, model[0].config))
        self._prompts = {role: _prompt(model, role) for role in PROMPTS}

    def tokenize(self, texts: Sequence[str], role: Role) -> Tokens:
        rows = []
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            batch = list(texts[start : start + TEXTS_AT_ONCE])
            features = self._model.preprocess(batch, prompt=self._prompts[role], task=role)
            ids, seen = features["input_ids"], features["attention_mask"].bool()
            kept = seen | features.get("query_expansion_positions", False)
            ids = torch.where(seen, ids, ~ids)
            rows += [row[there].numpy() for row, there in zip(ids, kept, strict=True)]
        return Tokens.of(rows)

    def encode(self, tokens: Tokens, role: Role, device: torch.device) -> dict[str, Any]:
        """All that the model gives for texts of one side."""
        all_seen = not (tokens.ids < 0).any()  # what is not attended to has a place in padding alone
        with self.lean.reading(tokens.lengths if all_seen else None, tokens):
            features: dict[str, Any] = self._model(self._features(tokens, role, device), task=role)
        return features

    def _features(self, tokens: Tokens, role: Role, device: torch.device) -> dict[str, Any]:
        """What the model's first module takes."""
        ids = tokens.padded(self._padding, self._longest)
        unseen = ids < 0
        arrays = {
            "input_ids": np.where(unseen, ~ids, ids),
            "attention_mask": np.where(unseen, 0, mask_of(tokens.lengths, ids.shape[1])),
        }
        if unseen.any():
            arrays["query_expansion_positions"] = unseen
        features: dict[str, Any] = {name: to_device(array, device) for name, array in arrays.items()}
        if self._prompts[role]:
            features["prompt_length"] = self._model[0]._get_prompt_length(self._prompts[role])
        return {**features, "modality": "text"}


def _prompt(model: Any, role: Role) -> str:
    names = [name for name in PROMPTS[role] if name in model.prompts]
    name = names[0] if names else model.default_prompt_name
    return str(model.prompts.get(name) or "") if name else ""
