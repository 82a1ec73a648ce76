"""Arrays on their way to a device.

A GPU copies in the background only out of pinned memory, and to pin memory anew for each array costs more than the
copy. So there is one stretch of it, used from front to back and then again.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

STRETCH = 1 << 26
ALIGNMENT = 64


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Move without waiting for what the device still has to do."""
    if device.type != "cuda" or array.nbytes > STRETCH // 2:
        return torch.from_numpy(array).to(device)
    return _staging(device).move(array)


class _Staging:
    """Two halves of pinned memory: one is filled while the other may still be read."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._halves = [torch.empty(STRETCH // 2, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
        self._read = [torch.cuda.Event() for _ in range(2)]  # type: ignore[no-untyped-call]
        self._half = self._filled = 0

    def move(self, array: NDArray[Any]) -> Tensor:
        if self._filled + array.nbytes > STRETCH // 2:
            self._read[self._half].record(torch.cuda.current_stream(self._device))
            self._half, self._filled = 1 - self._half, 0
            self._read[self._half].synchronize()
        place = self._halves[self._half][self._filled : self._filled + array.nbytes]
        self._filled += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        pinned = place.view(torch.from_numpy(array).dtype).view(array.shape)
        np.copyto(pinned.numpy(), array)
        return pinned.to(self._device, non_blocking=True)


@cache
def _staging(device: torch.device) -> _Staging:
    return _Staging(device)
