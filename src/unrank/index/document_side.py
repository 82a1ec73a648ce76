"""The document side of a ranker: the vectors that it gives to texts, and a digest of all that they depend on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from unrank.collection.collection import Collection
from unrank.engine.checkpoint import digest
from unrank.engine.runtime import Runtime
from unrank.engine.scoring import chunks_by_length
from unrank.errors import NotFinite, UnrankError
from unrank.index.store import Header, Vectors
from unrank.rankers.base import DualEncoder, Ranker, Role

PROBE = "The quick brown fox, 1234 lazy dogs; naïve café ÉCOLE — 東京 unbelievably [SEP]"
"""A text whose tokens stand for a tokenizer that has no fingerprint."""
STORED = {"cosine": "dot", "dot": "dot", "euclidean": "euclidean"}
"""How the vectors of a ranker are compared in a store, by the ranker's own similarity."""


def has_vectors(ranker: Ranker) -> bool:
    """Return whether a ranker gives each document one vector that an index can compare."""
    return isinstance(ranker, DualEncoder) and ranker.similarity in STORED


@dataclass(frozen=True)
class DocumentSide:
    """A ranker that gives each text one vector, on a device."""

    ranker: DualEncoder
    runtime: Runtime

    @classmethod
    def of(cls, ranker: Ranker, runtime: Runtime) -> DocumentSide:
        """Return the document side of a ranker; refuse one that has no single vector for a document."""
        if not isinstance(ranker, DualEncoder):
            raise UnrankError(
                f"a {ranker.kind} has no document vectors, so there is nothing to index: it reads a query and a "
                "document together; index the retriever that finds its candidates"
            )
        if ranker.similarity not in STORED:
            raise UnrankError(
                f"this {ranker.kind} does not compare one vector of a query with one of a document by cosine, dot "
                "product or euclidean distance, which is all that an index can do"
            )
        ranker.to(runtime.device)
        return cls(ranker, runtime)

    @cached_property
    def digest(self) -> str:
        """A hash of all that a document's vector depends on: weights, settings, tokens and similarity."""
        tokens = self.ranker.tokens_fingerprint("document")
        if tokens is None:
            tokens = str([ids.tolist() for ids in self.ranker.tokenize([PROBE], "document")])
        weights, settings = self.ranker.document_state()
        facts = [self.ranker.kind, self.ranker.similarity, tokens, settings]
        return digest(weights, json.dumps(facts, sort_keys=True, default=str))[:32]

    def header(self, collection: Collection) -> Header:
        """Return the facts of an index that this ranker makes of a collection."""
        width = self.encode(["a"], "document").shape[1]
        similarity = STORED[str(self.ranker.similarity)]
        return Header(self.digest, self.ranker.kind, similarity, width, str(collection.folder.resolve()))

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        """Return the vectors of texts as a store compares them: of unit length if the similarity is the cosine."""
        tokens = self.ranker.tokenize(texts, role)

        def work(tokens_at_once: int) -> Tensor:
            chunks = list(chunks_by_length(tokens.lengths, tokens_at_once))
            made = torch.cat([self.ranker.encode(tokens.take(chunk), role).float().cpu() for chunk in chunks])
            return made[torch.from_numpy(np.argsort(np.concatenate(chunks), kind="stable"))]

        with self.ranker.constant_weights():
            vectors = self.runtime.memory.score(work)
        if self.ranker.similarity == "cosine":
            vectors = torch.nn.functional.normalize(vectors, dim=1)
        found: Vectors = vectors.numpy()
        if not np.isfinite(found).all():
            raise NotFinite("the ranker gave a vector that is not finite; it is broken or overflowed")
        return found
