"""What the rankers that read query and document apart share: each side's modules, prompt, tokens, and encoder's inputs.

A checkpoint may put a prompt before a text, and may lengthen a query by tokens that are scored though the encoder's
attention leaves them out. Such a token is kept as `~id`, a negative number, so that ids alone say all there is to say.
Both sides may have the same modules, or a `Router` of sentence-transformers sends each through its own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.base.modules import Router
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from unrank.errors import UnrankError
from unrank.rankers.base import Role
from unrank.rankers.inputs import Inputs
from unrank.rankers.lean import LeanEncoder
from unrank.rankers.reading import Reader, read_alike
from unrank.rankers.tokens import Tokens
from unrank.rankers.transformer import longest_input

AS_LISTS = {"common": {"return_tensors": None, "padding": False}, "text": {"padding": False}}
"""What spares the library padding texts and making tensors of them, where nothing is added to a text."""
PROMPTS: dict[Role, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}


class Sides:
    """How a model of sentence-transformers reads queries, and how it reads documents."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.transformers: dict[Role, Any] = {role: modules_of(model, role)[0] for role in PROMPTS}
        encoders = {id(transformer.auto_model): transformer.auto_model for transformer in self.transformers.values()}
        first_only = all(_reads_first_only(modules_of(model, role)) for role in PROMPTS)
        lean = {key: LeanEncoder(encoder, first_only) for key, encoder in encoders.items()}
        self._sides: dict[Role, _Side] = {
            role: _Side.of(transformer, lean[id(transformer.auto_model)], _prompt(model, role))
            for role, transformer in self.transformers.items()
        }
        self._readers: dict[tuple[Role, int], Reader] = {}

    @property
    def lean(self) -> LeanEncoder | None:
        """The encoder of both sides, if they share one."""
        query, document = self._sides["query"], self._sides["document"]
        return query.lean if query.lean is document.lean else None

    @property
    def lean_encoders(self) -> list[LeanEncoder]:
        return list({id(side.lean): side.lean for side in self._sides.values()}.values())

    def reader(self, role: Role) -> Reader:
        """How texts of a side become ids."""
        key = role, self.transformers[role].max_seq_length
        if key not in self._readers:
            self._readers[key] = self._make_reader(role)
        return self._readers[key]

    def __getstate__(self) -> dict[str, Any]:
        """A copy reads with its own model."""
        return self.__dict__ | {"_readers": {}}

    def _make_reader(self, role: Role) -> Reader:
        transformer, prompt = self.transformers[role], self._sides[role].prompt
        if role == "query" and transformer.query_expansion is not None:
            return Reader(self._lengthened)

        def as_they_are(texts: list[str]) -> list[list[int]]:
            features = self._model.preprocess(texts, prompt=prompt, task=role, processing_kwargs=AS_LISTS)
            ids: list[list[int]] = features["input_ids"]
            return ids

        return read_alike(transformer.tokenizer, prompt, self._sides[role].longest, as_they_are)

    def _lengthened(self, texts: list[str]) -> list[NDArray[np.int64]]:
        role: Role = "query"
        features = self._model.preprocess(texts, prompt=self._sides[role].prompt, task=role)
        ids, seen = features["input_ids"], features["attention_mask"].bool()
        kept = seen | features.get("query_expansion_positions", False)
        ids = torch.where(seen, ids, ~ids)
        return [row[there].numpy() for row, there in zip(ids, kept, strict=True)]

    def encode(self, tokens: Tokens, role: Role) -> dict[str, Any]:
        """All that the model gives for texts of one side."""
        side = self._sides[role]
        prompt = {"prompt_length": side.prompt_length} if side.prompt else {}
        with side.lean.reading(side.inputs(tokens), tokens) as features:
            given: dict[str, Any] = self._model({**features, **prompt, "modality": "text"}, task=role)
        return given


@dataclass(frozen=True)
class _Side:
    """What one side's transformer needs to know of its texts."""

    lean: LeanEncoder
    prompt: str
    prompt_length: int | None
    padding: int
    longest: int

    @classmethod
    def of(cls, transformer: Any, lean: LeanEncoder, prompt: str) -> _Side:
        tokenizer = transformer.tokenizer
        longest = transformer.max_seq_length or longest_input(tokenizer, transformer.config)
        length = transformer._get_prompt_length(prompt) if prompt else None
        return cls(lean, prompt, length, int(tokenizer.pad_token_id or 0), int(longest))

    def inputs(self, tokens: Tokens) -> Inputs:
        return Inputs(
            tokens.end_to_end(), tokens.lengths, self.longest, self.padding, some_unseen=tokens.ids.some_negative
        )


def modules_of(model: Any, role: Role) -> list[Any]:
    """What a text of this side goes through, in order. Raises ValueError where a router has no way for it."""
    modules: list[Any] = []
    for module in model:
        routed = isinstance(module, Router)
        modules += module.sub_modules[module._resolve_route(role, "text")] if routed else [module]
    return modules


def _reads_first_only(modules: Sequence[Any]) -> bool:
    """Whether the encoder's first token is all that the next module takes of a text; where the prompt is not pooled, it
    takes the first token after it."""
    pooling = modules[1] if len(modules) > 1 else None
    return isinstance(pooling, Pooling) and pooling.pooling_mode == "cls" and bool(pooling.include_prompt)


def part_sides(model: Any) -> None:
    """Where the sides share weights, give queries a copy of all modules, in the form that the library itself reads."""
    queries, documents = modules_of(model, "query"), modules_of(model, "document")
    if not _weights(queries) & _weights(documents):
        return
    if _weights(model) > _weights(queries + documents):
        raise UnrankError("the ranker has routes besides those of queries and documents, and would lose them")
    router = Router.for_query_document(copy.deepcopy(queries), documents)
    del model[:]
    model.append(router)


def freeze(modules: Sequence[nn.Module]) -> None:
    for module in modules:
        module.requires_grad_(False)


def _weights(modules: Iterable[nn.Module]) -> set[int]:
    return {id(weight) for module in modules for weight in module.parameters()}


def _prompt(model: Any, role: Role) -> str:
    names = [name for name in PROMPTS[role] if name in model.prompts]
    name = names[0] if names else model.default_prompt_name
    return str(model.prompts.get(name) or "") if name else ""
