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
from transformers.modeling_outputs import (
    BaseModelOutputWithPastAndCrossAttentions,
    BaseModelOutputWithPoolingAndCrossAttentions,
)

from unrank.rankers.blocks import BERT, DISTILBERT, Names, Spans, block, has_kernels
from unrank.rankers.inputs import Inputs
from unrank.rankers.shape import Shape
from unrank.rankers.staging import to_device
from unrank.rankers.tokens import Ints, places

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
    encoder: Any, inputs: Inputs, first_only: bool, player: Player, **options: Any
) -> BaseModelOutputWithPoolingAndCrossAttentions:
    """What the encoder gives for these inputs, computed without padding: [texts, width, size].

    Of each text its first token alone, if no more is read: [texts, 1, size].
    """
    shape, texts = player.shape(inputs.lengths), len(inputs.lengths)
    family = FAMILIES[encoder.config.model_type]
    first = encoder.config.pad_token_id + 1 if family.positions_after_padding else 0

    def run(packed: Tensor) -> tuple[Tensor, ...]:
        rows, starts = packed[: -shape.texts - 1], packed[-shape.texts - 1 :]
        spans = Spans(starts, shape.longest)
        last = encoder.config.max_position_embeddings - 1  # texts that nobody reads may be longer
        given = dict(zip(("input_ids", "token_type_ids"), rows.view(-1, 1, shape.tokens), strict=False))
        given["position_ids"] = (first + _places(spans, shape.tokens)).clamp(max=last)
        with _layers_replaced(encoder, spans, family, first_only), _embeddings_replaced(encoder, **given):
            output = type(encoder).forward(encoder, **{**options, **given, "attention_mask": None})
        states = output.last_hidden_state[0]
        if getattr(encoder, "pooler", None) is None:
            return (states.float(),)
        firsts = states if first_only else states[starts[:-1]]
        return states.float(), encoder.pooler(firsts.unsqueeze(1)).float()

    states, *pooled = player.play(run, [inputs.packed(shape, encoder.device)], shape)
    states = states[:texts].unsqueeze(1) if first_only else _padded(states, inputs)
    output = BaseModelOutputWithPoolingAndCrossAttentions(last_hidden_state=states)
    if pooled:
        output.pooler_output = pooled[0][:texts]
    return output


def _places(spans: Spans, tokens: int) -> Tensor:
    """The place of each token in its text. [1, tokens]"""
    text = torch.repeat_interleave(spans.starts.diff(), output_size=tokens)
    return (torch.arange(tokens, device=text.device) - spans.starts[text]).unsqueeze(0)


def _padded(states: Tensor, inputs: Inputs) -> Tensor:
    """[tokens, size] -> [texts, width, size]"""
    texts, width = len(inputs.lengths), inputs.width
    rows = to_device(places(width * np.arange(texts), inputs.lengths), states.device)
    padded = states.new_zeros(texts * width, states.shape[1])
    return padded.index_copy(0, rows, states[: len(inputs.ids)]).view(texts, width, -1)


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


@contextmanager
def _embeddings_replaced(
    encoder: Any, input_ids: Tensor, position_ids: Tensor, token_type_ids: Tensor | None = None
) -> Iterator[None]:
    """While one kernel embeds these tokens, where there is one and no way back."""
    if torch.is_grad_enabled() or not has_kernels(input_ids.device):
        yield
        return
    from unrank.rankers.fused import embed

    types = None if token_type_ids is None else token_type_ids[0]

    def forward(*_: Any, **__: Any) -> Tensor:
        return embed(input_ids[0], position_ids[0], types, encoder.embeddings).unsqueeze(0)

    encoder.embeddings.forward = forward
    try:
        yield
    finally:
        del encoder.embeddings.forward
