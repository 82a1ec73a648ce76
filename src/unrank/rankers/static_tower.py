"""A side of a dual encoder without a transformer: a table with a vector, or a weight, for each token.

sentence-transformers has two such modules. `StaticEmbedding` takes the mean of the vectors of a text's tokens.
`SparseStaticEmbedding` gives the weight of each word that a text has, and zero for all others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
from torch import nn

from unrank.rankers.fast.pinned_memory import to_device
from unrank.rankers.tokenisation import SideTokenizer
from unrank.rankers.tokens import Tokens, padded_width, token_mask

STATIC = (StaticEmbedding, SparseStaticEmbedding)


def is_static(module: object) -> bool:
    """Return whether a module is a table of static embeddings."""
    return isinstance(module, STATIC)


@dataclass(frozen=True)
class StaticTower:
    """The static embeddings of one side, and the prompt before its texts."""

    module: Any
    prompt: str

    @property
    def words(self) -> tuple[Any, Any]:
        """What stands for an encoder with word embeddings, and for its tokenizer."""
        return _Words(self.module), _Words(self.module)

    def tokenizer(self) -> SideTokenizer:
        return SideTokenizer(self._ids, self._fingerprint)

    def _ids(self, texts: list[str]) -> list[list[int]]:
        compiled = _compiled(self.module)
        if isinstance(self.module, StaticEmbedding):
            given = compiled.encode_batch([self.prompt + text for text in texts], add_special_tokens=False)
            return [text.ids for text in given]
        features = self.module.preprocess(texts, prompt=self.prompt)
        kept = zip(features["input_ids"], features["attention_mask"].bool(), strict=True)
        return [ids[mask].tolist() for ids, mask in kept]

    def _fingerprint(self) -> str:
        facts = [_compiled(self.module).to_str(), self.prompt, str(self.module.max_seq_length)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    @contextmanager
    def reading(self, tokens: Tokens) -> Iterator[dict[str, Any]]:
        """Yield the features of texts, as the module takes them."""
        weight = next(self.module.parameters())
        if isinstance(self.module, StaticEmbedding):
            ids = to_device(tokens.concatenated(), weight.device).long()
            offsets = to_device(tokens.lengths.cumsum() - tokens.lengths, weight.device)
            yield {"input_ids": ids, "offsets": offsets}
        else:
            width = padded_width(tokens.lengths, 0)
            mask = token_mask(tokens.lengths, width, weight.device)
            padding = int(self.module.tokenizer.pad_token_id or 0)
            yield {"input_ids": tokens.padded(padding, width, weight.device), "attention_mask": mask.long()}


def _compiled(module: Any) -> Any:
    """Return the compiled tokenizer of a module."""
    return module.tokenizer if isinstance(module, StaticEmbedding) else module.tokenizer.backend_tokenizer


class _Words:
    """The table of a module and its words, by the names that a transformer and its tokenizer have for them."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def get_input_embeddings(self) -> nn.Module:
        table: nn.Module = self._module.embedding if isinstance(self._module, StaticEmbedding) else self._module
        return table

    def get_vocab(self) -> dict[str, int]:
        words: dict[str, int] = self._module.tokenizer.get_vocab()
        return words

    def __len__(self) -> int:
        return len(self.get_vocab())

    @property
    def all_special_ids(self) -> list[int]:
        """None: no special token is added to a text."""
        return []

    def decode(self, ids: list[int]) -> str:
        return str(_compiled(self._module).decode(ids))
