"""The device that a job runs on, through accelerate, and the listener that follows its progress.

With `deterministic`, equal inputs give equal bits. On a CPU they always do. On a GPU some kernels add up in an order
that changes from run to run; slower ones take their place, and an operation that has no other is refused. The backward
pass of flash attention follows the same switch of torch's. unrank's own kernels always add up in a fixed order. CUDA
graphs are not used.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import torch
from accelerate import Accelerator

from unrank.engine.distributed import ProcessGroup
from unrank.engine.memory import Memory
from unrank.errors import UnknownName, UnrankError

Device = Literal["auto", "cpu", "cuda"]
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
FIXED_WORKSPACE = ":4096:8"

TOKENS_AT_ONCE = {"cpu": 1_024, "cuda": 524_288}
"""Tokens that go through the encoder at once, padding included, as long as memory lasts."""


class Progress(Protocol):
    """A listener that follows the progress of a job."""

    def begin(self, what: str, steps: int) -> None:
        """Begin a piece of work that has this many steps."""

    def advance(self, steps: int = 1) -> None:
        """Count steps as done."""

    def done(self, share: float) -> None:
        """Show which share of the whole job is done, as far as that is known."""

    def say(self, line: str) -> None:
        """Show a line to the user."""


class Silence:
    """A listener that does nothing."""

    def begin(self, what: str, steps: int) -> None:
        return

    def advance(self, steps: int = 1) -> None:
        return

    def done(self, share: float) -> None:
        return

    def say(self, line: str) -> None:
        return


@dataclass(frozen=True)
class Runtime:
    """The accelerator of a device, the listener, the limits of memory, and the processes that share the job."""

    accelerator: Accelerator
    progress: Progress
    memory: Memory
    processes: ProcessGroup

    @classmethod
    def on(cls, device: Device = "auto", progress: Progress | None = None) -> Runtime:
        if device not in get_args(Device):
            raise UnknownName("device", str(device), get_args(Device))
        if device == "cuda" and not torch.cuda.is_available():
            raise UnrankError("--device cuda: no GPU can be used here; use --device cpu or --device auto")
        wanted = "cpu" if device == "cpu" or not torch.cuda.is_available() else "cuda"
        try:
            accelerator = Accelerator(cpu=wanted == "cpu", mixed_precision="no")
        except ValueError as error:  # accelerate keeps one device a process
            raise UnrankError(f"this process computes on another device than {wanted}; start a new one") from error
        if accelerator.device.type != wanted:
            raise UnrankError(f"this process computes on {accelerator.device.type}; for {wanted} start a new one")
        processes = ProcessGroup(accelerator.num_processes, accelerator.process_index)
        progress = (progress or Silence()) if processes.number == 0 else Silence()
        return cls(
            accelerator, progress, Memory(TOKENS_AT_ONCE[wanted], progress.say, alone=processes.size == 1), processes
        )

    @property
    def device(self) -> torch.device:
        return torch.device(self.accelerator.device)

    @property
    def tokens_at_once(self) -> int:
        return self.memory.tokens_at_once

    @property
    def name(self) -> str:
        """The name of the device. Times measured on one device say nothing about another."""
        if self.device.type == "cuda":
            return str(torch.cuda.get_device_name(self.device))
        return f"{platform.machine()} processor, {torch.get_num_threads()} threads"

    @property
    def deterministic(self) -> bool:
        """Whether a computation gives the same bits when it is repeated."""
        if self.processes.together:  # nothing is promised of sharded weights
            return False
        return self.device.type == "cpu" or torch.are_deterministic_algorithms_enabled()

    def wait(self) -> None:
        """Wait until the device has finished, so that a clock may be read."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@contextmanager
def deterministic(wanted: bool = True) -> Iterator[None]:
    """Give equal bits for equal inputs on the same machine while the block runs.

    Enter it before the GPU is first used: cuBLAS fixes its workspace then.
    """
    if not wanted:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    os.environ.setdefault(WORKSPACE, FIXED_WORKSPACE)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        raise UnrankError(f"--deterministic is not possible here: {error}") from error
    finally:
        torch.use_deterministic_algorithms(before)
