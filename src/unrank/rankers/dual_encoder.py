"""Dual encoders over a model of sentence-transformers: the bi-encoder and ColBERT share this.

A checkpoint may put a prompt before a text. It may also extend a query by tokens that are scored though attention
leaves them out; such a token is stored as `~id`, a negative number. Queries and documents share their modules, or a
`Router` of sentence-transformers sends each through modules of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.base.modules import Router, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import nn

from unrank.errors import BadFile, UnrankError
from unrank.rankers.base import DualEncoder, Role
from unrank.rankers.encoder import DEFAULT_ENCODER, MAX_TOKENS, SAFE, encoder_files, longest_input
from unrank.rankers.fast.encoder import FastEncoder
from unrank.rankers.model_folder import save_library_model
from unrank.rankers.static_tower import StaticTower, is_static
from unrank.rankers.tokenisation import EncoderInputs, SideTokenizer, faster_tokenizer
from unrank.rankers.tokens import Tokens
from unrank.rankers.vocabulary import BOTH, Vocabulary, encoder_vocabulary

AS_LISTS = {"common": {"return_tensors": None, "padding": False}, "text": {"padding": False}}
"""Options that keep the library from padding texts and making tensors, if nothing is added to a text."""
UNRELATED = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "_attn_implementation")
"""Settings of an encoder that its vectors do not depend on."""
PROMPTS: dict[Role, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}


class LibraryDualEncoder(DualEncoder):
    """A dual encoder over a model of sentence-transformers, whose towers may share their weights."""

    default_base = DEFAULT_ENCODER

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model.eval()
        self._towers = Towers(model)

    @classmethod
    def base_files(cls, base: str | None) -> list[Path]:
        return encoder_files(base)

    @property
    def encoders(self) -> Sequence[nn.Module]:
        return list({id(module): module for module in self._towers.first.values()}.values())

    @property
    def vocabularies(self) -> Sequence[Vocabulary]:
        towers = {side: self._towers.words(side) for side in BOTH}
        encoders, tokenizers = ({side: words[place] for side, words in towers.items()} for place in (0, 1))
        return encoder_vocabulary(encoders, tokenizers)

    @property
    def fast_encoders(self) -> Sequence[FastEncoder]:
        return self._towers.fast_encoders

    def fast_encoder(self, role: Role) -> FastEncoder | None:
        return self._towers.fast.get(role)

    def freeze_documents(self) -> None:
        fast = self.fast
        split_towers(self.model)
        for module in modules_of(self.model, "document"):
            module.requires_grad_(False)
        self._towers = Towers(self.model)
        self.fast = fast

    def document_state(self) -> tuple[dict[str, torch.Tensor], object]:
        modules = modules_of(self.model, "document")
        weights = {
            f"{number} {name}": weight
            for number, module in enumerate(modules)
            for name, weight in module.state_dict().items()
        }
        return weights, [_settings(module) for module in modules]

    def save(self, folder: Path) -> None:
        save_library_model(self.model, folder)

    def tokenize(self, texts: Sequence[str], role: Role) -> Tokens:
        return self._towers.tokenizer(role)(texts)

    def tokens_fingerprint(self, role: Role) -> str | None:
        return self._towers.tokenizer(role).fingerprint()

    def library_scores(self, queries: Sequence[str], documents: Sequence[str]) -> list[float]:
        encoded = self.model.encode_query(list(queries)), self.model.encode_document(list(documents))
        return [float(score) for score in self.model.similarity_pairwise(*encoded)]


class Towers:
    """How a model of sentence-transformers reads queries, and how it reads documents."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.first: dict[Role, Any] = {role: modules_of(model, role)[0] for role in PROMPTS}
        self.encoders = {
            role: encoder_of(first) for role, first in self.first.items() if isinstance(first, Transformer)
        }
        first_only = all(_uses_first_only(modules_of(model, role)) for role in PROMPTS)
        fast = {id(encoder): FastEncoder(encoder, first_only) for encoder in self.encoders.values()}
        self.fast_encoders = list(fast.values())
        self.fast = {role: fast[id(encoder)] for role, encoder in self.encoders.items()}
        self._towers: dict[Role, _Tower | StaticTower] = {
            role: _Tower.of(first, fast[id(self.encoders[role])], _prompt(model, role))
            if role in self.encoders
            else StaticTower(first, _prompt(model, role))
            for role, first in self.first.items()
        }
        self._tokenizers: dict[tuple[Role, float], SideTokenizer] = {}

    def tokenizer(self, role: Role) -> SideTokenizer:
        """Return how texts of a side become ids."""
        key = role, self.first[role].max_seq_length
        if key not in self._tokenizers:
            tower = self._towers[role]
            own = tower.tokenizer() if isinstance(tower, StaticTower) else self._make_tokenizer(role, tower)
            self._tokenizers[key] = own
        return self._tokenizers[key]

    def words(self, role: Role) -> tuple[Any, Any]:
        """Return the encoder of a side, which has its word embeddings, and its tokenizer."""
        tower = self._towers[role]
        return (
            tower.words if isinstance(tower, StaticTower) else (self.first[role].auto_model, self.first[role].tokenizer)
        )

    def __getstate__(self) -> dict[str, object]:
        """Leave tokenizers out of a copy: they call this model."""
        return self.__dict__ | {"_tokenizers": {}}

    def _make_tokenizer(self, role: Role, tower: _Tower) -> SideTokenizer:
        transformer, prompt = self.first[role], tower.prompt
        if role == "query" and transformer.query_expansion is not None:
            return SideTokenizer(self._expanded)

        def library(texts: list[str]) -> list[list[int]]:
            features = self._model.preprocess(texts, prompt=prompt, task=role, processing_kwargs=AS_LISTS)
            ids: list[list[int]] = features["input_ids"]
            return ids

        return faster_tokenizer(transformer.tokenizer, prompt, tower.max_length, library)

    def _expanded(self, texts: list[str]) -> list[NDArray[np.int64]]:
        """Return the ids of queries, with the tokens that expand them."""
        features = self._model.preprocess(texts, prompt=self._towers["query"].prompt, task="query")
        ids, attended = features["input_ids"], features["attention_mask"].bool()
        kept = attended | features.get("query_expansion_positions", False)
        ids = torch.where(attended, ids, ~ids)
        return [row[mask].numpy() for row, mask in zip(ids, kept, strict=True)]

    def encode(self, tokens: Tokens, role: Role) -> dict[str, Any]:
        """Return all outputs of the model for texts of one side."""
        with self._towers[role].reading(tokens) as features:
            output: dict[str, Any] = self._model({**features, "modality": "text"}, task=role)
        return output

    def states(self, tokens: Tokens, role: Role) -> torch.Tensor:
        """Return the last states of the encoder of a side. [texts, width, size]"""
        with self._towers[role].reading(tokens) as features:
            inputs = {name: features[name] for name in ("input_ids", "attention_mask")}
            states: torch.Tensor = self.encoders[role](**inputs).last_hidden_state
        return states


