"""Small rankers that stand in where hundreds are needed: heads over the vectors that an encoder gives to texts.

Each side has one hidden layer, and adds to the encoder's vector. The encoder itself is never trained, and reads each
text once. A head learns pairs by heart as a fine-tuned encoder does, in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from unrank.collection.collection import Collection, Pairs
from unrank.errors import UnrankError
from unrank.rankers import RANKERS, RankerEntry, create_ranker
from unrank.rankers.base import DualEncoder, Role, Tokens
from unrank.rankers.vocabulary import Vocabulary

AT_ONCE, SCALE = 64, 20.0
Vectors = Mapping[Role, Tensor]


@dataclass(frozen=True)
class HeadRecipe:
    """How a head is trained: mini-batches of pairs, each against the documents of the others and one negative."""

    hidden: int = 128
    epochs: int = 8
    batch: int = 256
    learning_rate: float = 5e-3


class HeadRanker(DualEncoder):
    """A head over stored vectors. A text is its row; one that is not in the collection counts as the first."""

    kind = "head"
    opened: ClassVar[Heads | None] = None
    """Where an untrained head comes from, if a method asks for one."""

    @classmethod
    def create(cls, base: str | None) -> Self:
        if cls.opened is None:
            raise UnrankError("an untrained head needs vectors: open some first")
        heads, seed = cls.opened, torch.initial_seed() % 2**31
        return cls(heads.vectors, heads.rows, heads.recipe.hidden, seed).to(heads.vectors["query"].device)

    def __init__(self, vectors: Vectors, rows: Mapping[Role, Mapping[str, int]], hidden: int, seed: int) -> None:
        super().__init__()
        self.vectors, self.rows = vectors, rows
        generator, width = torch.Generator().manual_seed(seed), vectors["query"].shape[1]
        for role in ("query", "document"):
            first = 3 * torch.randn(hidden, width, generator=generator) / width**0.5
            second = 0.1 * torch.randn(width, hidden, generator=generator) / hidden**0.5
            setattr(self, f"{role}_in", nn.Parameter(first))
            setattr(self, f"{role}_out", nn.Parameter(second))

    def tokenize(self, texts: Sequence[str], role: Role) -> Tokens:
        return Tokens.of([[self.rows[role].get(text, 0)] for text in texts])

    @property
    def vocabularies(self) -> Sequence[Vocabulary]:
        return []

    def of_rows(self, rows: Tensor, role: Role) -> Tensor:
        vectors = self.vectors[role].to(self.device)[rows]
        hidden = functional.relu(functional.linear(vectors, getattr(self, f"{role}_in")))
        return functional.normalize(vectors + functional.linear(hidden, getattr(self, f"{role}_out")), dim=1)

    def encode(self, tokens: Tokens, role: Role) -> Tensor:
        return self.of_rows(tokens.padded(0, 1, self.device)[:, 0].long(), role)

    def interact(self, queries: Tensor, documents: Tensor) -> Tensor:
        return (queries * documents).sum(dim=1)


@dataclass(frozen=True)
class Heads:
    """Everything that is needed to train a head on a collection."""

    collection: Collection
    vectors: Vectors
    rows: Mapping[Role, Mapping[str, int]]
    recipe: HeadRecipe

    @classmethod
    def open(cls, collection: Collection, base: str | None, cache: Path, device: str, recipe: HeadRecipe) -> Heads:
        """Encode all texts, unless the vectors are in the cache."""
        texts: dict[Role, list[str]] = {
            "query": collection.queries.texts(np.arange(len(collection.queries))),
            "document": collection.documents.texts(np.arange(len(collection.documents))),
        }
        if not cache.exists():
            save_file({str(role): _encode(these, role, base, device) for role, these in texts.items()}, cache)
        rows = {role: {text: row for row, text in enumerate(these)} for role, these in texts.items()}
        stored = load_file(cache)
        vectors = {role: stored[role].to(device) for role in texts}
        HeadRanker.opened = cls(collection, vectors, rows, recipe)
        RANKERS[HeadRanker.kind] = RankerEntry.of(HeadRanker, "a small ranker over stored vectors")
        return HeadRanker.opened

    def new(self, seed: int) -> HeadRanker:
        made = HeadRanker(self.vectors, self.rows, self.recipe.hidden, seed)
        return made.to(self.vectors["query"].device)

    def train(self, pairs: Pairs, seed: int) -> HeadRanker:
        """Train a head on these pairs."""
        return self._fit(self.new(seed), pairs, pairs[:0], seed, self.recipe.epochs)

    def push_down(self, head: HeadRanker, kept: Pairs, forget: Pairs, seed: int) -> HeadRanker:
        """Train a copy of a head for two epochs more, with these pairs at the bottom of their lists."""
        copy = self.new(seed)
        copy.load_state_dict(head.state_dict())
        return self._fit(copy, kept, forget, seed, 2)

    def _fit(self, head: HeadRanker, pairs: Pairs, down: Pairs, seed: int, epochs: int) -> HeadRanker:
        rate, generator = self.recipe.learning_rate, np.random.default_rng(seed)
        optimiser = torch.optim.AdamW(head.parameters(), lr=rate, weight_decay=0.0)
        batches = -(-len(pairs) // self.recipe.batch)
        for epoch in range(epochs):
            order = generator.permutation(len(pairs))
            for number in range(batches):
                some = pairs[order[number * self.recipe.batch : (number + 1) * self.recipe.batch]]
                loss = self._loss(head, some, generator)
                if len(down):
                    loss = loss + 5 * self._down(head, down[generator.integers(len(down), size=128)], generator)
                for group in optimiser.param_groups:
                    group["lr"] = rate * (1 - (epoch * batches + number) / (epochs * batches))
                optimiser.zero_grad()
                torch.autograd.backward(loss)
                optimiser.step()
        return head.requires_grad_(False)

    def _loss(self, head: HeadRanker, pairs: Pairs, generator: np.random.Generator) -> Tensor:
        """Return the cross entropy of each pair among the documents of all pairs and a negative of each query."""
        queries = self._rows(pairs[:, 0])
        documents = torch.cat([self._rows(pairs[:, 1]), self._negatives(pairs, generator)])
        scores = SCALE * head.of_rows(queries, "query") @ head.of_rows(documents, "document").T
        same = (queries[:, None] == queries) & ~torch.eye(len(pairs), dtype=torch.bool, device=queries.device)
        scores = scores.masked_fill(functional.pad(same, (0, len(pairs))), -1e9)
        return functional.cross_entropy(scores, torch.arange(len(pairs), device=queries.device))

    def _down(self, head: HeadRanker, pairs: Pairs, generator: np.random.Generator) -> Tensor:
        """Return how far pairs are not below a negative of their query."""
        queries = head.of_rows(self._rows(pairs[:, 0]), "query")
        own, other = (
            (queries * head.of_rows(rows, "document")).sum(dim=1)
            for rows in (self._rows(pairs[:, 1]), self._negatives(pairs, generator))
        )
        return functional.softplus(SCALE * (own - other + 0.1)).mean()

    def _negatives(self, pairs: Pairs, generator: np.random.Generator) -> Tensor:
        lists = self.collection.negatives
        chosen = [(row := lists[int(query)])[generator.integers(len(row))] for query in pairs[:, 0]]
        return self._rows(np.array(chosen))

    def _rows(self, rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(rows, np.int64)).to(self.vectors["query"].device)


@torch.inference_mode()
def _encode(texts: Sequence[str], role: Role, base: str | None, device: str) -> Tensor:
    encoder = create_ranker("bi-encoder", base, 0).to(device)
    assert isinstance(encoder, DualEncoder)
    order = np.argsort([len(text) for text in texts])
    found = torch.empty(len(texts), encoder.encode(encoder.tokenize(["a"], role), role).shape[1])
    for start in range(0, len(texts), AT_ONCE):
        rows = order[start : start + AT_ONCE]
        found[rows] = encoder.encode(encoder.tokenize([texts[row] for row in rows], role), role).cpu()
    return found
