"""Copies of arrays to a device.

A GPU copies in the background only from pinned memory, and pinning memory for each array costs more than the copy. So
one pinned buffer is allocated and reused from front to back.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BUFFER_BYTES = 1 << 26
ALIGNMENT = 64


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Copy an array to a device without waiting for the device's pending work."""
    if device.type != "cuda" or array.nbytes > BUFFER_BYTES // 2:
        return torch.from_numpy(array).to(device)
    return _buffer(device).copy(array)


class _PinnedBuffer:
    """Two halves of pinned memory: one is filled while the device may still read the other."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._halves = [torch.empty(BUFFER_BYTES // 2, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
        self._copied = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call]
        self._half = self._used = 0

    def copy(self, array: NDArray[Any]) -> Tensor:
        if self._used + array.nbytes > BUFFER_BYTES // 2:
            self._copied[self._half].record(torch.cuda.current_stream(self._device))
            self._half, self._used = 1 - self._half, 0
            self._copied[self._half].synchronize()
        slot = self._halves[self._half][self._used : self._used + array.nbytes]
        self._used += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        pinned = slot.view(torch.from_numpy(array).dtype).view(array.shape)
        np.copyto(pinned.numpy(), array)
        return pinned.to(self._device, non_blocking=True)


@cache
def _buffer(device: torch.device) -> _PinnedBuffer:
    return _PinnedBuffer(device)