@dataclass(frozen=True)
class _Tower:
    """The transformer of one side: its fast pass, its prompt and its longest input."""

    fast: FastEncoder
    prompt: str
    prompt_length: int | None
    padding: int
    max_length: int

    @classmethod
    def of(cls, transformer: Any, fast: FastEncoder, prompt: str) -> _Tower:
        tokenizer = transformer.tokenizer
        max_length = transformer.max_seq_length or longest_input(tokenizer, transformer.config)
        length = transformer._get_prompt_length(prompt) if prompt else None
        return cls(fast, prompt, length, int(tokenizer.pad_token_id or 0), int(max_length))

    @contextmanager
    def reading(self, tokens: Tokens) -> Iterator[dict[str, Any]]:
        """Yield the features of texts, for a pass through the transformer."""
        prompt = {"prompt_length": self.prompt_length} if self.prompt else {}
        with self.fast.reading(self.inputs(tokens), tokens) as features:
            yield {**features, **prompt}

    def inputs(self, tokens: Tokens) -> EncoderInputs:
        unattended = tokens.ids.some_negative
        return EncoderInputs(
            tokens.concatenated(), tokens.lengths, self.max_length, self.padding, some_unattended=unattended
        )


def encoder_of(transformer: Any) -> Any:
    """Return the encoder of a transformer; of a masked language model, what comes before its head."""
    model = transformer.auto_model
    return model.base_model if transformer.transformer_task == "fill-mask" else model


