"""Decoder: a language model reads query and document in a template, and its last token gives the score.

The score is the logit of one token less that of another, such as yes less no, or what a dense layer makes of the last
token's state.

Reference: Nogueira et al., Document Ranking with a Pretrained Sequence-to-Sequence Model (2020), for the two tokens;
Zhang et al., Qwen3 Embedding (2025), for a decoder in their place.
Differs: a new ranker has a short template of its own, unless the template of its base is made for pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from sentence_transformers.sentence_transformer.modules import Pooling
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import AutoConfig, AutoTokenizer

from unrank.errors import BadFile, UnrankError
from unrank.rankers.base import Ranker, Role
from unrank.rankers.chat_template import ChatTemplate, library_tokens, template_options, undefined_field
from unrank.rankers.encoder import LOCAL, MAX_TOKENS, SAFE, checked_encoder, encoder_files, longest_input
from unrank.rankers.fast.encoder import FastEncoder
from unrank.rankers.model_folder import loading, save_library_model
from unrank.rankers.size_check import device_memory
from unrank.rankers.tokenisation import EncoderInputs, IdTokenizer, PairTemplate
from unrank.rankers.tokens import Ints, Tokens
from unrank.rankers.vocabulary import BOTH, Vocabulary, encoder_vocabulary

TEMPLATE = (
    "{%- for message in messages if message['role'] == 'system' %}{{ message['content'] + '\\n' }}{% endfor %}"
    "{{- 'Query: ' + (messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first) }}"
    "{{- '\\nDocument: ' + (messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first) }}"
    "{{- '\\nIs the document relevant to the query? Answer yes or no.\\n' }}"
)
"""The template of a new ranker: a prompt, if there is one, the two texts, and a question."""
ANSWERS = (("yes", "no"), ("Yes", "No"), ("Ġyes", "Ġno"), ("▁yes", "▁no"), ("true", "false"))
"""Tokens that a new ranker may score by: the first two that its vocabulary has."""
STATE_BYTES, INNER_BYTES = 40, 8
"""About the bytes that a layer keeps for its gradients, for each number of a token's state and of its inner state."""
STATES_SHARE = 0.5
"""The share of a device's memory that may hold what is kept for gradients."""
SHAPES = "Transformer + LogitScore, Transformer + Pooling + Dense, or one sequence classifier"


