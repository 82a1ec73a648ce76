"""What the frozen first layers of an encoder make of a text, computed once a text and kept.

For small jobs on a CPU: where only the last layers move, a step and a check need the others no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from unrank.rankers.packing import layers_of
from unrank.rankers.tokens import Tokens

ROOM = 1 << 30
"""Bytes that may be kept; texts beyond that are computed each time."""


class FrozenStart:
    """States after the last frozen layer, by the tokens of their text."""

    def __init__(self, frozen: int) -> None:
        self.frozen = frozen
        self._states: dict[bytes, Tensor] = {}
        self._room = ROOM

    def knows(self, texts: Tokens) -> bool:
        return all(key in self._states for key in _keys(texts))

    def padded(self, texts: Tokens, width: int) -> Tensor:
        """[texts, width, size]"""
        states = [self._states[key] for key in _keys(texts)]
        whole = states[0].new_zeros(len(states), width, states[0].shape[1])
        for row, state in zip(whole, states, strict=True):
            row[: len(state)] = state
        return whole

    def keep(self, texts: Tokens, padded: Tensor) -> None:
        for key, length, row in zip(_keys(texts), texts.lengths, padded, strict=True):
            state = row[:length].detach().clone()
            if key not in self._states and self._room >= state.nbytes:
                self._states[key] = state
                self._room -= state.nbytes


@contextmanager
def beginning_with(start: FrozenStart | None, texts: Tokens | None, encoder: Any) -> Iterator[None]:
    """Let the encoder pass over its frozen layers where they were computed before, else keep what they give."""
    if start is None or texts is None:
        yield
        return
    layers = layers_of(encoder)
    assert layers is not None
    whole: Any = layers.layer
    if start.knows(texts):
        layers.layer = whole[start.frozen :]
        hook = layers.register_forward_pre_hook(_put(start, texts), with_kwargs=True)
    else:
        hook = whole[start.frozen - 1].register_forward_hook(_take(start, texts))
    try:
        yield
    finally:
        hook.remove()
        layers.layer = whole


def _put(start: FrozenStart, texts: Tokens) -> Any:
    def put(layers: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
        given: Tensor = options.pop("hidden_states", None) if not inputs else inputs[0]
        return (start.padded(texts, given.shape[1]), *inputs[1:]), options

    return put


def _take(start: FrozenStart, texts: Tokens) -> Any:
    def take(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor | tuple[Tensor, ...]) -> None:
        start.keep(texts, output if isinstance(output, Tensor) else output[0])

    return take


def _keys(texts: Tokens) -> list[bytes]:
    return [text.tobytes() for text in texts]