def modules_of(model: Any, role: Role) -> list[Any]:
    """Return the modules that a text of a side goes through. Raises ValueError if a router has no route for it."""
    modules: list[Any] = []
    for module in model:
        routed = isinstance(module, Router)
        modules += module.sub_modules[module._resolve_route(role, "text")] if routed else [module]
    return modules


def _uses_first_only(modules: Sequence[Any]) -> bool:
    """Return whether the module after the encoder uses only a text's first token.

    If the prompt is not pooled, pooling uses the first token after it.
    """
    pooling = modules[1] if len(modules) > 1 else None
    return isinstance(pooling, Pooling) and pooling.pooling_mode == "cls" and bool(pooling.include_prompt)


def split_towers(model: Any) -> None:
    """Give queries a copy of all modules if they share weights with documents, in the library's own layout.

    A text that is encoded without its side is refused: the documents' tower is the original one.
    """
    queries, documents = modules_of(model, "query"), modules_of(model, "document")
    if _weights(queries) & _weights(documents):
        if _weights(model) > _weights(queries + documents):
            raise UnrankError("the ranker has routes besides those of queries and documents, and would lose them")
        router = Router.for_query_document(copy.deepcopy(queries), documents, default_route=None, allow_empty_key=False)
        del model[:]
        model.append(router)
    for module in model:
        if isinstance(module, Router) and module.default_route != module._resolve_route("query", "text"):
            module.default_route, module.allow_empty_key = None, False


def _settings(module: Any) -> dict[str, object]:
    """Return the settings of a module, without those that say where it is from and how it is stored."""
    found = dict(module.get_config_dict()) | {"module": type(module).__name__}
    if isinstance(module, Transformer):
        found |= {"encoder": {name: value for name, value in module.config.to_dict().items() if name not in UNRELATED}}
    return found


def _weights(modules: Iterable[nn.Module]) -> set[int]:
    return {id(weight) for module in modules for weight in module.parameters()}


def _prompt(model: Any, role: Role) -> str:
    names = [name for name in PROMPTS[role] if name in model.prompts]
    name = names[0] if names else model.default_prompt_name
    return str(model.prompts.get(name) or "") if name else ""


def new_transformer(
    folder: Path, task: Literal["feature-extraction", "fill-mask"] = "feature-extraction"
) -> Transformer:
    """Return an encoder as the first module of a new model; it reads at most `MAX_TOKENS` tokens."""
    encoder = Transformer(str(folder), transformer_task=task, model_kwargs=SAFE["model_kwargs"])
    encoder.max_seq_length = min(MAX_TOKENS, longest_input(encoder.tokenizer, encoder.config))
    return encoder


def check_modules(model: Any, folder: Path, what: str) -> None:
    """Refuse a model of which a side begins neither with a transformer nor with a table of static embeddings."""
    for role in PROMPTS:
        try:
            first = next(iter(modules_of(model, role)), None)
        except ValueError as error:
            raise BadFile(folder, f"{what} whose router has no route for a {role}") from error
        if not isinstance(first, Transformer) and not is_static(first):
            begins = f"{what} that begins with {type(first).__name__}"
            raise BadFile(folder, f"{begins}; unrank reads transformers and static embeddings")