class DecoderRanker(Ranker):
    """A `CrossEncoder` of sentence-transformers over a causal language model."""

    kind = "decoder"
    reads_in_pieces = True
    """Whether pairs whose states would fill the memory are read in several passes."""

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model.eval()
        self._transformer: Any = model[0]
        self._answers = _answers(model)
        self._prompt = str(model.prompts.get(model.default_prompt_name or "", ""))
        self._modality = "message" if "message" in self._transformer.modality_config else "text"
        self._reader = _reader(model, self._modality, self._prompt)
        self._fast = FastEncoder(self._transformer.model.base_model, last_only=_reads_last_only(model))

    @property
    def vocabularies(self) -> Sequence[Vocabulary]:
        """The input embeddings. Rows of the template and of the answers are touched by every pair."""
        (found,) = encoder_vocabulary(
            dict.fromkeys(BOTH, self._transformer.model), dict.fromkeys(BOTH, self.model.tokenizer)
        )
        return [replace(found, special=found.special | self._reader.fixed | {*self._answers})]

    @property
    def fast_encoders(self) -> Sequence[FastEncoder]:
        return [self._fast]

    @classmethod
    def base_files(cls, base: str | None) -> list[Path]:
        return [] if base is None else encoder_files(base)

    @classmethod
    def create(cls, base: str | None) -> Self:
        if base is None:
            raise UnrankError("a decoder starts from a language model: give its folder or hub id as --base")
        folder = checked_encoder(base)
        with loading(folder, "a language model"):
            tokenizer = AutoTokenizer.from_pretrained(str(folder), **LOCAL)
            config = AutoConfig.from_pretrained(str(folder), **LOCAL)
        architecture = str((config.architectures or ["of unknown kind"])[0])
        if not architecture.endswith("ForCausalLM"):
            raise BadFile(folder, f"not a causal language model ({architecture}); a decoder starts from *ForCausalLM")
        vocabulary = tokenizer.get_vocab()
        answers = [pair for pair in ANSWERS if all(word in vocabulary for word in pair)]
        if not answers:
            words = ", ".join(f"{yes}/{no}" for yes, no in ANSWERS)
            raise BadFile(folder, f"its tokenizer knows none of the answers {words} as single tokens")
        template = tokenizer.chat_template
        own = {} if isinstance(template, str) and is_for_pairs(template) else {"chat_template": TEMPLATE}
        with loading(folder, "a language model"):
            transformer = Transformer(
                str(folder),
                transformer_task="text-generation",
                model_kwargs={**SAFE["model_kwargs"], **LOCAL},
                processor_kwargs={**LOCAL, **own},
                config_kwargs=dict(LOCAL),
            )
            score = LogitScore(*(vocabulary[word] for word in answers[0]))
            model = CrossEncoder(modules=[transformer, score], activation_fn=nn.Identity(), device="cpu")
            _give_padding(model)
        _check_model(model, folder)
        with loading(folder, "a language model"):
            longest = longest_input(model.tokenizer, model.config)
            model.max_seq_length = min(2 * MAX_TOKENS, longest)
            around = _reader(model, "message", "").lengths(np.zeros(1, np.int64), np.zeros(1, np.int64))
            model.max_seq_length = min(MAX_TOKENS + int(around[0]), longest)
            return cls(model)

    @classmethod
    def load(cls, folder: Path) -> Self:
        with loading(folder, "a decoder"):
            model = CrossEncoder(str(folder), device="cpu", **SAFE)
            _give_padding(model)
        _check_model(model, folder)
        with loading(folder, "a decoder"):
            return cls(model)

    def save(self, folder: Path) -> None:
        save_library_model(self.model, folder)

    def tokenize(self, texts: Sequence[str], role: Role) -> Tokens:
        return self._reader.tokenize(texts, role)

    def tokens_fingerprint(self, role: Role) -> str | None:
        return self._reader.fingerprint(role)

    def lengths(self, queries: Ints, documents: Ints) -> Ints:
        return self._reader.lengths(queries, documents)

    def forward(self, queries: Tokens, documents: Tokens) -> Tensor:
        pieces = self._pieces(self.lengths(queries.lengths, documents.lengths))
        if len(pieces) == 1:
            return self._read(queries, documents)
        reads = [partial(self._read, queries.take(piece), documents.take(piece), True) for piece in pieces]
        return torch.cat([self._fast.recompute(read) for read in reads])

    def _pieces(self, lengths: Ints) -> list[Ints]:
        """Return the places of pairs that are read at once: all, unless their states would fill the memory.

        The states of a piece are computed again for its gradients (gradient checkpointing).
        """
        if not self.reads_in_pieces or not torch.is_grad_enabled():
            return [np.arange(len(lengths))]
        config = self._transformer.model.config.get_text_config()
        inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        bytes_a_token = config.num_hidden_layers * (STATE_BYTES * config.hidden_size + INNER_BYTES * inner)
        most = max(1, int(STATES_SHARE * device_memory(self.device)) // bytes_a_token)
        return np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(np.cumsum(lengths) // most)) + 1)

    def _read(self, queries: Tokens, documents: Tokens, recomputed: bool = False) -> Tensor:
        inputs = self._reader.join(queries, documents, partial(library_tokens, self.model, self._prompt))
        if not self._fast.enabled:
            return self._scores(self.model(self._features(inputs.padded(self.device, left=True))))
        with self._fast.reading(inputs, recomputed=recomputed) as features, self._answers_only():
            given = self._transformer(self._features(features))
        if self._answers:
            logits = given["causal_logits"][:, -1].float()
            columns = range(len(self._answers)) if logits.shape[1] == len(self._answers) else self._answers
            first, *second = [logits[:, column] for column in columns]
            scores: Tensor = first - second[0] if second else first
            return scores
        if self._fast.last_only:
            states = given["token_embeddings"]
            given["attention_mask"] = torch.ones(states.shape[:2], dtype=torch.int64, device=states.device)
        for module in list(self.model)[1:]:
            given = module(given)
        return self._scores(given)

    def _features(self, features: dict[str, Tensor]) -> dict[str, Any]:
        kept = {"logits_to_keep": 1} if self._answers else {}
        return {**features, **kept, "use_cache": False, "modality": self._modality}

    def _scores(self, given: dict[str, Tensor]) -> Tensor:
        return given["scores"].float().reshape(-1)

    @contextmanager
    def _answers_only(self) -> Iterator[None]:
        """Let the language model compute the logits of the answers and of no other token."""
        head: Any = self._transformer.model.get_output_embeddings() if self._answers else None
        if type(head) is not nn.Linear:
            yield
            return

        def forward(states: Tensor) -> Tensor:
            rows = torch.stack([head.weight[row] for row in self._answers])
            return linear(states, rows, head.bias if head.bias is None else head.bias[list(self._answers)])

        vars(head)["forward"] = forward
        try:
            yield
        finally:
            del vars(head)["forward"]

    def library_scores(self, queries: Sequence[str], documents: Sequence[str]) -> list[float]:
        pairs = list(zip(queries, documents, strict=True))
        return [float(score) for score in self.model.predict(pairs, activation_fn=nn.Identity())]


class PlainPairs:
    """Pairs of a model without a chat template: the tokenizer joins them, and the prompt is before the query."""

    fixed: frozenset[int] = frozenset()

    def __init__(self, tokenizer: Any, prompt: str, max_length: int) -> None:
        self._tokenizer, self._prompt = IdTokenizer(tokenizer), prompt
        self._template = PairTemplate.of(tokenizer, max_length)

    def __deepcopy__(self, memo: dict[int, Any]) -> PlainPairs:
        return self

    def tokenize(self, texts: Sequence[str], role: Role) -> Tokens:
        prompt = self._prompt if role == "query" else ""
        return self._tokenizer([prompt + text for text in texts], self._template.max_length)

    def fingerprint(self, role: Role) -> str | None:
        return self._tokenizer.fingerprint(self._prompt if role == "query" else "", self._template.max_length)

    def lengths(self, queries: Ints, documents: Ints) -> Ints:
        whole: Ints = (queries + documents + self._template.special).clip(1, self._template.max_length)
        return whole

    def join(self, queries: Tokens, documents: Tokens, library: object) -> EncoderInputs:
        return self._template.join(queries, documents)


def is_for_pairs(template: str) -> bool:
    """Return whether a chat template is made for a query and a document."""
    return "query" in template and "document" in template


def _reader(model: CrossEncoder, modality: str, prompt: str) -> ChatTemplate | PlainPairs:
    if modality == "message":
        return ChatTemplate(model[0], prompt, partial(library_tokens, model, prompt))
    return PlainPairs(model.tokenizer, prompt, int(model.max_seq_length))


def _answers(model: CrossEncoder) -> tuple[int, ...]:
    """Return the ids of the tokens whose logits give the score; nothing if a layer gives it."""
    last = model[-1]
    if not isinstance(last, LogitScore):
        return ()
    return (last.true_token_id,) if last.false_token_id is None else (last.true_token_id, last.false_token_id)


def _reads_last_only(model: CrossEncoder) -> bool:
    """Return whether the score depends on no state but that of the last token."""
    if len(model) == 1:
        return False  # a sequence classifier looks for the last token itself
    return isinstance(model[-1], LogitScore) or model[1].pooling_mode == "lasttoken"


def _give_padding(model: CrossEncoder) -> None:
    """Pad with the token that ends a text if the tokenizer has no token for it: the library would not score a pair."""
    tokenizer: Any = model.tokenizer
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id


def _check_model(model: CrossEncoder, folder: Path) -> None:
    """Refuse a model that is not a decoder with one score, or whose template or tokens do not fit it."""
    modules: list[Any] = list(model)
    tasks = {1: "sequence-classification", 2: "text-generation"}
    task = tasks.get(len(modules), "feature-extraction")
    scored = len(modules) == 1 or (len(modules) == 2 and isinstance(modules[1], LogitScore))
    pooled = len(modules) > 2 and isinstance(modules[1], Pooling) and isinstance(modules[-1], Dense)
    if not (scored or pooled) or not isinstance(modules[0], Transformer) or modules[0].transformer_task != task:
        names = " + ".join(type(module).__name__ for module in modules)
        raise BadFile(folder, f"a cross-encoder of {names}; unrank reads {SHAPES}")
    if model.num_labels != 1:
        raise BadFile(folder, f"a decoder with {model.num_labels} outputs; a ranker has exactly one")
    known, answers = len(model.tokenizer), _answers(model)
    for answer in answers:
        if not isinstance(answer, int):
            raise BadFile(folder, f"scores by the token {answer!r}, where a token's number must be")
        if not 0 <= answer < known or model.tokenizer.convert_ids_to_tokens(answer) is None:
            raise BadFile(folder, f"scores by token {answer:,}, which its tokenizer does not know; it has {known:,}")
    if len(set(answers)) < len(answers):
        raise BadFile(folder, f"scores by token {answers[0]:,} as yes and as no, so every score would be 0")
    if "message" not in modules[0].modality_config:
        return
    if failure := modules[0].input_formatter.pair_roles_failure(template_options(modules[0])):
        reason = " ".join(failure.split())[:160]
        raise BadFile(folder, f"its chat template cannot hold a query and a document ({reason})")
    if missing := undefined_field(modules[0]):
        raise BadFile(folder, f"its chat template needs more than a query and a document ({missing})")
