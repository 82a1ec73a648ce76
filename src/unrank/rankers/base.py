"""A ranker: a model that gives a real score to a query and a document.

The score is raw, before any activation, and float32; only its order within one query means anything. A ranker
tokenises texts once, and scores tokens. A separable ranker encodes each side alone, so that a text in
many pairs is encoded once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from unrank.errors import UnrankError
from unrank.rankers.encoder import DEFAULT_ENCODER
from unrank.rankers.lean import LeanEncoder
from unrank.rankers.tokens import Ints, Tokens

Role = Literal["query", "document"]


class Ranker(nn.Module, ABC):
    """One contract for all rankers; an entry of `RANKERS` fulfils it."""

    kind: ClassVar[str]
    default_base: ClassVar[str] = DEFAULT_ENCODER
    """What a fresh one starts from where nothing else is named."""
    separable: ClassVar[bool] = False
    """Whether document vectors can be stored apart from any query."""
    lean: LeanEncoder | None = None
    """Its encoder, where it has one that can run with less."""

    @classmethod
    @abstractmethod
    def create(cls, base: str | None) -> Self:
        """A fresh, untrained ranker on what it starts from: the named base, or the default one of its kind."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path) -> Self:
        """The ranker that a folder holds."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what `load` reads, in the layout that the ranker's users know."""

    @abstractmethod
    def tokenize(self, texts: Sequence[str], role: Role) -> Tokens:
        """The texts as this ranker reads them, whole or cut to what it can take."""

    @abstractmethod
    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        """The score of each query with the document at the same place. float32 [batch]"""

    def reads(self, role: Role) -> str | None:
        """A hash of all that the ids of a text of this side depend on; None where that is not known."""
        return None

    def lengths(self, queries: Ints, documents: Ints) -> Ints:
        """How many tokens the encoder sees for pairs of texts so long: what chunks are made by."""
        return queries + documents

    @property
    def encoders(self) -> Sequence[nn.Module]:
        """The parts whose layers are counted apart: all of it, unless it has more than one encoder."""
        return [self]

    @property
    def lean_encoders(self) -> Sequence[LeanEncoder]:
        return [self.lean] if self.lean else []

    @contextmanager
    def still(self) -> Iterator[None]:
        """While no weight changes, so that a pass may use what the one before it made of them."""
        with ExitStack() as all_of_them:
            for lean in self.lean_encoders:
                all_of_them.enter_context(lean.still())
            yield

    @contextmanager
    def repeating(self) -> Iterator[None]:
        """While it is trained, step after step on batches that are alike."""
        with ExitStack() as all_of_them:
            for lean in self.lean_encoders:
                all_of_them.enter_context(lean.repeating())
            yield

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @torch.inference_mode()
    def score_texts(self, queries: Sequence[str], documents: Sequence[str]) -> list[float]:
        """Scores of pairs of texts, for a handful of them."""
        tokens = self.tokenize(queries, "query"), self.tokenize(documents, "document")
        return [float(score) for score in self(*tokens)]


class SeparableRanker(Ranker):
    """A ranker whose two sides meet only at the end."""

    separable = True

    @abstractmethod
    def encode(self, tokens: Tokens, role: Role) -> Tensor:
        """One vector a text, or one a token and zeros beyond. float32 [texts, width] or [texts, tokens, width]"""

    @abstractmethod
    def encoded_sizes(self, lengths: Ints) -> Ints:
        """How many numbers the encodings of texts so long hold: what memory is planned by."""

    @abstractmethod
    def interact(self, queries: Tensor, documents: Tensor) -> Tensor:
        """The score of each query's encoding with the document's at the same place. float32 [batch]"""

    def freeze_documents(self) -> None:
        """Give queries weights of their own and let these alone move: stored document vectors stay valid."""
        raise UnrankError(f"a {self.kind} cannot be trained with its documents frozen")

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        return self.interact(self.encode(queries, "query"), self.encode(documents, "document"))
