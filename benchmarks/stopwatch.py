"""How much in how much time, and how much memory meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Self, TypeVar

import numpy as np
import torch

GIBIBYTE = 1 << 30
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")

Item = TypeVar("Item")


class PeakMemory:
    """The most memory in use since it was made: of the GPU, or of the process where Linux tells."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        elif CLEAR.exists():
            CLEAR.write_text("5")

    def gibibytes(self) -> float | None:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / GIBIBYTE
        if not STATUS.exists():
            return None
        peak = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) * 1024 / GIBIBYTE


@dataclass(frozen=True)
class Rate:
    """Samples a second, and the most memory held meanwhile."""

    a_second: float
    gibibytes: float | None

    @classmethod
    def of(cls, done: Iterable[tuple[int, float]], peak: PeakMemory) -> Self:
        """Over all that was done: so many samples in so many seconds each."""
        samples, seconds = np.array(list(done)).sum(0)
        return cls(float(samples / seconds), peak.gibibytes())


def seconds(device: torch.device) -> float:
    """A clock that waits for a GPU. On a processor it counts what this process was given of it, so that whoever else is
    at work there does not count; many threads share the time that they had together."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return perf_counter()
    return process_time() / torch.get_num_threads()


def until(limit: float, items: Iterable[Item]) -> Iterator[Item]:
    """Items until so much time has gone by, at least one."""
    started = perf_counter()
    for item in items:
        yield item
        if perf_counter() - started >= limit:
            return
