"""Texts laid end to end: an encoder sees no padding, and a token attends to those of its own text.

For encoders of the families listed here, whose layers know nothing of positions. What they compute is written out in
`blocks.py`; the embeddings and whatever stands after the layers are the family's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from unrank.rankers.blocks import BERT, DISTILBERT, Names, Spans, block
from unrank.rankers.staging import to_device
from unrank.rankers.tokens import Ints


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


def run_packed(encoder: Any, lengths: Ints, first_only: bool, input_ids: Tensor, **options: Any) -> Any:
    """What the encoder gives for padded texts of these lengths, computed without the padding.

    Of each text its first token alone, if no more is read: [texts, 1, size] in place of [texts, width, size].
    """
    packing = _Packing(lengths, input_ids)
    family = FAMILIES[encoder.config.model_type]
    first = encoder.config.pad_token_id + 1 if family.positions_after_padding else 0
    packed = {"input_ids": packing.pack(input_ids), "position_ids": packing.place.unsqueeze(0) + first}
    if options.get("token_type_ids") is not None:
        packed["token_type_ids"] = packing.pack(options["token_type_ids"])
    with _layers_replaced(encoder, packing.spans, family, first_only):
        output = type(encoder).forward(encoder, **{**options, **packed, "attention_mask": None})
    output.last_hidden_state = packing.unpack(output.last_hidden_state, first_only)
    if getattr(encoder, "pooler", None) is not None:
        output.pooler_output = encoder.pooler(output.last_hidden_state)
    return output


class _Packing:
    """Where each token of a padded batch stands when all texts are laid end to end.

    What is missing to a round number of tokens is filled with texts that nobody reads: memory that was used for one
    batch then fits the next.
    """

    def __init__(self, lengths: Ints, padded: Tensor) -> None:
        self._tokens, self._shape = int(lengths.sum()), padded.shape
        filled = filled_up(lengths)
        self._all = int(filled.sum())
        device = padded.device
        starts = to_device(np.concatenate([[0], np.cumsum(filled)]).astype(np.int32), device)
        self.spans = Spans(starts, int(lengths.max()))
        text = torch.repeat_interleave(to_device(filled, device), output_size=self._all)
        self.place = torch.arange(self._all, device=device) - starts[text]
        self._row = (text * padded.shape[1] + self.place)[: self._tokens]

    def pack(self, padded: Tensor) -> Tensor:
        """[texts, width] -> [1, tokens]"""
        packed = padded.new_zeros(1, self._all)
        packed[0, : self._tokens] = padded.flatten()[self._row]
        return packed

    def unpack(self, packed: Tensor, first_only: bool) -> Tensor:
        """[1, tokens, size] -> [texts, width, size]; where there are first tokens alone -> [texts, 1, size]"""
        texts, width = self._shape
        if first_only:
            return packed[0, :texts].unsqueeze(1)
        padded = packed.new_zeros(texts * width, packed.shape[2])
        return padded.index_copy(0, self._row, packed[0, : self._tokens]).view(texts, width, -1)


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


def filled_up(lengths: Ints) -> Ints:
    """The lengths of texts, and of others that fill their sum up to a round number; none longer than the longest.

    >>> filled_up(np.array([100, 120])).tolist(), filled_up(np.array([1000, 500, 600])).tolist()
    ([100, 120, 4], [1000, 500, 600, 76])
    """
    tokens, longest = int(lengths.sum()), int(lengths.max())
    step = max(32, 1 << tokens.bit_length() >> 5)
    whole, rest = divmod(-tokens % step, longest)
    return np.concatenate([lengths, [longest] * whole, [rest] if rest else []]).astype(np.int64)
