"""Passes through an encoder that are recorded once and then replayed.

A pass and its way back are hundreds of kernels, and a GPU is done with most of them sooner than the next can be
launched. Recorded as a graph they are launched as one. A recording is good for one shape; rounded sizes
(`shape.py`) make few of them.
"""

from __future__ import annotations

import copy
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unrank.rankers.packing import Run
from unrank.rankers.precision import LowWeights
from unrank.rankers.shape import Shape
from unrank.rankers.tokens import Ints

SEEN_BEFORE = 1
"""A shape that was seen as often as this is recorded: its kernels are compiled by then, and it may well come again."""
MOST = 24
"""How many recordings an encoder keeps."""
AT_ONCE = 4
"""How many passes may wait for their way back at once. Those that never do share their memory."""
MOST_TOKENS = 1 << 17
"""Larger passes keep a GPU busy as they are."""
SPARE = 0.08
"""Nothing is recorded where less of the GPU's memory than this is free."""


class Tape:
    """Where passes are recorded of which never more than one waits for its way back: they use the same memory."""

    def __init__(self) -> None:
        self._pool: Any = None
        self._stream: torch.cuda.Stream | None = None
        self._buffers: dict[int, tuple[Tensor, list[Tensor]]] = {}

    def gradient_buffer(self, weights: LowWeights) -> tuple[Tensor, list[Tensor]]:
        """Room for the gradient of all weights, which is taken away before the next pass goes back."""
        if weights.identity not in self._buffers:
            self._buffers = {weights.identity: weights.gradient_buffer()}
        return self._buffers[weights.identity]

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Note the work without doing it; what is given back does it, on the same memory each time."""
        graph = torch.cuda.CUDAGraph()
        if self._stream is None:  # what was allocated on one stream is used again on no other
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            self._pool = torch.cuda.graph_pool_handle()
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=self._pool)
            try:
                work()
            except BaseException:
                with suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()
        return graph.replay


class Replays:
    """What was recorded of an encoder's passes."""

    def __init__(self, weights: LowWeights) -> None:
        self._weights = weights
        self._seen: Counter[Hashable] = Counter()
        self._recorded: dict[Hashable, dict[Shape, _Recording]] = defaultdict(dict)
        self._under_way: weakref.WeakSet[_Ticket] = weakref.WeakSet()
        self._tapes = [Tape() for _ in range(AT_ONCE)]
        self._full = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Replays:
        return Replays(copy.deepcopy(self._weights, memo))

    def shape(self, lengths: Ints) -> Shape | None:
        """The smallest recorded one that holds texts of these lengths."""
        return min((shape for shape in self._recorded[self._key] if shape.holds(lengths)), default=None)

    def find(self, run: Run, inputs: Sequence[Tensor], shape: Shape) -> _Recording | None:
        """A recording of `run` on inputs of a shape; made now, if the shape keeps coming."""
        tape, key = self._free_tape, self._key
        if tape is None or shape.tokens > MOST_TOKENS or not self._weights.moving:
            return None
        recorded = self._recorded[key]
        if shape not in recorded:
            self._seen[key, shape] += 1
            if self._seen[key, shape] > SEEN_BEFORE and self._has_room():
                try:
                    recorded[shape] = _Recording(run, inputs, self._weights, self._tapes[tape])
                except torch.OutOfMemoryError:
                    self._full = True
        return recorded.get(shape)

    def replay(self, recording: _Recording, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        assert self._free_tape is not None
        ticket = _Ticket(self._free_tape)
        self._under_way.add(ticket)
        made: tuple[Tensor, ...] = _Replay.apply(self._weights.handle(), recording, ticket, *inputs)  # type: ignore[no-untyped-call]
        return made

    @property
    def _free_tape(self) -> int | None:
        """The first on which no pass waits for its way back."""
        taken = {ticket.tape for ticket in self._under_way}
        return next((tape for tape in range(AT_ONCE) if tape not in taken), None)

    @property
    def _key(self) -> Hashable:
        return self._free_tape, self._weights.identity

    def _has_room(self) -> bool:
        if self._full or sum(map(len, self._recorded.values())) >= MOST:
            return False
        if not torch.cuda.is_available():
            return True
        free, whole = torch.cuda.mem_get_info()
        if free < SPARE * whole:  # what is kept for later use cannot be had while a pass is recorded
            torch.cuda.empty_cache()
            free, whole = torch.cuda.mem_get_info()
        self._full = free < SPARE * whole
        return not self._full


@dataclass(frozen=True, eq=False)
class _Ticket:
    """Lives as long as a replayed pass may still be gone back over; until then its tape is taken."""

    tape: int


class _Recording:
    """A pass and its way back on inputs of one shape."""

    def __init__(self, run: Run, inputs: Sequence[Tensor], weights: LowWeights, tape: Tape) -> None:
        self._run, self._weights = run, weights
        self._inputs = [tensor.clone() for tensor in inputs]
        self._gradient, self._places = tape.gradient_buffer(weights)
        self._forward = tape.record(self._pass)
        self._given = [torch.zeros_like(tensor) for tensor in self.made]
        self._backward = tape.record(self._pass_back)
        if self._inputs[0].is_cuda:
            del self._kept, self._low  # the recording holds what it needs of them

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        torch._foreach_copy_(self._inputs, list(inputs))
        self._forward()
        return tuple(tensor.detach() for tensor in self.made)

    def backward(self, gradients: Sequence[Tensor]) -> Tensor:
        torch._foreach_copy_(self._given, list(gradients))
        self._backward()
        return self._gradient.clone()

    def _pass(self) -> None:
        with torch.enable_grad(), self._weights.leaves() as self._low:
            self._kept = self._run(*self._inputs)
        self.made = [tensor.detach() for tensor in self._kept]

    def _pass_back(self) -> None:
        found = torch.autograd.grad(self._kept, self._low, self._given, allow_unused=True)
        self._gradient.zero_()
        there = [(place, value) for place, value in zip(self._places, found, strict=True) if value is not None]
        torch._foreach_copy_([place for place, _ in there], [value for _, value in there])


class _Replay(torch.autograd.Function):
    """Gives its gradient to a handle that stands for all weights, so that those of several passes are added up at
    once."""

    @staticmethod
    def forward(
        context: Any, handle: Tensor, recording: _Recording, ticket: _Ticket, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        context.recording, context.ticket, context.inputs = recording, ticket, len(inputs)
        return recording.forward(inputs)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient = context.recording.backward(gradients)
        context.ticket = None  # the tape is free
        return gradient, None, None, *[None] * context.inputs
