"""Texts laid end to end: the layers of an encoder see no padding, and a token attends to those of its own text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from unrank.rankers.staging import to_device
from unrank.rankers.tokens import Ints

PACKED = "unrank_packed"
LAYERS = {
    "bert": "encoder",
    "camembert": "encoder",
    "distilbert": "transformer",
    "electra": "encoder",
    "roberta": "encoder",
    "xlm-roberta": "encoder",
}
"""Families whose layers know nothing of positions, and what they call the module that holds them."""


def layers_of(encoder: Any) -> Any | None:
    """The module that holds the layers, of a family that is listed."""
    name = LAYERS.get(encoder.config.model_type)
    return getattr(encoder, name) if name else None


@contextmanager
def packed(encoder: Any, lengths: Ints | None) -> Iterator[None]:
    """Let the layers see no padding, where lengths are known and the family allows it."""
    config = encoder.config
    layers = layers_of(encoder)
    if lengths is None or layers is None:
        yield
        return
    packing = _Packing(lengths, encoder.device)
    usual, config._attn_implementation = config._attn_implementation, PACKED
    hooks = (
        layers.register_forward_pre_hook(packing.pack, with_kwargs=True),
        layers.register_forward_hook(packing.unpack),
    )
    try:
        yield
    finally:
        config._attn_implementation = usual
        for hook in hooks:
            hook.remove()


class _Packing:
    """Where each token of a padded batch stands when all texts are laid end to end.

    What is missing to a round number of tokens is filled with texts that nobody reads: memory that was used for one
    batch then fits the next.
    """

    def __init__(self, lengths: Ints, device: torch.device) -> None:
        self._tokens, self._longest = int(lengths.sum()), int(lengths.max())
        filled = filled_up(lengths)
        self._all = int(filled.sum())
        self._lengths = to_device(filled, device)
        self._starts = to_device(np.concatenate([[0], np.cumsum(filled)]).astype(np.int32), device)

    def pack(self, layers: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
        states: Tensor = options.pop("hidden_states", None) if not inputs else inputs[0]
        self._shape = states.shape
        text = torch.repeat_interleave(self._lengths, output_size=self._all)
        place = torch.arange(self._all, device=states.device) - self._starts[text]
        row = text * states.shape[1] + place
        self._row = row[: self._tokens]
        row = torch.cat([self._row, torch.zeros_like(row[self._tokens :])])
        options |= {"cu_seq_lens_q": self._starts, "max_length_q": self._longest}
        return (states.flatten(0, 1)[row].unsqueeze(0), *inputs[1:]), options

    def unpack(self, layers: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        packed: Tensor = output.last_hidden_state[0, : self._tokens]
        padded = packed.new_zeros(self._shape[0] * self._shape[1], self._shape[2])
        output.last_hidden_state = padded.index_copy(0, self._row, packed).view(self._shape)
        return output


def filled_up(lengths: Ints) -> Ints:
    """The lengths of texts, and of others that fill their sum up to a round number; none longer than the longest.

    >>> filled_up(np.array([100, 120])).tolist(), filled_up(np.array([1000, 500, 600])).tolist()
    ([100, 120, 4], [1000, 500, 600, 76])
    """
    tokens, longest = int(lengths.sum()), int(lengths.max())
    step = max(32, 1 << tokens.bit_length() >> 5)
    whole, rest = divmod(-tokens % step, longest)
    return np.concatenate([lengths, [longest] * whole, [rest] if rest else []]).astype(np.int64)


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: None, *, cu_seq_lens_q: Tensor,
    max_length_q: int, **_: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Each token to those of its own text. [1, heads, tokens, width] -> [1, tokens, heads, width]"""
    query, key, value = (side[0].transpose(0, 1) for side in (query, key, value))
    states = varlen_attn(query, key, value, cu_seq_lens_q, cu_seq_lens_q, max_length_q, max_length_q)
    assert isinstance(states, Tensor)
    return states.unsqueeze(0), None


AttentionInterface.register(PACKED, _attend)
