"""What the bi-encoder and ColBERT share: a model of sentence-transformers that reads each side alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sentence_transformers.base.modules import Transformer
from torch import nn

from unrank.errors import BadFile
from unrank.rankers.base import Role, SeparableRanker
from unrank.rankers.lean import LeanEncoder
from unrank.rankers.sides import PROMPTS, Sides, freeze, modules_of, part_sides
from unrank.rankers.tokens import Tokens
from unrank.rankers.transformer import MAX_TOKENS, SAFE, longest_input, quiet


class SidedRanker(SeparableRanker):
    """A ranker over such a model, whose two sides may share their weights or not."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model.eval()
        self._take_sides()

    def _take_sides(self) -> None:
        self._sides = Sides(self.model)
        self.lean = self._sides.lean

    @property
    def encoders(self) -> Sequence[nn.Module]:
        return list({id(transformer): transformer for transformer in self._sides.transformers.values()}.values())

    @property
    def lean_encoders(self) -> Sequence[LeanEncoder]:
        return self._sides.lean_encoders

    def freeze_documents(self) -> None:
        part_sides(self.model)
        freeze(modules_of(self.model, "document"))
        self._take_sides()

    def save(self, folder: Path) -> None:
        with quiet():
            self.model.save_pretrained(str(folder), create_model_card=False)

    def tokenize(self, texts: Sequence[str], role: Role) -> Tokens:
        return self._sides.reader(role)(texts)

    def reads(self, role: Role) -> str | None:
        return self._sides.reader(role).identity()


def fresh_transformer(folder: Path) -> Transformer:
    """An encoder as the first module of a model; it reads no more than a fresh ranker does."""
    encoder = Transformer(str(folder), model_kwargs=SAFE["model_kwargs"])
    encoder.max_seq_length = min(MAX_TOKENS, longest_input(encoder.tokenizer, encoder.config))
    return encoder


def check_beginning(model: Any, folder: Path, what: str) -> None:
    """Refuse a model of which a side does not begin with a transformer."""
    for role in PROMPTS:
        try:
            first = next(iter(modules_of(model, role)), None)
        except ValueError as error:
            raise BadFile(folder, f"{what} whose router has no route for a {role}") from error
        if not isinstance(first, Transformer):
            raise BadFile(folder, f"{what} that begins with {type(first).__name__}; unrank reads transformers")
