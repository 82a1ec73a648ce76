"""The last layer of an encoder on a CPU, where all that is read of a text is its first token: it computes no other.

What runs without padding does so by itself (`packing.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor

from unrank.rankers.blocks import first_tokens
from unrank.rankers.packing import FAMILIES, layers_of

_first_tokens_alone = ContextVar("first_tokens_alone", default=False)


class LastLayer:
    """Takes the place of the last layer's `forward`: of padded texts it computes the first token alone, where whoever
    calls the encoder reads no other."""

    def __init__(self, encoder: Any) -> None:
        layers = layers_of(encoder)
        assert layers is not None
        self._layer, self._heads = layers.layer[-1], encoder.config.num_attention_heads
        self._names = FAMILIES[encoder.config.model_type].names
        self._layer.forward = self

    def __call__(self, hidden_states: Tensor, attention_mask: Tensor | None = None, *more: Any, **options: Any) -> Any:
        if not _first_tokens_alone.get():
            return type(self._layer).forward(self._layer, hidden_states, attention_mask, *more, **options)
        return first_tokens(hidden_states, self._layer, self._names, self._heads, attention_mask)


@contextmanager
def first_tokens_alone(wanted: bool) -> Iterator[None]:
    """While this thread reads nothing else of what an encoder gives."""
    before = _first_tokens_alone.set(wanted)
    try:
        yield
    finally:
        _first_tokens_alone.reset(before)
