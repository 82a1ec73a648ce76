"""The contract of a ranker: a model that gives a real score to a query and a document.

To write a ranker, subclass `Ranker` and write `tokenize` and `forward`. To write a dual encoder, subclass `DualEncoder`
and write `tokenize`, `encode` and `interact`: each text is then encoded once, however many pairs it is in. Everything
else has a default that suits a class without arguments whose state is its weights:

    class WordOverlap(DualEncoder):
        kind = "word-overlap"

        def __init__(self) -> None:
            super().__init__()
            self.vectors = nn.EmbeddingBag(10_000, 64, padding_idx=0)

        def tokenize(self, texts, role):
            return Tokens.of([[1 + crc32(word.encode()) % 9_999 for word in text.split()] for text in texts])

        def encode(self, tokens, role):
            return self.vectors(tokens.padded(0, 256, self.device))

        def interact(self, queries, documents):
            return -(queries - documents).norm(dim=1)

A score is raw (no activation is applied) and float32. Only the order of scores within one query has a meaning.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from unrank.errors import UnrankError
from unrank.rankers.fast.encoder import FastEncoder
from unrank.rankers.model_folder import read_weights, write_own_folder
from unrank.rankers.tokens import Ints, Tokens
from unrank.rankers.vocabulary import Vocabulary, embedding_vocabulary

__all__ = ["DualEncoder", "Ranker", "Role", "Tokens"]

Role = Literal["query", "document"]


class Ranker(nn.Module, ABC):
    """A model that scores pairs of a query and a document."""

    kind: ClassVar[str]
    """The name in `RANKERS`."""
    default_base: ClassVar[str] = "nothing"
    """The name of the encoder or word vectors that a new ranker starts from by default."""
    reads_words: ClassVar[bool] = False
    """Whether it starts from word vectors and has no encoder, so that scores cost little."""
    separable: ClassVar[bool] = False
    """Whether document vectors can be stored apart from any query (`DualEncoder`)."""
    card: str = ""
    """The model card of the folder that it was loaded from."""
    source: str = ""
    """The folder, or the hub id, that it was loaded from; empty if it was made here."""

    @abstractmethod
    def tokenize(self, texts: Sequence[str], role: Role) -> Tokens:
        """Return the ids of queries, or of documents, cut to what the ranker reads."""

    @abstractmethod
    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        """Return the score of query i with document i. float32 [batch]"""

    @classmethod
    def create(cls, base: str | None) -> Self:
        """Return a new, untrained ranker on a base; on the default one if `base` is `None`."""
        return cls()

    @classmethod
    def base_files(cls, base: str | None) -> list[Path]:
        """Return the files of a base. Their hash tells two bases apart."""
        return []

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the ranker that `save` wrote to a folder."""
        ranker = cls()
        read_weights(folder, ranker)
        return ranker

    def save(self, folder: Path) -> None:
        """Write a folder; for a model of a library, in that library's layout."""
        write_own_folder(folder, self.kind, {}, self)

    def tokens_fingerprint(self, role: Role) -> str | None:
        """Return a hash of all that the ids of a text depend on, so that ids can be cached; `None` if not known."""
        return None

    def library_scores(self, queries: Sequence[str], documents: Sequence[str]) -> list[float] | None:
        """Return the scores of pairs as the library that owns the folder's layout computes them.

        `None` if there is no such library.
        """
        return None

    def lengths(self, queries: Ints, documents: Ints) -> Ints:
        """Return the number of tokens to compute for pairs of texts of these lengths; batches are made by it."""
        return queries + documents

    @property
    def encoders(self) -> Sequence[nn.Module]:
        """The modules whose layers are counted separately: the whole ranker, unless it has several encoders."""
        return [self]

    @property
    def vocabularies(self) -> Sequence[Vocabulary]:
        """The weights that have a row for each token; empty if there are none."""
        return embedding_vocabulary(self)

    @property
    def fast_encoders(self) -> Sequence[FastEncoder]:
        """The encoders that have faster passes."""
        return []

    @property
    def fast(self) -> bool:
        """Whether the encoders use their faster passes, and not those of their library."""
        return all(encoder.enabled for encoder in self.fast_encoders)

    @fast.setter
    def fast(self, on: bool) -> None:
        for encoder in self.fast_encoders:
            encoder.enabled = on

    @property
    def keeps_states(self) -> bool:
        """Whether states of frozen layers are kept from one pass to the next."""
        return any(encoder.frozen_states is not None for encoder in self.fast_encoders)

    @contextmanager
    def constant_weights(self) -> Iterator[None]:
        """Promise that no weight changes, so that a pass may reuse what the pass before made of them."""
        with ExitStack() as stack:
            for encoder in self.fast_encoders:
                stack.enter_context(encoder.constant_weights())
            yield

    @contextmanager
    def repeated_steps(self) -> Iterator[None]:
        """Announce many training steps on similar batches."""
        with ExitStack() as stack:
            for encoder in self.fast_encoders:
                stack.enter_context(encoder.repeated_steps())
            yield

    def freeze_documents(self) -> None:
        """Give queries weights of their own and train only these, so that stored document vectors stay valid."""
        raise UnrankError(f"a {self.kind} cannot be trained with its documents frozen")

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @torch.inference_mode()
    def score_texts(self, queries: Sequence[str], documents: Sequence[str]) -> list[float]:
        """Return the scores of a few pairs of texts."""
        tokens = self.tokenize(queries, "query"), self.tokenize(documents, "document")
        return [float(score) for score in self(*tokens)]


class DualEncoder(Ranker):
    """A ranker that encodes queries and documents apart and compares the encodings."""

    separable = True

    @property
    def similarity(self) -> str | None:
        """How one vector of a query is compared with one of a document: cosine, dot or euclidean; `None` if they are
        compared in another way."""
        return None

    def document_state(self) -> tuple[dict[str, Tensor], object]:
        """Return the weights and the settings that the encoding of a document depends on; by default all weights."""
        return self.state_dict(), None

    def fast_encoder(self, role: Role) -> FastEncoder | None:
        """Return the encoder of a side if it has faster passes."""
        return None

    @abstractmethod
    def encode(self, tokens: Tokens, role: Role) -> Tensor:
        """Return one vector per text, or one per token and zeros as padding.

        float32 [texts, width] or [texts, tokens, width]
        """

    @abstractmethod
    def interact(self, queries: Tensor, documents: Tensor) -> Tensor:
        """Return the score of query encoding i with document encoding i. float32 [batch]"""

    def compact(self, encoded: Tensor) -> Tensor:
        """Return encodings in the form in which many are held at once, which `interact` takes too; by default as given.

        float32 [texts, width] or [texts, entries, width], with zeros as padding
        """
        return encoded

    def entries(self, documents: Tokens) -> float | None:
        """Return the mean number of entries of a document's vector that are not zero; `None` if vectors are dense."""
        return None

    def regulariser(self, queries: Tensor, documents: Tensor) -> Tensor | None:
        """Return a term that each training step adds to its loss; `None` if there is none.

        It is computed from the encodings of the step's queries and documents, each text once. [vectors, width]
        """
        return None

    @torch.inference_mode()
    def encoded_sizes(self, lengths: Ints) -> Ints:
        """Return how many numbers the compact encodings of texts of these lengths hold; memory is planned by it."""
        example = self.compact(self.encode(self.tokenize(["a"], "document"), "document"))
        return np.full_like(lengths, example.shape[-1]) if example.dim() == 2 else lengths * example.shape[-1]

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        return self.interact(self.encode(queries, "query"), self.encode(documents, "document"))
