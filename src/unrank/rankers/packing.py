"""Texts laid end to end: an encoder sees no padding, and a token attends to those of its own text.

For encoders of the families listed here, whose layers know nothing of positions. What they compute is written out in
`blocks.py`; the embeddings and whatever stands after the layers are the family's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    BaseModelOutputWithPoolingAndCrossAttentions,
)

from unrank.rankers.blocks import BERT, DISTILBERT, Names, Spans, block
from unrank.rankers.shape import Shape
from unrank.rankers.staging import to_device
from unrank.rankers.tokens import Ints

Run = Callable[..., tuple[Tensor, ...]]


class Player(Protocol):
    """Whoever runs what lies between the packing and the unpacking."""

    def shape(self, lengths: Ints) -> Shape:
        """The shape that texts of these lengths are filled up to."""

    def play(self, run: Run, inputs: Sequence[Tensor], shape: Shape) -> tuple[Tensor, ...]:
        """Run a function on tensors of a shape."""


@dataclass(frozen=True)
class Family:
    """What differs among encoders that are otherwise alike."""

    layers: str
    names: Names
    positions_after_padding: bool = False
    """Whether a text's positions begin after the id of padding."""


FAMILIES = {
    "bert": Family("encoder", BERT),
    "camembert": Family("encoder", BERT, positions_after_padding=True),
    "distilbert": Family("transformer", DISTILBERT),
    "electra": Family("encoder", BERT),
    "roberta": Family("encoder", BERT, positions_after_padding=True),
    "xlm-roberta": Family("encoder", BERT, positions_after_padding=True),
}
NO_MASK = "unrank_packed"
"""The name of an attention that needs no mask, so that none is made."""


def family_of(encoder: Any) -> Family | None:
    return FAMILIES.get(encoder.config.model_type)


def layers_of(encoder: Any) -> Any | None:
    """The module that holds the layers, of a family that is listed."""
    family = family_of(encoder)
    return getattr(encoder, family.layers) if family else None


def run_packed(
    encoder: Any, lengths: Ints, first_only: bool, player: Player, input_ids: Tensor, **options: Any
) -> BaseModelOutputWithPoolingAndCrossAttentions:
    """What the encoder gives for padded texts of these lengths, computed without the padding.

    Of each text its first token alone, if no more is read: [texts, 1, size] in place of [texts, width, size].
    """
    shape = player.shape(lengths)
    packing = _Packing(lengths, shape, input_ids)
    family = FAMILIES[encoder.config.model_type]
    first = encoder.config.pad_token_id + 1 if family.positions_after_padding else 0

    def run(ids: Tensor, starts: Tensor, types: Tensor | None = None) -> tuple[Tensor, ...]:
        spans = Spans(starts, shape.longest)
        last = encoder.config.max_position_embeddings - 1  # texts that nobody reads may be longer
        given = {"input_ids": ids, "position_ids": (first + _places(spans, shape.tokens)).clamp(max=last)}
        if types is not None:
            given["token_type_ids"] = types
        with _layers_replaced(encoder, spans, family, first_only):
            output = type(encoder).forward(encoder, **{**options, **given, "attention_mask": None})
        states = output.last_hidden_state[0]
        if getattr(encoder, "pooler", None) is None:
            return (states.float(),)
        firsts = states if first_only else states[starts[:-1]]
        return states.float(), encoder.pooler(firsts.unsqueeze(1)).float()

    inputs = [packing.pack(input_ids), packing.starts]
    if options.get("token_type_ids") is not None:
        inputs.append(packing.pack(options["token_type_ids"]))
    states, *pooled = player.play(run, inputs, shape)
    output = BaseModelOutputWithPoolingAndCrossAttentions(last_hidden_state=packing.unpack(states, first_only))
    if pooled:
        output.pooler_output = pooled[0][: len(lengths)]
    return output


def _places(spans: Spans, tokens: int) -> Tensor:
    """The place of each token in its text. [1, tokens]"""
    text = torch.repeat_interleave(spans.starts.diff(), output_size=tokens)
    return (torch.arange(tokens, device=text.device) - spans.starts[text]).unsqueeze(0)


class _Packing:
    """Where each token of a padded batch stands when all texts are laid end to end, filled up to a shape: what was made
    for one batch, memory and recordings, then serves the next."""

    def __init__(self, lengths: Ints, shape: Shape, padded: Tensor) -> None:
        self._tokens, self._padded = int(lengths.sum()), padded.shape
        filled = shape.filled_up(lengths)
        self._all = shape.tokens
        ends = np.cumsum(filled)
        self.starts = to_device(np.concatenate([[0], ends]).astype(np.int32), padded.device)
        shift = np.arange(len(lengths)) * padded.shape[1] - (ends - filled)[: len(lengths)]
        self._row = to_device(np.repeat(shift, lengths) + np.arange(self._tokens), padded.device)

    def pack(self, padded: Tensor) -> Tensor:
        """[texts, width] -> [1, tokens]"""
        return pad(padded.flatten()[self._row], (0, self._all - self._tokens)).unsqueeze(0)

    def unpack(self, packed: Tensor, first_only: bool) -> Tensor:
        """[tokens, size] -> [texts, width, size]; where there are first tokens alone -> [texts, 1, size]"""
        texts, width = self._padded
        if first_only:
            return packed[:texts].unsqueeze(1)
        padded = packed.new_zeros(texts * width, packed.shape[1])
        return padded.index_copy(0, self._row, packed[: self._tokens]).view(texts, width, -1)


@contextmanager
def _layers_replaced(encoder: Any, spans: Spans, family: Family, first_only: bool) -> Iterator[None]:
    layers, config = getattr(encoder, family.layers), encoder.config
    heads = config.num_attention_heads

    def forward(hidden_states: Tensor, *_: Any, **__: Any) -> BaseModelOutputWithPastAndCrossAttentions:
        states = hidden_states[0]
        for layer in layers.layer:
            states = block(states, layer, family.names, heads, spans, first_only and layer is layers.layer[-1])
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=states.unsqueeze(0))

    usual, config._attn_implementation = config._attn_implementation, NO_MASK
    layers.forward = forward
    try:
        yield
    finally:
        config._attn_implementation = usual
        del layers.forward
