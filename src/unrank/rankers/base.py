"""A ranker: a model that gives a real score to a query and a document.

The score is raw, before any activation, and float32; only its order within one query means anything. A ranker
tokenises texts once, and scores tokens. A separable ranker encodes each side alone, so that a text in
many pairs is encoded once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from unrank.errors import UnrankError, count
from unrank.rankers.encoder import DEFAULT_ENCODER
from unrank.rankers.tokens import Ints, Tokens

Role = Literal["query", "document"]


class Ranker(nn.Module, ABC):
    """One contract for all rankers; an entry of `RANKERS` fulfils it."""

    kind: ClassVar[str]
    default_base: ClassVar[str] = DEFAULT_ENCODER
    """What a fresh one starts from where nothing else is named."""
    separable: ClassVar[bool] = False
    """Whether document vectors can be stored apart from any query."""

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

    def lengths(self, queries: Ints, documents: Ints) -> Ints:
        """How many tokens the encoder sees for pairs of texts so long: what chunks are made by."""
        return queries + documents

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
        """One vector a text. float32 [texts, width]"""

    @abstractmethod
    def interact(self, queries: Tensor, documents: Tensor) -> Tensor:
        """The score of each query vector with the document vector at the same place. float32 [batch]"""

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        return self.interact(self.encode(queries, "query"), self.encode(documents, "document"))


def train_last_layers(ranker: Ranker, layers: int) -> None:
    """Freeze the embeddings and all but the last layers of the encoder; what stands after them stays trainable."""
    stacks = [module for module in ranker.modules() if isinstance(module, nn.ModuleList)]
    if not stacks:
        raise UnrankError(f"a {ranker.kind} has no layers to choose from")
    stack = max(stacks, key=lambda layers: sum(weight.numel() for weight in layers.parameters()))
    if layers > len(stack):
        raise UnrankError(f"the encoder has {count(len(stack), 'layer')}, so {layers} of them cannot be trained")
    frozen = {id(weight) for layer in list(stack)[: len(stack) - layers] for weight in layer.parameters()}
    for name, weight in ranker.named_parameters():
        weight.requires_grad_(id(weight) not in frozen and "embedding" not in name)


def run_in_bfloat16(body: nn.Module) -> None:
    """Let an encoder compute in bfloat16 on a GPU, and hand float32 to whatever comes after it.

    Only the encoder: a score that left a linear layer in bfloat16 would tie with its neighbours. Done with hooks,
    because a deep copy of the ranker copies them rightly; `body` must be a module that is called, not its `forward`.
    """
    body.register_forward_pre_hook(_enter_bfloat16)
    body.register_forward_hook(_leave_bfloat16, always_call=True)


def _enter_bfloat16(body: nn.Module, _: Any) -> None:
    precision = torch.autocast("cuda", torch.bfloat16, enabled=next(body.parameters()).is_cuda)
    precision.__enter__()  # type: ignore[no-untyped-call]
    body.__dict__["_precision"] = precision


def _leave_bfloat16(body: nn.Module, _: Any, output: Any) -> Any:
    body.__dict__.pop("_precision").__exit__(None, None, None)
    for name, value in (output or {}).items():
        if isinstance(value, Tensor) and value.dtype == torch.bfloat16:
            output[name] = value.float()
    return output
