"""The machine a job runs on, through accelerate, and who is told how the job goes on."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from accelerate import Accelerator

from unrank.engine.memory import Memory
from unrank.engine.team import Team
from unrank.errors import UnrankError

Device = Literal["auto", "cpu", "cuda"]

TOKENS_AT_ONCE = {"cpu": 1_024, "cuda": 524_288}
"""How many tokens go through the encoder at once, padding included, as long as memory lasts."""


class Progress(Protocol):
    """Whoever wants to know how far a job is."""

    def begin(self, what: str, steps: int) -> None:
        """A stretch of work of so many steps begins."""

    def advance(self, steps: int = 1) -> None:
        """So many steps of it are done."""

    def say(self, line: str) -> None:
        """Something that a person should read."""


class Silence:
    """Nobody wants to know."""

    def begin(self, what: str, steps: int) -> None:
        return

    def advance(self, steps: int = 1) -> None:
        return

    def say(self, line: str) -> None:
        return


@dataclass(frozen=True)
class Runtime:
    """A device, the accelerator that drives it, the listener, how much the device can hold, and who else is at work."""

    accelerator: Accelerator
    progress: Progress
    memory: Memory
    team: Team

    @classmethod
    def on(cls, device: Device = "auto", progress: Progress | None = None) -> Runtime:
        if device == "cuda" and not torch.cuda.is_available():
            raise UnrankError("--device cuda: no GPU can be used here; take --device cpu, or auto")
        wanted = "cpu" if device == "cpu" or not torch.cuda.is_available() else "cuda"
        try:
            accelerator = Accelerator(cpu=wanted == "cpu", mixed_precision="no")
        except ValueError as error:  # accelerate keeps one device a process
            raise UnrankError(f"this process computes on another device than {wanted}; start a new one") from error
        if accelerator.device.type != wanted:
            raise UnrankError(f"this process computes on {accelerator.device.type}; for {wanted} start a new one")
        team = Team(accelerator.num_processes, accelerator.process_index)
        progress = (progress or Silence()) if team.number == 0 else Silence()
        return cls(accelerator, progress, Memory(TOKENS_AT_ONCE[wanted], progress.say, alone=team.size == 1), team)

    @property
    def device(self) -> torch.device:
        return torch.device(self.accelerator.device)

    @property
    def tokens_at_once(self) -> int:
        return self.memory.tokens_at_once

    @property
    def name(self) -> str:
        """What the device calls itself: times measured on one say nothing of another."""
        if self.device.type == "cuda":
            return str(torch.cuda.get_device_name(self.device))
        return f"{platform.machine()} processor, {torch.get_num_threads()} threads"

    @property
    def deterministic(self) -> bool:
        """Whether the same computation gives the same bits again."""
        return self.device.type == "cpu" or torch.are_deterministic_algorithms_enabled()

    def wait(self) -> None:
        """Until the device has done all it was given, so that a clock may be read."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
