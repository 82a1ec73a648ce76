"""Passes through an encoder that are recorded once as CUDA graphs and then replayed.

A forward and backward pass launches hundreds of kernels, and a GPU finishes most of them before the next can be
launched. A graph launches them all at once. A graph is valid for one shape; buckets (`bucketing.py`) keep shapes few.
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

from unrank.rankers.fast.bf16_weights import BF16Weights
from unrank.rankers.fast.bucketing import Bucket
from unrank.rankers.tokens import Ints

Pass = Callable[..., tuple[Tensor, ...]]

SEEN_BEFORE = 1
"""Number of passes of a shape before it is recorded: its kernels are compiled by then, and it is likely to recur."""
MAX_RECORDED = 24
"""Most recorded passes of an encoder."""
MAX_PENDING = 4
"""Most recorded passes that may wait for their backward pass at once. Each of them needs memory of its own."""
MAX_TOKENS = 1 << 17
"""Number of tokens above which a pass keeps a GPU busy without a graph."""
SPARE_MEMORY = 0.08
"""Share of the GPU's memory that must be free to record a pass."""


class GraphMemory:
    """The memory of recorded passes of which at most one waits for its backward pass at any time."""

    def __init__(self) -> None:
        self._pool: Any = None
        self._stream: torch.cuda.Stream | None = None
        self._buffers: dict[int, tuple[Tensor, list[Tensor]]] = {}

    def gradient_buffer(self, weights: BF16Weights) -> tuple[Tensor, list[Tensor]]:
        """Return a buffer for the gradient of all weights; it is read before the next backward pass."""
        if weights.fingerprint not in self._buffers:
            self._buffers = {weights.fingerprint: weights.gradient_buffer()}
        return self._buffers[weights.fingerprint]

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record work without doing it; return a function that does it on the same memory each time."""
        graph = torch.cuda.CUDAGraph()
        if self._stream is None:  # memory that was allocated on one stream is reused on that stream only
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


class RecordedPasses:
    """The recorded passes of an encoder."""

    def __init__(self, weights: BF16Weights) -> None:
        self._weights = weights
        self._seen: Counter[Hashable] = Counter()
        self._recorded: dict[Hashable, dict[Bucket, _RecordedPass]] = defaultdict(dict)
        self._pending: weakref.WeakSet[_Pending] = weakref.WeakSet()
        self._memories = [GraphMemory() for _ in range(MAX_PENDING)]
        self._full = False

    def __deepcopy__(self, memo: dict[int, Any]) -> RecordedPasses:
        return RecordedPasses(copy.deepcopy(self._weights, memo))

    def bucket(self, lengths: Ints) -> Bucket | None:
        """Return the smallest recorded bucket that holds texts of these lengths."""
        return min((bucket for bucket in self._recorded[self._key] if bucket.holds(lengths)), default=None)

    def find(self, run: Pass, inputs: Sequence[Tensor], bucket: Bucket) -> _RecordedPass | None:
        """Return the recorded pass of `run` for a bucket; record it now if the bucket recurs."""
        memory, key = self._free_memory, self._key
        if memory is None or bucket.tokens > MAX_TOKENS or not self._weights.trained:
            return None
        recorded = self._recorded[key]
        if bucket not in recorded:
            self._seen[key, bucket] += 1
            if self._seen[key, bucket] > SEEN_BEFORE and self._has_memory():
                try:
                    recorded[bucket] = _RecordedPass(run, inputs, self._weights, self._memories[memory])
                except torch.OutOfMemoryError:
                    self._full = True
        return recorded.get(bucket)

    def replay(self, recorded: _RecordedPass, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        assert self._free_memory is not None
        pending = _Pending(self._free_memory)
        self._pending.add(pending)
        outputs: tuple[Tensor, ...] = _Replay.apply(self._weights.handle(), recorded, pending, *inputs)  # type: ignore[no-untyped-call]
        return outputs

    @property
    def _free_memory(self) -> int | None:
        """The first memory on which no pass waits for its backward pass."""
        taken = {pending.memory for pending in self._pending}
        return next((memory for memory in range(MAX_PENDING) if memory not in taken), None)

    @property
    def _key(self) -> Hashable:
        return self._free_memory, self._weights.fingerprint

    def _has_memory(self) -> bool:
        if self._full or sum(map(len, self._recorded.values())) >= MAX_RECORDED:
            return False
        if not torch.cuda.is_available():
            return True
        free, whole = torch.cuda.mem_get_info()
        if free < SPARE_MEMORY * whole:  # cached memory cannot be used while a pass is recorded
            torch.cuda.empty_cache()
            free, whole = torch.cuda.mem_get_info()
        self._full = free < SPARE_MEMORY * whole
        return not self._full


@dataclass(frozen=True, eq=False)
class _Pending:
    """Exists as long as a replayed pass may still go backward; until then its memory is taken."""

    memory: int


class _RecordedPass:
    """A forward and a backward pass on inputs of one shape."""

    def __init__(self, run: Pass, inputs: Sequence[Tensor], weights: BF16Weights, memory: GraphMemory) -> None:
        self._run, self._weights = run, weights
        self._inputs = [tensor.clone() for tensor in inputs]
        self._gradient, self._views = memory.gradient_buffer(weights)
        self._forward = memory.record(self._pass_forward)
        self._given = [torch.zeros_like(tensor) for tensor in self.outputs]
        self._backward = memory.record(self._pass_backward)
        if self._inputs[0].is_cuda:
            del self._graph_outputs, self._leaves  # the graph holds the memory that it needs

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        torch._foreach_copy_(self._inputs, list(inputs))
        self._forward()
        return tuple(tensor.detach() for tensor in self.outputs)

    def backward(self, gradients: Sequence[Tensor]) -> Tensor:
        torch._foreach_copy_(self._given, list(gradients))
        self._backward()
        return self._gradient.clone()

    def _pass_forward(self) -> None:
        with torch.enable_grad(), self._weights.leaves() as self._leaves:
            self._graph_outputs = self._run(*self._inputs)
        self.outputs = [tensor.detach() for tensor in self._graph_outputs]

    def _pass_backward(self) -> None:
        found = torch.autograd.grad(self._graph_outputs, self._leaves, self._given, allow_unused=True)
        self._gradient.zero_()
        used = [(view, value) for view, value in zip(self._views, found, strict=True) if value is not None]
        torch._foreach_copy_([view for view, _ in used], [value for _, value in used])


class _Replay(torch.autograd.Function):
    """Give the gradient to the handle of all weights, so that the gradients of several passes are added at once."""

    @staticmethod
    def forward(
        context: Any, handle: Tensor, recorded: _RecordedPass, pending: _Pending, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        context.recorded, context.pending, context.inputs = recorded, pending, len(inputs)
        return recorded.forward(inputs)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient = context.recorded.backward(gradients)
        context.pending = None  # its memory is free
        return gradient, None, None, *[None] * context.inputs
