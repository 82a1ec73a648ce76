"""Clocks, rates and peak memory."""

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
    """The peak memory since it was created: of the GPU, or of the process on Linux."""

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
    """Samples per second, and the peak memory."""

    a_second: float
    gibibytes: float | None

    @classmethod
    def of(cls, done: Iterable[tuple[int, float]], peak: PeakMemory) -> Self:
        """Return the rate over pairs of samples and seconds."""
        samples, seconds = np.array(list(done)).sum(0)
        return cls(float(samples / seconds), peak.gibibytes())


def seconds(device: torch.device) -> float:
    """Return the time of a clock. On a GPU it is wall time, after all kernels have ended. On a CPU it is the CPU time
    of this process divided by its threads, so other processes do not count."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return perf_counter()
    return process_time() / torch.get_num_threads()


def until(limit: float, items: Iterable[Item]) -> Iterator[Item]:
    """Yield items until `limit` seconds have passed, at least one."""
    started = perf_counter()
    for item in items:
        yield item
        if perf_counter() - started >= limit:
            return
