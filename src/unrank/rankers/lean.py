"""An encoder that runs with less than its library gives it.

On a GPU it computes in bfloat16 and without its padding: the weights stay float32, so that small steps count, and each
pass casts them; the layers of families that allow it see the tokens of all texts end to end. On a CPU it passes over
frozen layers whose result is known. On either the last layer computes no more of a text than is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from unrank.rankers import precision
from unrank.rankers.frozen_start import FrozenStart, beginning_with
from unrank.rankers.gelu import quicken
from unrank.rankers.inputs import Inputs
from unrank.rankers.last_layer import LastLayer, first_tokens_alone
from unrank.rankers.packing import Run, family_of, layers_of, run_packed
from unrank.rankers.precision import LowWeights
from unrank.rankers.replay import Replays
from unrank.rankers.shape import Shape
from unrank.rankers.tokens import Ints, Tokens


class Reading(NamedTuple):
    """What is known of the texts that are read; the inputs, where they need no padding."""

    inputs: Inputs | None = None
    texts: Tokens | None = None
    again: bool = False


_reading: ContextVar[tuple[LeanEncoder | None, Reading]] = ContextVar("reading", default=(None, Reading()))
"""What this thread reads, and with which encoder."""


class LeanEncoder:
    """Takes the place of an encoder's `forward`, and hands back float32."""

    def __init__(self, encoder: nn.Module, first_only: bool = False) -> None:
        self.first_only = first_only
        """Whether all that is read of a text is what its first token became."""
        self._encoder: Any = encoder
        self._low_weights = LowWeights(encoder)
        self._replays: Replays | None = None
        self.start: FrozenStart | None = None
        quicken(encoder)
        if family_of(encoder):
            LastLayer(encoder)
        encoder.forward = self  # also where a library calls `forward` itself

    @property
    def frozen_layers(self) -> int:
        """How many of its first layers stay as they are, with all that stands below them."""
        layers = layers_of(self._encoder)
        if layers is None:
            return 0
        if any(weight.requires_grad for name, weight in self._encoder.named_parameters() if "embedding" in name):
            return 0
        moves = [any(weight.requires_grad for weight in layer.parameters()) for layer in layers.layer]
        return moves.index(True) if any(moves) else len(moves)

    @contextmanager
    def reading(self, inputs: Inputs, texts: Tokens | None = None, again: bool = False) -> Iterator[dict[str, Tensor]]:
        """While these inputs are read. Gives what a library is to hand on to the encoder, which takes the inputs
        themselves where it needs no padding. Without texts nothing is remembered. What will be read again on the way
        back (`torch.utils.checkpoint`) cannot be replayed."""
        encoder, device = self._encoder, self._encoder.device
        known = inputs if family_of(encoder) and not inputs.some_unseen else None
        nobody_reads_padding = known is not None and self.first_only and on_gpu(encoder)
        before = _reading.set((self, Reading(known, texts, again)))
        try:
            yield inputs.stand_ins(device) if nobody_reads_padding else inputs.padded(device)
        finally:
            _reading.reset(before)

    @property
    def _now(self) -> Reading:
        reader, reading = _reading.get()
        return reading if reader is self else Reading()

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        encoder = self._encoder
        plain = type(encoder).forward
        reading = self._now
        if not on_gpu(encoder):
            firsts = first_tokens_alone(self.first_only and reading.inputs is not None)
            with firsts, beginning_with(self.start, reading.texts, encoder):
                return plain(encoder, *inputs, **options)
        if reading.inputs is not None:
            return run_packed(encoder, reading.inputs, self.first_only, self, **options)
        with self._low_weights.in_place():
            output = plain(encoder, *inputs, **options)
        for name, value in output.items():
            if isinstance(value, Tensor) and value.dtype == precision.PRECISION:
                output[name] = value.float()
        return output

    def shape(self, lengths: Ints) -> Shape:
        known = self._replays.shape(lengths) if self._replays and self._may_replay else None
        return known or Shape.around(lengths)

    def play(self, run: Run, inputs: Sequence[Tensor], shape: Shape) -> tuple[Tensor, ...]:
        """Run a pass: as it was recorded, if it was."""
        if self._replays and self._may_replay and (recording := self._replays.find(run, inputs, shape)):
            return self._replays.replay(recording, inputs)
        with self._low_weights.in_place():
            return run(*inputs)

    @property
    def _may_replay(self) -> bool:
        return torch.is_grad_enabled() and not self._now.again

    @contextmanager
    def repeating(self) -> Iterator[None]:
        """While passes of the same few shapes come again and again: they are recorded. What was recorded so far decides
        how a batch is rounded, so nothing is where the same bits are asked for: a run that goes on after a stop has
        recorded less."""
        self._replays = None if torch.are_deterministic_algorithms_enabled() else Replays(self._low_weights)
        try:
            yield
        finally:
            self._replays = None

    def still(self) -> AbstractContextManager[None]:
        """While no weight changes: what is made of them for one pass serves the next."""
        return self._low_weights.still()


def on_gpu(encoder: nn.Module) -> bool:
    return next(encoder.parameters()).is_cuda
