"""The vocabulary of a ranker: the weights that have a row for each token, such as an encoder's word embeddings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from unrank.errors import BadFile

Side = Literal["query", "document"]
BOTH: tuple[Side, ...] = ("query", "document")


@dataclass(frozen=True)
class Vocabulary:
    """Tables with a row for each token id, and the texts whose tokens move a row in training."""

    tables: tuple[Tensor, ...]
    """Empty if it is not known which weights they are."""
    sides: tuple[Side, ...] = BOTH
    special: frozenset[int] = frozenset()
    """Tokens that every text may have."""
    surface: Callable[[int], str] | None = None
    """Return letters that stand in every plain English text with this token, in any case; empty if none are known."""
    initial: tuple[Tensor, ...] = ()
    """The tables before training, if they follow from the ranker itself."""
    tokens: int = 0
    """The number of tokens that the tokenizer knows; 0 if that is not known."""


def embedding_vocabulary(ranker: nn.Module) -> list[Vocabulary]:
    """Return the vocabulary of a ranker of unknown make: its embedding if it has exactly one, else unknown tables."""
    tables = [module.weight for module in ranker.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)]
    return [Vocabulary(tuple(tables) if len(tables) == 1 else ())]


def encoder_vocabulary(encoders: Mapping[Side, Any], tokenizers: Mapping[Side, Any]) -> list[Vocabulary]:
    """Return the vocabularies of the encoders of both sides: one if their tokenizers are alike, else one for each.

    Encoders that are separate now may have been one in training, so a text of either side counts for both.
    """
    query, document = tokenizers["query"], tokenizers["document"]
    alike = query is document or query.get_vocab() == document.get_vocab()
    groups = [BOTH] if alike else [(side,) for side in BOTH]
    found = []
    for sides in groups:
        tables = [encoders[side].get_input_embeddings().weight for side in sides]
        once = {id(table): table for table in tables}
        tokenizer = tokenizers[sides[0]]
        special, known = frozenset(tokenizer.all_special_ids), len(tokenizer)
        found.append(Vocabulary(tuple(once.values()), sides, special, _surface(tokenizer), tokens=known))
    return found


def check_rows(vocabularies: Sequence[Vocabulary], folder: Path) -> None:
    """Refuse a tokenizer that has grown beyond the tables: a text with a new token would end the job."""
    for vocabulary in vocabularies:
        rows = min(map(len, vocabulary.tables), default=vocabulary.tokens)
        if vocabulary.tokens > rows:
            raise BadFile(
                folder,
                f"its tokenizer has {vocabulary.tokens:,} tokens and its weights {rows:,} rows; resize the weights",
            )


def _surface(tokenizer: Any) -> Callable[[int], str]:
    def surface(token: int) -> str:
        text: str = tokenizer.decode([token])
        return text.strip().removeprefix("##").lower()

    return surface
